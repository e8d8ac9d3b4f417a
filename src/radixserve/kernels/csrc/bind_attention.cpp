// The face of attention towards Python: a pool is checked once, a step once, a layer's call only for its queries.
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "attention.h"
#include "borders.h"
#include "threads.h"

namespace {

[[noreturn]] void refuse(const std::string& what) { throw std::invalid_argument(what); }

using Lens = std::vector<int64_t>;

// The slots and lengths of a step's requests.
class AttentionStep {
  public:
    AttentionStep(const Array& slot_table, Lens rows, Lens seq_lens, Lens extend_lens)
        : slot_table_(slot_table), rows_(std::move(rows)), seq_lens_(std::move(seq_lens)), extend_lens_(std::move(extend_lens)) {
        slots_ = static_cast<int32_t*>(checked(slot_table, "slot_table", nb::dtype<int32_t>(), {ANY, ANY}));
        if (rows_.size() != seq_lens_.size() || rows_.size() != extend_lens_.size())
            refuse("rows, seq_lens and extend_lens must have one entry a request: they have " + std::to_string(rows_.size()) +
                   ", " + std::to_string(seq_lens_.size()) + " and " + std::to_string(extend_lens_.size()));
        for (size_t b = 0; b < rows_.size(); b++) check(b);
        find_shared();
    }

    int64_t num_tokens() const { return num_tokens_; }

    void fill(AttentionCall& call) const {
        call.slot_table = slots_;
        call.table_stride = int64_t(slot_table_.shape(1));
        call.num_requests = int(rows_.size());
        call.rows = rows_.data();
        call.seq_lens = seq_lens_.data();
        call.extend_lens = extend_lens_.data();
        call.order = order_.data();
        call.shared_tiles = shared_tiles_.data();
    }

  private:
    void check(size_t b) {
        const int64_t row = rows_[b], seq_len = seq_lens_[b], extend_len = extend_lens_[b];
        const int64_t num_rows = int64_t(slot_table_.shape(0)), width = int64_t(slot_table_.shape(1));
        if (row < 0 || row >= num_rows)
            refuse("rows[" + std::to_string(b) + "] is " + std::to_string(row) + ": slot_table has " +
                   std::to_string(num_rows) + " rows");
        if (extend_len < 1 || extend_len > seq_len || seq_len > width)
            refuse("request " + std::to_string(b) + " computes " + std::to_string(extend_len) + " of " + std::to_string(seq_len) +
                   " tokens: must be at least 1, at most all of them, and a row of slot_table has " + std::to_string(width) +
                   " slots");
        num_tokens_ += extend_len;
    }

    int num_tiles(int b) const { return int(seq_lens_[b] / TILE); }

    // Whole tiles, from the first on, whose slots two requests share; and how the slots after these compare.
    int common_tiles(int a, int b, int& order) const {
        const int32_t *x = slots_ + rows_[a] * slot_table_.shape(1), *y = slots_ + rows_[b] * slot_table_.shape(1);
        const int most = std::min(num_tiles(a), num_tiles(b));
        for (int tile = 0; tile < most; tile++) {
            order = std::memcmp(x + tile * TILE, y + tile * TILE, TILE * sizeof(int32_t));
            if (order != 0) return tile;
        }
        order = num_tiles(a) - num_tiles(b);
        return most;
    }

    // In the order of their slots, requests that share tiles are neighbours.
    void find_shared() {
        order_.resize(rows_.size());
        shared_tiles_.assign(rows_.size(), 0);
        std::iota(order_.begin(), order_.end(), 0);
        int order;
        std::stable_sort(order_.begin(), order_.end(), [&](int a, int b) { return common_tiles(a, b, order), order < 0; });
        for (size_t i = 0; i + 1 < order_.size(); i++) shared_tiles_[i] = common_tiles(order_[i], order_[i + 1], order);
    }

    Array slot_table_;
    Lens rows_, seq_lens_, extend_lens_;
    std::vector<int> order_, shared_tiles_;
    const int32_t* slots_;
    int64_t num_tokens_ = 0;
};

// K and V of all layers, [num_layers, slots, num_kv_heads, head_dim].
class AttentionPool {
  public:
    AttentionPool(const Array& k, const Array& v) : k_(k), v_(v) {
        keys_ = bf16s(k, "k_buffer", {ANY, ANY, ANY, ANY});
        values_ = bf16s(v, "v_buffer", {size(0), size(1), size(2), size(3)});
        if (head_dim() == 0 || head_dim() % 8 || head_dim() > MAX_HEAD_DIM)
            refuse("head_dim is " + std::to_string(head_dim()) + ": must be a multiple of 8, at most " +
                   std::to_string(MAX_HEAD_DIM));
    }

    void attend(const AttentionStep& step, int64_t layer, const Wrapped& q, const Wrapped& out, float scale, int64_t window) const {
        if (layer < 0 || layer >= size(0))
            refuse("layer is " + std::to_string(layer) + ": the pool has " + std::to_string(size(0)));
        AttentionCall call{};
        call.q = activations(q, "q", {step.num_tokens(), ANY, head_dim()}, call.q_is_bf16);
        const int64_t num_heads = int64_t(q.shape(1));
        call.out = activations(out, "out", {step.num_tokens(), num_heads, head_dim()}, call.out_is_bf16);
        if (num_heads == 0 || num_heads % num_kv_heads())
            refuse("q has " + std::to_string(num_heads) + " heads: must be a multiple of the pool's " +
                   std::to_string(num_kv_heads()));
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
    nb::class_<AttentionStep>(module, "AttentionStep")
        .def(nb::init<const Array&, Lens, Lens, Lens>(), nb::arg("slot_table"), nb::arg("rows"), nb::arg("seq_lens"),
             nb::arg("extend_lens"));
    nb::class_<AttentionPool>(module, "AttentionPool")
        .def(nb::init<const Array&, const Array&>(), nb::arg("k_buffer"), nb::arg("v_buffer"))
        .def("attend", &AttentionPool::attend, nb::arg("step"), nb::arg("layer"), nb::arg("q"), nb::arg("out"), nb::arg("scale"),
             nb::arg("window"));
}
