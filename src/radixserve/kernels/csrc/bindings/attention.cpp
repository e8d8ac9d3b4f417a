// A pool is checked once, a step once, a layer's call only for its queries.
#include <nanobind/stl/vector.h>

#include "args.h"
#include "attention_step.h"
#include "threads.h"

namespace {

[[noreturn]] void refuse(const std::string& what) { throw std::invalid_argument(what); }

// A step that keeps the memory of its slot table.
struct TableStep {
    Array slot_table;
    AttentionStep step;

    TableStep(const Array& table, AttentionStep::Lens rows, AttentionStep::Lens seq_lens, AttentionStep::Lens extend_lens)
        : slot_table(table),
          step(slots(table), table.shape(0), table.shape(1), std::move(rows), std::move(seq_lens), std::move(extend_lens)) {}

    static const int32_t* slots(const Array& table) {
        return static_cast<const int32_t*>(checked(table, "slot_table", nb::dtype<int32_t>(), {ANY, ANY}));
    }
};

// K and V of all layers, [num_layers, slots, num_kv_heads, head_dim].
class AttentionPool {
  public:
    AttentionPool(const Array& k, const Array& v) : k_(k), v_(v) {
        keys_ = bf16s(k, "k_buffer", {ANY, ANY, ANY, ANY});
        values_ = bf16s(v, "v_buffer", {size(0), size(1), size(2), size(3)});
        if (head_dim() == 0 || head_dim() % 8 || head_dim() > MAX_HEAD_DIM)
            refuse("head_dim is " + std::to_string(head_dim()) + ": must be a multiple of 8, at most " + std::to_string(MAX_HEAD_DIM));
    }

    void attend(const TableStep& of, int64_t layer, const Wrapped& q, const Wrapped& out, float scale, int64_t window) const {
        if (layer < 0 || layer >= size(0)) refuse("layer is " + std::to_string(layer) + ": the pool has " + std::to_string(size(0)));
        const AttentionStep& step = of.step;
        AttentionCall call{};
        call.q = activations(q, "q", {step.num_tokens(), ANY, head_dim()}, call.q_is_bf16);
        const int64_t num_heads = int64_t(q.shape(1));
        call.out = activations(out, "out", {step.num_tokens(), num_heads, head_dim()}, call.out_is_bf16);
        if (num_heads == 0 || num_heads % num_kv_heads())
            refuse("q has " + std::to_string(num_heads) + " heads: must be a multiple of the pool's " + std::to_string(num_kv_heads()));
        if (!(scale > 0)) refuse("scale is " + std::to_string(scale) + ": must be positive");
        if (window < 0) refuse("window is " + std::to_string(window) + ": must be positive, or 0 for none");
        step.fill(call);
        const int64_t layer_size = size(1) * size(2) * size(3);
        call.k = keys_ + layer * layer_size;
        call.v = values_ + layer * layer_size;
        call.num_kv_heads = int(num_kv_heads());
        call.group = int(num_heads / num_kv_heads());
        call.head_dim = int(head_dim());
        call.scale = scale;
        call.window = window;
        call.num_threads = num_threads();
        nb::gil_scoped_release released;
        AT_LEVEL(attend, call);
    }

  private:
    int64_t size(size_t dimension) const { return int64_t(k_.shape(dimension)); }
    int64_t num_kv_heads() const { return size(2); }
    int64_t head_dim() const { return size(3); }

    static void* activations(const Array& array, const char* name, Shape shape, bool& is_bf16) {
        is_bf16 = array.dtype() == BF16;
        return checked(array, name, is_bf16 ? BF16 : nb::dtype<float>(), shape);
    }

    Array k_, v_;
    const uint16_t *keys_, *values_;
};

}  // namespace

void bind_attention(nb::module_& module) {
    nb::class_<TableStep>(module, "AttentionStep")
        .def(nb::init<const Array&, AttentionStep::Lens, AttentionStep::Lens, AttentionStep::Lens>(), nb::arg("slot_table"),
             nb::arg("rows"), nb::arg("seq_lens"), nb::arg("extend_lens"));
    nb::class_<AttentionPool>(module, "AttentionPool")
        .def(nb::init<const Array&, const Array&>(), nb::arg("k_buffer"), nb::arg("v_buffer"))
        .def("attend", &AttentionPool::attend, nb::arg("step"), nb::arg("layer"), nb::arg("q"), nb::arg("out"), nb::arg("scale"),
             nb::arg("window"));
}
