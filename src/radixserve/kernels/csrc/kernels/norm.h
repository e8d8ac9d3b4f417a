// RMS norm of float rows, rounded once to bf16: what a product takes.
#pragma once
#include <cstdint>

#include "bf16.h"
#include "cpu_level.h"

struct Norm {
    const float* weight;  // [size]
    float eps;
};

DECLARE_KERNEL(void rms_norm(const Norm& norm, const float* x, bf16* y, int64_t size))
