// What a decoder computes with, apart from attention.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <algorithm>
#include <vector>

#include "borders.h"
#include "heads.h"
#include "linear.h"
#include "lora.h"
#include "norm.h"
#include "threads.h"

namespace {

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

void norm_linear(const Wrapped& x, const RmsNorm& norm, const Linear& linear, const Array& y) {
    const float* source = floats(x, "x", {ANY, linear.inputs});
    const int64_t rows = x.shape(0);
    float* target = floats(y, "y", {rows, linear.outputs});
    if (norm.size() != linear.inputs) throw std::invalid_argument("norm and linear differ in size");
    bf16* shared = scratch(normed_memory, rows * linear.inputs);
    const QuantizedRows quantized = memory_for(rows, {&linear});
    nb::gil_scoped_release release;
    in_parallel(num_threads(), [&](int thread, int threads) {
        const bf16* input = normed(norm, source, shared, rows, thread, threads);
        linear.multiply(input, target, rows, Epilogue::store, quantized, thread, threads);
    });
}

// y = linear(x), and what adapters add to it.
void product(const Wrapped& x, const Linear& linear, const Wrapped& y, const LowRanks* lora) {
    const bf16* source = bf16s(x, "x", {ANY, linear.inputs});
    const int64_t rows = x.shape(0);
    float* target = floats(y, "y", {rows, linear.outputs});
    check_fit(lora, linear, rows);
    const LoraMemory memory = memory_for({lora});
    const QuantizedRows quantized = memory_for(rows, {&linear});
    nb::gil_scoped_release release;
    in_parallel(num_threads(), [&](int thread, int threads) {
        const Addend added = multiply(lora, source, memory, thread, threads);
        linear.multiply(source, target, rows, Epilogue::store, quantized, thread, threads, added);
    });
}

// down(silu(gate) * up) of the normed rows. Memory is of the thread that starts the region.
struct Mlp {
    const RmsNorm& norm;
    const Linear &gate_up, &down;
    const LowRanks *gate_up_lora, *down_lora;
    const int64_t rows;
    LoraMemory added;
    QuantizedRows quantized;
    bf16* shared = scratch(normed_memory, rows * gate_up.inputs);
    bf16* activated = scratch(activated_memory, rows * down.inputs);

    void check() const {
        const int64_t size = norm.size();
        if (gate_up.inputs != size || down.outputs != size || down.inputs * 2 != gate_up.outputs || gate_up.outputs % PANEL)
            throw std::invalid_argument("norm, gate_up and down do not fit each other");
        check_fit(gate_up_lora, gate_up, rows), check_fit(down_lora, down, rows);
    }
    // Stores to `y`, or adds. Called by all threads of a region; `x` is whole.
    void multiply(const float* x, float* y, Epilogue epilogue, int thread, int threads) const {
        const bf16* input = normed(norm, x, shared, rows, thread, threads);
        const Addend to_gate_up = ::multiply(gate_up_lora, input, added, thread, threads);
        gate_up.multiply(input, activated, rows, Epilogue::silu_mul, quantized, thread, threads, to_gate_up);
        wait_for_all(threads);
        const Addend to_down = ::multiply(down_lora, activated, added, thread, threads);
        down.multiply(activated, y, rows, epilogue, quantized, thread, threads, to_down);
    }
};

void mlp(const Wrapped& x, const RmsNorm& norm, const Linear& gate_up, const Linear& down, const Wrapped& y, const LowRanks* gate_up_lora,
         const LowRanks* down_lora) {
    const float* stream = floats(x, "x", {ANY, norm.size()});
    const int64_t rows = x.shape(0);
    float* target = floats(y, "y", {rows, norm.size()});
    const Mlp mlp{norm,         gate_up,   down, gate_up_lora, down_lora, rows, memory_for({gate_up_lora, down_lora}),
                  memory_for(rows, {&gate_up, &down})};
    mlp.check();
    nb::gil_scoped_release release;
    in_parallel(num_threads(), [&](int thread, int threads) { mlp.multiply(stream, target, Epilogue::store, thread, threads); });
}

void add_and_mlp(const Wrapped& x, const Wrapped& y, const Linear& linear, const RmsNorm& norm, const Linear& gate_up, const Linear& down,
                 const LowRanks* linear_lora, const LowRanks* gate_up_lora, const LowRanks* down_lora) {
    const bf16* source = bf16s(y, "y", {ANY, linear.inputs});
    const int64_t rows = y.shape(0);
    float* stream = floats(x, "x", {rows, linear.outputs});
    if (norm.size() != linear.outputs) throw std::invalid_argument("linear and norm differ in size");
    check_fit(linear_lora, linear, rows);
    const Mlp mlp{norm,         gate_up,   down, gate_up_lora, down_lora, rows, memory_for({linear_lora, gate_up_lora, down_lora}),
                  memory_for(rows, {&linear, &gate_up, &down})};
    mlp.check();
    nb::gil_scoped_release release;
    in_parallel(num_threads(), [&](int thread, int threads) {
        const Addend to_linear = multiply(linear_lora, source, mlp.added, thread, threads);
        linear.multiply(source, stream, rows, Epilogue::add, mlp.quantized, thread, threads, to_linear);
        wait_for_all(threads);
        mlp.multiply(stream, stream, Epilogue::add, thread, threads);
    });
}

// What the heads of a step share: the rotations of all positions, and the positions and slots of its tokens.
class Places {
  public:
    Places(const Wrapped& cos, const Wrapped& sin, const Array& positions, const Array& slots)
        : tables_{cos, sin}, positions_(positions), slots_(slots) {
        this->cos = floats(cos, "cos", {ANY, ANY});
        this->sin = floats(sin, "sin", {rows(), half()});
        this->positions = int64s(positions, "positions", {ANY});
        this->slots = int64s(slots, "slots", {tokens()});
        for (int64_t token = 0; token < tokens(); token++) check(token);
    }
    int64_t tokens() const { return static_cast<int64_t>(positions_.shape(0)); }
    int64_t half() const { return static_cast<int64_t>(tables_[0].shape(1)); }

    const float *cos, *sin;
    const int64_t *positions, *slots;
    int64_t last_slot = 0;

  private:
    int64_t rows() const { return static_cast<int64_t>(tables_[0].shape(0)); }
    void check(int64_t token) {
        if (slots[token] < 0) throw std::invalid_argument("slot " + std::to_string(slots[token]) + " is negative");
        if (positions[token] < 0 || positions[token] >= rows())
            throw std::invalid_argument("position " + std::to_string(positions[token]) + " is outside of the rotations of " +
                                        std::to_string(rows()));
        last_slot = std::max(last_slot, slots[token]);
    }
    Wrapped tables_[2];
    Array positions_, slots_;
};

Heads checked_heads(const Linear& linear, const RmsNorm* q_norm, const RmsNorm* k_norm, const Places& places, const Wrapped& k_pool,
                    const Wrapped& v_pool, const Wrapped& q) {
    Heads h{};
    h.tokens = places.tokens(), h.head_dim = 2 * places.half();
    h.cos = places.cos, h.sin = places.sin, h.positions = places.positions, h.slots = places.slots;
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

void heads(const Wrapped& x, const RmsNorm& norm, const Linear& linear, const RmsNorm* q_norm, const RmsNorm* k_norm, const Places& places,
           const Wrapped& k_pool, const Wrapped& v_pool, const Wrapped& q, const LowRanks* lora) {
    const int64_t rows = places.tokens();
    const float* stream = floats(x, "x", {rows, linear.inputs});
    if (norm.size() != linear.inputs) throw std::invalid_argument("norm and linear differ in size");
    Heads h = checked_heads(linear, q_norm, k_norm, places, k_pool, v_pool, q);
    check_fit(lora, linear, rows);
    const LoraMemory memory = memory_for({lora});
    bf16* shared = scratch(normed_memory, rows * linear.inputs);
    float* qkv = scratch(qkv_memory, rows * linear.outputs);
    h.qkv = qkv;
    const QuantizedRows quantized = memory_for(rows, {&linear});
    nb::gil_scoped_release release;
    in_parallel(num_threads(), [&](int thread, int threads) {
        const bf16* input = normed(norm, stream, shared, rows, thread, threads);
        const Addend added = multiply(lora, input, memory, thread, threads);
        linear.multiply(input, qkv, rows, Epilogue::store, quantized, thread, threads, added);
        wait_for_all(threads);
        const Range range = share(rows, thread, threads);
        for (int64_t token = range.begin; token < range.end; token++) AT_LEVEL(rotate_and_store, h, token);
    });
}

void embed(const Wrapped& table, const Array& ids, const Wrapped& x) {
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
    nb::class_<Wrapped>(module, "Wrapped").def(nb::init_implicit<const Array&>(), nb::arg("tensor"));
    nb::class_<RmsNorm>(module, "RmsNorm").def(nb::init<const Array&, float>(), nb::arg("weight"), nb::arg("eps"));
    module.def("norm_linear", &norm_linear, nb::arg("x"), nb::arg("norm"), nb::arg("linear"), nb::arg("y"));
    nb::class_<Places>(module, "Places")
        .def(nb::init<const Wrapped&, const Wrapped&, const Array&, const Array&>(), nb::arg("cos"), nb::arg("sin"),
             nb::arg("positions"), nb::arg("slots"));
    module.def("heads", &heads, nb::arg("x"), nb::arg("norm"), nb::arg("linear"), nb::arg("q_norm").none(), nb::arg("k_norm").none(),
               nb::arg("places"), nb::arg("k_pool"), nb::arg("v_pool"), nb::arg("q"), nb::arg("lora") = nb::none());
    module.def("product", &product, nb::arg("x"), nb::arg("linear"), nb::arg("y"), nb::arg("lora") = nb::none());
    module.def("mlp", &mlp, nb::arg("x"), nb::arg("norm"), nb::arg("gate_up"), nb::arg("down"), nb::arg("y"),
               nb::arg("gate_up_lora") = nb::none(), nb::arg("down_lora") = nb::none());
    module.def("add_and_mlp", &add_and_mlp, nb::arg("x"), nb::arg("y"), nb::arg("linear"), nb::arg("norm"), nb::arg("gate_up"),
               nb::arg("down"), nb::arg("linear_lora") = nb::none(), nb::arg("gate_up_lora") = nb::none(), nb::arg("down_lora") = nb::none());
    module.def("embed", &embed, nb::arg("table"), nb::arg("ids"), nb::arg("x"));
}
