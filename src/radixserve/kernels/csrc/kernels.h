// The kernels that exist at every level.
#pragma once
#include <cstdint>

#include "level.h"

DECLARE_KERNEL(void rms_norm(const float* x, const float* weight, float eps, uint16_t* y, int64_t rows, int64_t size))
