// Products with thin weights in bf16, those of adapters: few inputs or few outputs.
//
// Outputs are packed in groups of 16, each [inputs / 2][16][2]: 64 bytes are the two next inputs of all of them. A group has the inputs
// from the first to the last for which one of its outputs has a weight: where modules share a product, an output has weights for the
// rank of its own module alone, and zeros are neither kept nor read.
//
// An output is summed over its inputs two by two from first to last, in one float. No shape, tile, batch or thread changes that.
#pragma once
#include <cstdint>

#include "cpu_level.h"
#include "gemm.h"
#include "threads.h"

constexpr int64_t LORA_GROUP = 16;

struct LoraGroup {
    int64_t first, inputs;  // both even
    const bf16* packed;     // [inputs / 2][16][2]
};

struct LoraProduct {
    const bf16* x;            // [any, K]
    const LoraGroup* groups;  // [ceil(N / 16)]
    void* y;                  // [any, N] float, or bf16 if rounded
    int64_t n, k;
    bool rounded;
};

// y = xW for some rows and the outputs of one group.
DECLARE_KERNEL(void lora_product(const LoraProduct& p, int64_t group, Range rows))
