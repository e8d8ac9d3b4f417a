// The arithmetic of one tile in plain C++: float products and sums, in loops that a compiler vectorizes without reordering any sum.
#pragma once
#include <cmath>
#include <cstring>

#include "attention_tile.h"
#include "bf16.h"

namespace KERNEL_LEVEL {
namespace {

inline float multiply_add(float a, float b, float c) {
#ifdef __FMA__
    return __builtin_fmaf(a, b, c);
#else
    return a * b + c;
#endif
}

inline float exp2_scalar(float x) {
    if (x < EXP2_UNDERFLOW) x = EXP2_UNDERFLOW;  // a NaN stays
    constexpr float ROUND = 12582912.0f;         // 1.5 * 2^23: adding it rounds to an integer
    const float shifted = x + ROUND, r = x - (shifted - ROUND);
    float y = EXP2_COEFFICIENTS[4];
    for (int i = 3; i >= 0; --i) y = multiply_add(y, r, EXP2_COEFFICIENTS[i]);
    y = multiply_add(y, r, 1.0f);
    int32_t exponent;
    std::memcpy(&exponent, &shifted, sizeof exponent);
    exponent -= 0x4b400000;             // the bits of ROUND
    const int32_t half = exponent / 2;  // two factors, as 2^-200 is no float
    const uint32_t bits[2] = {uint32_t(127 + half) << 23, uint32_t(127 + exponent - half) << 23};
    float factors[2];
    std::memcpy(factors, bits, sizeof bits);
    return y * factors[0] * factors[1];
}

// Keys as [dimension][key], values as [key][column].
inline void pack(const KeyTile& tile, const Shape& shape, const Packed& packed) {
    for (int key = 0; key < TILE; ++key) {
        const uint16_t *k = tile.k + tile.offsets[key], *v = tile.v + tile.offsets[key];
        for (int d = 0; d < shape.head_dim; ++d) packed.k[d * TILE + key] = to_float(k[d]);
        for (int d = 0; d < shape.padded; ++d) packed.v[key * shape.padded + d] = d < shape.head_dim ? to_float(v[d]) : 0.0f;
    }
}

inline void fold_row(const Packed& packed, int num_keys, const Rows& rows, int i, const Shape& shape) {
    float p[TILE] = {}, max = LOWEST, old = rows.state.max[i];
    for (int d = 0; d < shape.head_dim; ++d) {
        const float q = to_float(rows.q[i * shape.padded + d]);
        for (int j = 0; j < TILE; ++j) p[j] = multiply_add(q, packed.k[d * TILE + j], p[j]);
    }
    const uint64_t mask = rows.masks[i];
    for (int j = 0; j < TILE; ++j) {
        p[j] *= shape.scale;
        if ((mask >> j & 1) && p[j] > max) max = p[j];
    }
    for (int j = 0; j < TILE; ++j) p[j] = (mask >> j & 1) ? exp2_scalar(p[j] - max) : 0.0f;
    const float top = old > max ? old : max, keep = exp2_scalar(old - top), add = exp2_scalar(max - top);
    rows.state.max[i] = top;
    float* const sum = rows.state.sum + i * LANES;
    for (int j = 0; j < LANES; ++j) sum[j] = sum[j] * keep + ((p[j] + p[j + 16]) + (p[j + 32] + p[j + 48])) * add;
    float tile_out[MAX_HEAD_DIM] = {};
    for (int j = 0; j < num_keys; ++j)
        for (int d = 0; d < shape.padded; ++d) tile_out[d] = multiply_add(p[j], packed.v[j * shape.padded + d], tile_out[d]);
    float* const out = rows.state.out + i * shape.padded;
    for (int d = 0; d < shape.padded; ++d) out[d] = out[d] * keep + tile_out[d] * add;
}

// Folds a tile into the states of rows that see it.
inline void fold_tile(const KeyTile& tile, const KeyTile*, const Rows& rows, const Shape& shape, const Packed& packed) {
    pack(tile, shape, packed);
    for (int i = 0; i < rows.count; ++i)
        if (rows.masks[i]) fold_row(packed, tile.count, rows, i, shape);
}

// Folds the state `tile` of one tile, which was started on its own, into `state`.
inline void fold_state(const State& state, const State& tile, int count, const Shape& shape) {
    for (int i = 0; i < count; ++i) {
        const float old = state.max[i], own = tile.max[i], top = old > own ? old : own;
        const float keep = exp2_scalar(old - top), add = exp2_scalar(own - top);
        state.max[i] = top;
        const auto fold = [&](float* into, const float* from, int size) {
            for (int j = 0; j < size; ++j) into[j] = into[j] * keep + from[j] * add;
        };
        fold(state.sum + i * LANES, tile.sum + i * LANES, LANES);
        fold(state.out + i * shape.padded, tile.out + i * shape.padded, shape.padded);
    }
}

// The output of row i, [padded_dim] floats.
inline void finish_row(const State& state, int i, const Shape& shape, float* out) {
    float sum = 0.0f;
    for (int j = 0; j < LANES; ++j) sum += state.sum[i * LANES + j];
    for (int d = 0; d < shape.padded; ++d) out[d] = state.out[i * shape.padded + d] / sum;
}

}  // namespace
}  // namespace KERNEL_LEVEL
