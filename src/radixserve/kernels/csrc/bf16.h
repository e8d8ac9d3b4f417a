// bfloat16 as its bits: the upper half of a float. `simd.h` rounds whole vectors by the same rule.
#pragma once
#include <cstdint>
#include <cstring>

using bf16 = uint16_t;

// Rounds to nearest, ties to even. A NaN stays one.
static inline bf16 round_to_bf16(float x) {
    uint32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    if ((bits & 0x7fffffff) > 0x7f800000) return static_cast<bf16>(bits >> 16 | 0x40);
    return static_cast<bf16>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static inline float to_float(bf16 x) {
    const uint32_t bits = static_cast<uint32_t>(x) << 16;
    float y;
    std::memcpy(&y, &bits, sizeof y);
    return y;
}
