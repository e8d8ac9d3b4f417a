// Products of int8 with int8: weights and inputs are whole numbers -127 .. 127 times a scale, one scale an output and one a row.
//
// A row's scale comes from that row alone, its largest magnitude / 127, and so does an output's. Sums are exact in int32, so a result
// depends on its row and its output alone and is the same at every level; it becomes a float once, when both scales are applied.
//
// A weight [N, K] is packed into panels of 32 outputs, [ceil(N / 32)][K / 4][32][4], K filled up to whole groups of four. The instruction
// wants unsigned inputs: a row is kept with 128 added, and 128 times the sum of an output's weights is taken off again.
#pragma once
#include <cstdint>

#include "cpu_level.h"
#include "gemm.h"

// Most inputs for which no sum of unsigned times signed bytes leaves int32.
constexpr int64_t MAX_INT8_INPUTS = 65536;

static inline int64_t int8_width(int64_t inputs) { return (inputs + 3) / 4 * 4; }

struct Int8Weights {
    int8_t* packed;    // see above
    float* scales;     // [panels * 32]
    int32_t* offsets;  // [panels * 32], 128 times the sum of the weights
};

struct Int8Gemm {
    const uint8_t* x;       // [M, K], K a multiple of 4
    const float* x_scales;  // [M]
    const int8_t* packed;
    const float* scales;
    const int32_t* offsets;
    const float* bias;  // [panels * 32] or null
    void* y;            // as in Gemm
    int64_t m, n, k;
    Epilogue epilogue;
    LoraAddend addend;
};

DECLARE_KERNEL(void gemm_int8(const Int8Gemm& g, int thread, int threads))
// One row of `size` inputs to int8_width(size) bytes. A row that holds an infinity or NaN gets NaN as its scale.
DECLARE_KERNEL(void quantize(const bf16* x, uint8_t* y, float* scale, int64_t size))
DECLARE_KERNEL(void pack_int8(const bf16* weight, const Int8Weights& out, int64_t n, int64_t k))
