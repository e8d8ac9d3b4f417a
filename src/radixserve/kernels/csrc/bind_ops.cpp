// What a decoder computes with, apart from attention.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <optional>
#include <vector>

#include "borders.h"
#include "gemm.h"
#include "heads.h"
#include "norm.h"
#include "threads.h"

namespace {

// Memory on huge pages where the system gives them on request: weights are read in order, once a step.
struct HugeMemory {
    static constexpr size_t PAGE = 2 << 20;
    std::unique_ptr<bf16, decltype(&std::free)> data{nullptr, &std::free};
    explicit HugeMemory(size_t bytes) {
        bytes = (bytes + PAGE - 1) / PAGE * PAGE;
        data.reset(static_cast<bf16*>(std::aligned_alloc(PAGE, bytes)));
        if (!data) throw std::bad_alloc();
#ifdef MADV_HUGEPAGE
        madvise(data.get(), bytes, MADV_HUGEPAGE);
#endif
    }
};

// A weight, packed, and its bias.
class Linear {
  public:
    const int64_t outputs, inputs;

    Linear(const Array& weight, const std::optional<Array>& bias)
        : outputs(weight.ndim() ? weight.shape(0) : 0),
          inputs(weight.ndim() > 1 ? weight.shape(1) : 0),
          panels_((outputs + PANEL - 1) / PANEL),
          memory_(panels_ * PANEL * inputs * sizeof(bf16)) {
        const bf16* source = bf16s(weight, "weight", {ANY, ANY});
        if (inputs % 2) throw std::invalid_argument("weight has " + std::to_string(inputs) + " inputs: must be even");
        if (bias) {
            const float* values = floats(*bias, "bias", {outputs});
            bias_.assign(panels_ * PANEL, 0.0f);
            std::copy(values, values + outputs, bias_.begin());
        }
        AT_LEVEL(pack, source, memory_.data.get(), outputs, inputs);
    }

    Gemm product(const bf16* x, void* y, int64_t rows, Epilogue epilogue) const {
        return {x, memory_.data.get(), bias_.empty() ? nullptr : bias_.data(), y, rows, outputs, inputs, epilogue};
    }

  private:
    int64_t panels_;
    HugeMemory memory_;
    std::vector<float> bias_;
};

class RmsNorm {
  public:
    RmsNorm(const Array& weight, float eps) : eps_(eps) {
        const float* values = floats(weight, "weight", {ANY});
        weight_.assign(values, values + weight.shape(0));
    }
    Norm norm() const { return {weight_.data(), eps_}; }
    int64_t size() const { return static_cast<int64_t>(weight_.size()); }

  private:
    std::vector<float> weight_;
    float eps_;
};

// Memory of one thread that stays between calls: fresh memory costs page faults.
template <class T>
T* scratch(std::vector<T>& memory, int64_t size) {
    if (static_cast<int64_t>(memory.size()) < size) memory.resize(size);
    return memory.data();
}
thread_local std::vector<bf16> normed_memory, activated_memory, own_memory;
thread_local std::vector<float> qkv_memory;

// Up to so many rows every thread norms all of them for itself, which is faster than to wait for the others.
constexpr int64_t ROWS_NORMED_BY_ALL = 4;

// The normed rows, in `shared` or in memory of the calling thread. Called by all threads of a region.
const bf16* normed(const RmsNorm& norm, const float* x, bf16* shared, int64_t rows, int thread, int threads) {
    const int64_t size = norm.size();
    const bool by_all = rows <= ROWS_NORMED_BY_ALL;
    const Range range = by_all ? Range{0, rows} : share(rows, thread, threads);
    bf16* y = by_all ? scratch(own_memory, rows * size) : shared;
    for (int64_t row = range.begin; row < range.end; row++) AT_LEVEL(rms_norm, norm.norm(), x + row * size, y + row * size, size);
    if (!by_all) wait_for_all(threads);
    return y;
}

void norm_linear(const Array& x, const RmsNorm& norm, const Linear& linear, const Array& y) {
    const float* source = floats(x, "x", {ANY, linear.inputs});
    const int64_t rows = x.shape(0);
    float* target = floats(y, "y", {rows, linear.outputs});
    if (norm.size() != linear.inputs) throw std::invalid_argument("norm and linear differ in size");
    bf16* shared = scratch(normed_memory, rows * linear.inputs);
    nb::gil_scoped_release release;
    in_parallel(num_threads(), [&](int thread, int threads) {
        const bf16* input = normed(norm, source, shared, rows, thread, threads);
        AT_LEVEL(gemm, linear.product(input, target, rows, Epilogue::store), thread, threads);
    });
}

void add_and_mlp(const Array& x, const Array& y, const Linear& linear, const RmsNorm& norm, const Linear& gate_up, const Linear& down) {
    const bf16* source = bf16s(y, "y", {ANY, linear.inputs});
    const int64_t rows = y.shape(0), size = linear.outputs;
    float* stream = floats(x, "x", {rows, size});
    if (norm.size() != size || gate_up.inputs != size || down.outputs != size || down.inputs * 2 != gate_up.outputs || gate_up.outputs % PANEL)
        throw std::invalid_argument("linear, norm, gate_up and down do not fit each other");
    bf16* shared = scratch(normed_memory, rows * size);
    bf16* activated = scratch(activated_memory, rows * down.inputs);
    nb::gil_scoped_release release;
    in_parallel(num_threads(), [&](int thread, int threads) {
        AT_LEVEL(gemm, linear.product(source, stream, rows, Epilogue::add), thread, threads);
        wait_for_all(threads);
        const bf16* input = normed(norm, stream, shared, rows, thread, threads);
        AT_LEVEL(gemm, gate_up.product(input, activated, rows, Epilogue::silu_mul), thread, threads);
        wait_for_all(threads);
        AT_LEVEL(gemm, down.product(activated, stream, rows, Epilogue::add), thread, threads);
    });
}

// What the heads of a step share: the rotation of its tokens and their slots.
class Places {
  public:
    Places(const Array& cos, const Array& sin, const Array& slots) : arrays_{cos, sin, slots} {
        this->cos = floats(cos, "cos", {ANY, 1, ANY});
        this->sin = floats(sin, "sin", {tokens(), 1, half()});
        this->slots = int64s(slots, "slots", {tokens()});
        for (int64_t token = 0; token < tokens(); token++) last_slot = std::max(last_slot, slot(token));
    }
    int64_t tokens() const { return static_cast<int64_t>(arrays_[0].shape(0)); }
    int64_t half() const { return static_cast<int64_t>(arrays_[0].shape(2)); }

    const float *cos, *sin;
    const int64_t* slots;
    int64_t last_slot = 0;

  private:
    int64_t slot(int64_t token) const {
        if (slots[token] < 0) throw std::invalid_argument("slot " + std::to_string(slots[token]) + " is negative");
        return slots[token];
    }
    Array arrays_[3];
};

Heads checked_heads(const Linear& linear, const RmsNorm* q_norm, const RmsNorm* k_norm, const Places& places, const Array& k_pool,
                    const Array& v_pool, const Array& q) {
    Heads h{};
    h.tokens = places.tokens(), h.head_dim = 2 * places.half();
    h.cos = places.cos, h.sin = places.sin, h.slots = places.slots;
    h.q = bf16s(q, "q", {h.tokens, ANY, h.head_dim});
    h.num_heads = q.shape(1);
    h.k_pool = bf16s(k_pool, "k_pool", {ANY, ANY, h.head_dim});
    const int64_t slots = k_pool.shape(0);
    h.num_kv_heads = k_pool.shape(1);
    h.v_pool = bf16s(v_pool, "v_pool", {slots, h.num_kv_heads, h.head_dim});
    if (places.last_slot >= slots)
        throw std::invalid_argument("slot " + std::to_string(places.last_slot) + " is outside of the pool of " + std::to_string(slots));
    if (linear.outputs != (h.num_heads + 2 * h.num_kv_heads) * h.head_dim)
        throw std::invalid_argument("linear has " + std::to_string(linear.outputs) + " outputs: must be those of q, k and v");
    for (const RmsNorm* norm : {q_norm, k_norm})
        if (norm && norm->size() != h.head_dim) throw std::invalid_argument("the norm of a head must have head_dim weights");
    if (q_norm) h.q_norm = q_norm->norm();
    if (k_norm) h.k_norm = k_norm->norm();
    return h;
}

void heads(const Array& x, const RmsNorm& norm, const Linear& linear, const RmsNorm* q_norm, const RmsNorm* k_norm, const Places& places,
           const Array& k_pool, const Array& v_pool, const Array& q) {
    const int64_t rows = places.tokens();
    const float* stream = floats(x, "x", {rows, linear.inputs});
    if (norm.size() != linear.inputs) throw std::invalid_argument("norm and linear differ in size");
    Heads h = checked_heads(linear, q_norm, k_norm, places, k_pool, v_pool, q);
    bf16* shared = scratch(normed_memory, rows * linear.inputs);
    float* qkv = scratch(qkv_memory, rows * linear.outputs);
    h.qkv = qkv;
    nb::gil_scoped_release release;
    in_parallel(num_threads(), [&](int thread, int threads) {
        const bf16* input = normed(norm, stream, shared, rows, thread, threads);
        AT_LEVEL(gemm, linear.product(input, qkv, rows, Epilogue::store), thread, threads);
        wait_for_all(threads);
        const Range range = share(rows, thread, threads);
        for (int64_t token = range.begin; token < range.end; token++) AT_LEVEL(rotate_and_store, h, token);
    });
}

void embed(const Array& table, const Array& ids, const Array& x) {
    const bf16* rows = bf16s(table, "table", {ANY, ANY});
    const int64_t vocab = table.shape(0), size = table.shape(1);
    const int64_t* tokens = int64s(ids, "ids", {ANY});
    float* target = floats(x, "x", {static_cast<int64_t>(ids.shape(0)), size});
    for (size_t i = 0; i < ids.shape(0); i++) {
        if (tokens[i] < 0 || tokens[i] >= vocab)
            throw std::invalid_argument("token " + std::to_string(tokens[i]) + " is outside of the vocabulary of " + std::to_string(vocab));
        AT_LEVEL(widen, rows + tokens[i] * size, target + i * size, size);
    }
}

}  // namespace

void bind_ops(nb::module_& module) {
    nb::class_<Linear>(module, "Linear")
        .def(nb::init<const Array&, const std::optional<Array>&>(), nb::arg("weight"), nb::arg("bias") = nb::none())
        .def_ro("outputs", &Linear::outputs)
        .def_ro("inputs", &Linear::inputs);
    nb::class_<RmsNorm>(module, "RmsNorm").def(nb::init<const Array&, float>(), nb::arg("weight"), nb::arg("eps"));
    module.def("norm_linear", &norm_linear, nb::arg("x"), nb::arg("norm"), nb::arg("linear"), nb::arg("y"));
    nb::class_<Places>(module, "Places")
        .def(nb::init<const Array&, const Array&, const Array&>(), nb::arg("cos"), nb::arg("sin"), nb::arg("slots"));
    module.def("heads", &heads, nb::arg("x"), nb::arg("norm"), nb::arg("linear"), nb::arg("q_norm").none(), nb::arg("k_norm").none(),
               nb::arg("places"), nb::arg("k_pool"), nb::arg("v_pool"), nb::arg("q"));
    module.def("add_and_mlp", &add_and_mlp, nb::arg("x"), nb::arg("y"), nb::arg("linear"), nb::arg("norm"), nb::arg("gate_up"),
               nb::arg("down"));
    module.def("embed", &embed, nb::arg("table"), nb::arg("ids"), nb::arg("x"));
}
