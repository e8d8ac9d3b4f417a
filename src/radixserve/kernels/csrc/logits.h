// Choosing from rows of logits, several rows at once where that is worth waking threads.
#pragma once
#include <vector>

#include "argmax_topk.h"

// Of each row of x [rows, size] the index of the largest, as `argmax`.
std::vector<int64_t> argmax_of_rows(const float* x, int64_t rows, int64_t size);
// Of each row of x [rows, size] the k largest, as `top_k`, to `values` and `indices` [rows, k]. 1 <= k <= size.
void top_k_of_rows(const float* x, int64_t rows, int64_t size, int64_t k, float* values, int64_t* indices);
