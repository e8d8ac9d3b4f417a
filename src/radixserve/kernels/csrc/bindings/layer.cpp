// What a decoder computes with, apart from attention.
#include "layer.h"

#include <algorithm>

#include "args.h"

namespace {

// The rotations of all positions, and the positions and slots of a step's tokens. Keeps the memory of all four.
class StepPositions {
  public:
    StepPositions(const Wrapped& cos, const Wrapped& sin, const Array& positions, const Array& slots)
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

void make_norm(RmsNorm* self, const Array& weight, float eps) {
    const float* values = floats(weight, "weight", {ANY});
    new (self) RmsNorm(values, static_cast<int64_t>(weight.shape(0)), eps);
}

void norm_linear_of(const Wrapped& x, const RmsNorm& norm, const Linear& weights, const Array& y) {
    const float* source = floats(x, "x", {ANY, weights.inputs});
    const int64_t rows = x.shape(0);
    float* target = floats(y, "y", {rows, weights.outputs});
    nb::gil_scoped_release release;
    norm_linear(source, norm, weights, target, rows);
}

void linear_of(const Wrapped& x, const Linear& weights, const Wrapped& y, const LoraBatch* lora) {
    const bf16* source = bf16s(x, "x", {ANY, weights.inputs});
    const int64_t rows = x.shape(0);
    float* target = floats(y, "y", {rows, weights.outputs});
    nb::gil_scoped_release release;
    linear(source, weights, lora, target, rows);
}

void mlp_of(const Wrapped& x, const RmsNorm& norm, const Linear& gate_up, const Linear& down, const Wrapped& y,
            const LoraBatch* gate_up_lora, const LoraBatch* down_lora) {
    const float* stream = floats(x, "x", {ANY, norm.size()});
    const int64_t rows = x.shape(0);
    float* target = floats(y, "y", {rows, norm.size()});
    nb::gil_scoped_release release;
    mlp(stream, {norm, gate_up, down, gate_up_lora, down_lora}, target, rows);
}

void add_and_mlp_of(const Wrapped& x, const Wrapped& y, const Linear& output, const RmsNorm& norm, const Linear& gate_up,
                    const Linear& down, const LoraBatch* output_lora, const LoraBatch* gate_up_lora, const LoraBatch* down_lora) {
    const bf16* source = bf16s(y, "y", {ANY, output.inputs});
    const int64_t rows = y.shape(0);
    float* stream = floats(x, "x", {rows, output.outputs});
    nb::gil_scoped_release release;
    add_and_mlp(stream, source, output, output_lora, {norm, gate_up, down, gate_up_lora, down_lora}, rows);
}

QkvRope checked(const Linear& qkv, const RmsNorm* q_norm, const RmsNorm* k_norm, const StepPositions& positions, const Wrapped& k_pool,
                const Wrapped& v_pool, const Wrapped& q) {
    QkvRope h{};
    h.tokens = positions.tokens(), h.head_dim = 2 * positions.half();
    h.cos = positions.cos, h.sin = positions.sin, h.positions = positions.positions, h.slots = positions.slots;
    h.q = bf16s(q, "q", {h.tokens, ANY, h.head_dim});
    h.num_heads = q.shape(1);
    h.k_pool = bf16s(k_pool, "k_pool", {ANY, ANY, h.head_dim});
    const int64_t slots = k_pool.shape(0);
    h.num_kv_heads = k_pool.shape(1);
    h.v_pool = bf16s(v_pool, "v_pool", {slots, h.num_kv_heads, h.head_dim});
    if (positions.last_slot >= slots)
        throw std::invalid_argument("slot " + std::to_string(positions.last_slot) + " is outside of the pool of " + std::to_string(slots));
    if (qkv.outputs != (h.num_heads + 2 * h.num_kv_heads) * h.head_dim)
        throw std::invalid_argument("linear has " + std::to_string(qkv.outputs) + " outputs: must be those of q, k and v");
    for (const RmsNorm* norm : {q_norm, k_norm})
        if (norm && norm->size() != h.head_dim) throw std::invalid_argument("the norm of a head must have head_dim weights");
    if (q_norm) h.q_norm = q_norm->norm();
    if (k_norm) h.k_norm = k_norm->norm();
    return h;
}

void qkv_rope_store_of(const Wrapped& x, const RmsNorm& norm, const Linear& qkv, const RmsNorm* q_norm, const RmsNorm* k_norm,
                       const StepPositions& positions, const Wrapped& k_pool, const Wrapped& v_pool, const Wrapped& q,
                       const LoraBatch* lora) {
    const float* stream = floats(x, "x", {positions.tokens(), qkv.inputs});
    const QkvRope h = checked(qkv, q_norm, k_norm, positions, k_pool, v_pool, q);
    nb::gil_scoped_release release;
    qkv_rope_store(stream, norm, qkv, lora, h);
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

void bind_layer(nb::module_& module) {
    nb::class_<Wrapped>(module, "Wrapped").def(nb::init_implicit<const Array&>(), nb::arg("tensor"));
    nb::class_<RmsNorm>(module, "RmsNorm").def("__init__", &make_norm, nb::arg("weight"), nb::arg("eps"));
    module.def("norm_linear", &norm_linear_of, nb::arg("x"), nb::arg("norm"), nb::arg("linear"), nb::arg("y"));
    nb::class_<StepPositions>(module, "StepPositions")
        .def(nb::init<const Wrapped&, const Wrapped&, const Array&, const Array&>(), nb::arg("cos"), nb::arg("sin"), nb::arg("positions"),
             nb::arg("slots"));
    module.def("qkv_rope_store", &qkv_rope_store_of, nb::arg("x"), nb::arg("norm"), nb::arg("linear"), nb::arg("q_norm").none(),
               nb::arg("k_norm").none(), nb::arg("positions"), nb::arg("k_pool"), nb::arg("v_pool"), nb::arg("q"),
               nb::arg("lora") = nb::none());
    module.def("linear", &linear_of, nb::arg("x"), nb::arg("linear"), nb::arg("y"), nb::arg("lora") = nb::none());
    module.def("mlp", &mlp_of, nb::arg("x"), nb::arg("norm"), nb::arg("gate_up"), nb::arg("down"), nb::arg("y"),
               nb::arg("gate_up_lora") = nb::none(), nb::arg("down_lora") = nb::none());
    module.def("add_and_mlp", &add_and_mlp_of, nb::arg("x"), nb::arg("y"), nb::arg("linear"), nb::arg("norm"), nb::arg("gate_up"),
               nb::arg("down"), nb::arg("linear_lora") = nb::none(), nb::arg("gate_up_lora") = nb::none(),
               nb::arg("down_lora") = nb::none());
    module.def("embed", &embed, nb::arg("table"), nb::arg("ids"), nb::arg("x"));
}
