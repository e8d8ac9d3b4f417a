// The slots and lengths of a step's requests, and which of them share tiles of slots.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "attention.h"

class AttentionStep {
  public:
    using Lens = std::vector<int64_t>;

    // `slot_table`: [num_rows, width], read as long as the step lives. `rows`, `seq_lens`, `extend_lens`: one entry a request. Throws
    // std::invalid_argument for a row, a length or a number of tokens that can't be.
    AttentionStep(const int32_t* slot_table, int64_t num_rows, int64_t width, Lens rows, Lens seq_lens, Lens extend_lens);

    // Tokens that the step computes.
    int64_t num_tokens() const { return num_tokens_; }
    void fill(AttentionCall& call) const;

  private:
    void check(size_t b);
    void find_shared();
    int num_tiles(int b) const { return static_cast<int>(seq_lens_[b] / TILE); }
    int common_tiles(int a, int b, int& order) const;

    const int32_t* slot_table_;
    const int64_t num_rows_, width_;
    Lens rows_, seq_lens_, extend_lens_;
    std::vector<int> order_, shared_tiles_;
    int64_t num_tokens_ = 0;
};
