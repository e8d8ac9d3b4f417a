// What the walk over a request's keys (attention.cpp) and the arithmetic of one tile (attention_tile_*.h) share.
//
// A tile is 64 keys whose first position is a multiple of 64. For one query it yields a maximum m, a sum l and an output o: with
// scores s_j (in units of log 2), p_j = exp2(s_j - m) rounded to the precision of the product, l = sum p_j, o = sum p_j v_j. They
// depend on the query and on the tile's keys alone. A row's state takes one tile after the other, from left to right:
//     m' = max(m, m_tile), a = exp2(m - m'), b = exp2(m_tile - m'), l' = l * a + l_tile * b, o' = o * a + o_tile * b.
// So a row's bits don't depend on the rows beside it, on which thread folds a tile, or on whether the tile's state was stored.
#pragma once
#include <cstdint>

#include "attention.h"

namespace KERNEL_LEVEL {

constexpr int LANES = 16;  // a row's l is kept as 16 partial sums until the end

// Head dimensions are padded to whole registers of bf16, with zeros.
inline int padded_dim(int head_dim) { return (head_dim + 31) / 32 * 32; }

struct Shape {
    int head_dim;
    int padded;
    float scale;  // of the scores, times log2(e)
};

// Keys and values of one KV head in one tile. Key j lies at k + offsets[j]; positions that no row sees repeat a seen one.
struct KeyTile {
    const uint16_t* k;
    const uint16_t* v;
    const int64_t* offsets;  // [TILE]
    int count;               // keys from here on are seen by no row
};

// The states of `count` rows: they start at max = LOWEST, sum = 0, out = 0.
struct State {
    float* sum;  // [count, LANES]
    float* out;  // [count, padded_dim], in an order of columns that is the level's own
    float* max;  // [count]
};

constexpr float LOWEST = -3.402823466e+38f;

// Rows of one KV head that meet a tile.
struct Rows {
    int count;
    const uint16_t* q;      // [count, padded_dim], bf16
    const uint64_t* masks;  // [count]: bit j is set where the row sees key j
    State state;
};

// Asks for the keys and values of a tile ahead of their use.
inline void prefetch(const KeyTile& tile, const Shape& shape) {
    for (int key = 0; key < tile.count; ++key)
        for (int column = 0; column < shape.head_dim; column += 32) {
            __builtin_prefetch(tile.k + tile.offsets[key] + column);
            __builtin_prefetch(tile.v + tile.offsets[key] + column);
        }
}

// Room for a tile in the order that many rows read it in.
struct Packed {
    float* k;  // [TILE * padded_dim] each
    float* v;
};

// 2^x on [-0.5, 0.5] as a polynomial whose constant is exactly 1; relative error 2e-7 in float (minimax, fitted for this file).
constexpr float EXP2_COEFFICIENTS[5] = {0.693147f, 0.24022242f, 0.055507336f, 0.009671513f, 0.0013264727f};
constexpr float EXP2_UNDERFLOW = -200.0f;  // 2^x is 0 from here on down

}  // namespace KERNEL_LEVEL
