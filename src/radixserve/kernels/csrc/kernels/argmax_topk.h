// The likeliest of a row of logits. Comparisons alone: the choice is the same at every level. Equal values go to the lower index.
#pragma once
#include <cstdint>
#include <vector>

#include "cpu_level.h"

struct Ranked {
    float value;
    int32_t index;
};

// Index of the largest of n values; -1 where there is none to choose: a value is NaN, or the largest is infinite.
DECLARE_KERNEL(int64_t argmax(const float* x, int64_t n))
// The k largest of n values, 1 <= k <= n, largest first, into `found`. Where there are NaNs, any k.
DECLARE_KERNEL(void top_k(const float* x, int64_t n, int64_t k, std::vector<Ranked>& found))
