#include "attention_step.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <stdexcept>
#include <string>

AttentionStep::AttentionStep(const int32_t* slot_table, int64_t num_rows, int64_t width, Lens rows, Lens seq_lens, Lens extend_lens)
    : slot_table_(slot_table),
      num_rows_(num_rows),
      width_(width),
      rows_(std::move(rows)),
      seq_lens_(std::move(seq_lens)),
      extend_lens_(std::move(extend_lens)) {
    if (rows_.size() != seq_lens_.size() || rows_.size() != extend_lens_.size())
        throw std::invalid_argument("rows, seq_lens and extend_lens must have one entry a request: they have " +
                                    std::to_string(rows_.size()) + ", " + std::to_string(seq_lens_.size()) + " and " +
                                    std::to_string(extend_lens_.size()));
    for (size_t b = 0; b < rows_.size(); b++) check(b);
    find_shared();
}

void AttentionStep::fill(AttentionCall& call) const {
    call.slot_table = slot_table_;
    call.table_stride = width_;
    call.num_requests = static_cast<int>(rows_.size());
    call.rows = rows_.data();
    call.seq_lens = seq_lens_.data();
    call.extend_lens = extend_lens_.data();
    call.order = order_.data();
    call.shared_tiles = shared_tiles_.data();
}

void AttentionStep::check(size_t b) {
    const int64_t row = rows_[b], seq_len = seq_lens_[b], extend_len = extend_lens_[b];
    if (row < 0 || row >= num_rows_)
        throw std::invalid_argument("rows[" + std::to_string(b) + "] is " + std::to_string(row) + ": slot_table has " +
                                    std::to_string(num_rows_) + " rows");
    if (extend_len < 1 || extend_len > seq_len || seq_len > width_)
        throw std::invalid_argument(
            "request " + std::to_string(b) + " computes " + std::to_string(extend_len) + " of " + std::to_string(seq_len) +
            " tokens: must be at least 1, at most all of them, and a row of slot_table has " + std::to_string(width_) + " slots");
    num_tokens_ += extend_len;
}

// Whole tiles, from the first on, whose slots two requests share; and how the slots after these compare.
int AttentionStep::common_tiles(int a, int b, int& order) const {
    const int32_t *x = slot_table_ + rows_[a] * width_, *y = slot_table_ + rows_[b] * width_;
    const int most = std::min(num_tiles(a), num_tiles(b));
    for (int tile = 0; tile < most; tile++) {
        order = std::memcmp(x + tile * TILE, y + tile * TILE, TILE * sizeof(int32_t));
        if (order != 0) return tile;
    }
    order = num_tiles(a) - num_tiles(b);
    return most;
}

// In the order of their slots, requests that share tiles are neighbours.
void AttentionStep::find_shared() {
    order_.resize(rows_.size());
    shared_tiles_.assign(rows_.size(), 0);
    std::iota(order_.begin(), order_.end(), 0);
    int order;
    std::stable_sort(order_.begin(), order_.end(), [&](int a, int b) { return common_tiles(a, b, order), order < 0; });
    for (size_t i = 0; i + 1 < order_.size(); i++) shared_tiles_[i] = common_tiles(order_[i], order_[i + 1], order);
}
