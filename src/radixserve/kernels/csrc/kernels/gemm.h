// Products with packed bf16 weights.
//
// A weight [N, K] is packed into panels of 32 outputs, [ceil(N / 32)][K / 2][32][2]: a panel is read from front to back, 64 bytes at
// a time, and each 64 bytes are the two next inputs of 16 outputs, as the instruction wants them. Missing outputs are zeros.
//
// An output is summed over its inputs two by two from first to last, in one float. No shape, tile, batch or thread changes that.
#pragma once
#include <cstdint>

#include "bf16.h"
#include "cpu_level.h"

constexpr int64_t PANEL = 32;

enum class Epilogue {
    store,    // y = xW + b
    add,      // y += xW + b
    round,    // y = xW + b in bf16
    silu_mul  // y = silu(g) * u in bf16: a panel holds 16 gates, then the 16 ups that belong to them
};

// What is added to the sums of some rows, after the bias: row i gets row places[i] of `values`, or nothing where that is negative.
struct LoraAddend {
    const float* values = nullptr;    // [any, N]; null: no row gets anything
    const int32_t* places = nullptr;  // [M]
};

struct Gemm {
    const bf16* x;       // [M, K]
    const bf16* packed;  // see above
    const float* bias;   // [panels * 32] or null
    void* y;             // float [M, N]; bf16 [M, N] for round, [M, N / 2] for silu_mul
    int64_t m, n, k;
    Epilogue epilogue;
    LoraAddend addend;
};

DECLARE_KERNEL(void gemm(const Gemm& g, int thread, int threads))
DECLARE_KERNEL(void pack(const bf16* weight, bf16* packed, int64_t n, int64_t k))
