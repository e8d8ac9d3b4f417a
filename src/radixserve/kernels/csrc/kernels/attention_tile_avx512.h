// The arithmetic of one tile with AVX512. Products are bf16 x bf16, sums float.
//
// A score is one chain of `add_products` over the pairs of dimensions in ascending order, an output one chain over the pairs of keys.
// Two loops do this. Few rows (decodes) transpose keys in registers on their way from the pool. Many rows (extends) share a tile
// that is packed once: keys as [dimension pair][key], values as [key pair][column]. Their chains are the same, hence their bits.
#pragma once
#include <immintrin.h>

#include <cstring>

#include "attention_tile.h"
#include "simd.h"

namespace KERNEL_LEVEL {
namespace {

constexpr int DIRECT_ROWS = 8;  // at most as many rows read the pool without packing
constexpr int PACKED_ROWS = 6;  // rows times four registers of sums fill the register file

inline __m512 exp2_vector(__m512 x) {
    x = _mm512_max_ps(_mm512_set1_ps(EXP2_UNDERFLOW), x);  // the second operand is what a NaN comes through
    const __m512 n = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const __m512 r = _mm512_sub_ps(x, n);
    __m512 y = _mm512_set1_ps(EXP2_COEFFICIENTS[4]);
    for (int i = 3; i >= 0; --i) y = _mm512_fmadd_ps(y, r, _mm512_set1_ps(EXP2_COEFFICIENTS[i]));
    return _mm512_scalef_ps(_mm512_fmadd_ps(y, r, _mm512_set1_ps(1.0f)), n);
}

// Lanes of the 32 columns from `column` on that a row of the pool has; the rest is read as zero.
inline __mmask32 columns_mask(int column, int head_dim) {
    const int n = head_dim - column;
    return n >= 32 ? ~__mmask32(0) : (__mmask32(1) << n) - 1;
}

// Transposes 16 x 16 elements of 32 bits.
inline void transpose(__m512i r[16]) {
    __m512i t[16];
    for (int i = 0; i < 8; ++i) {
        t[2 * i] = _mm512_unpacklo_epi32(r[2 * i], r[2 * i + 1]);
        t[2 * i + 1] = _mm512_unpackhi_epi32(r[2 * i], r[2 * i + 1]);
    }
    for (int i = 0; i < 16; i += 4)
        for (int j = 0; j < 2; ++j) {
            r[i + 2 * j] = _mm512_unpacklo_epi64(t[i + j], t[i + 2 + j]);
            r[i + 2 * j + 1] = _mm512_unpackhi_epi64(t[i + j], t[i + 2 + j]);
        }
    for (int i = 0; i < 4; ++i)
        for (int j = 0; j < 16; j += 8) {
            t[i + j] = _mm512_shuffle_i32x4(r[i + j], r[i + j + 4], 0x88);
            t[i + j + 4] = _mm512_shuffle_i32x4(r[i + j], r[i + j + 4], 0xdd);
        }
    for (int i = 0; i < 8; ++i) {
        r[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
        r[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd);
    }
}

// 16 keys by 16 pairs of dimensions, as rows of pairs.
inline void load_transposed(const KeyTile& tile, int key, int column, __mmask32 mask, __m512i out[16]) {
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) out[i] = _mm512_maskz_loadu_epi16(mask, tile.k + tile.offsets[key + i] + column);
    transpose(out);
}

// Values of keys 2 * pair and 2 * pair + 1, interleaved: columns 0-3, 8-11, ... of 32 in `low`, the others in `high`.
inline void load_interleaved(const KeyTile& tile, int pair, int column, __mmask32 mask, __m512i& low, __m512i& high) {
    const __m512i even = _mm512_maskz_loadu_epi16(mask, tile.v + tile.offsets[2 * pair] + column);
    const __m512i odd = _mm512_maskz_loadu_epi16(mask, tile.v + tile.offsets[2 * pair + 1] + column);
    low = _mm512_unpacklo_epi16(even, odd);
    high = _mm512_unpackhi_epi16(even, odd);
}

// The weights of some rows in a tile, and what scales the old state and the tile's own.
struct Weights {
    alignas(64) uint16_t p[DIRECT_ROWS][TILE];
    alignas(64) float keep[LANES];
    alignas(64) float add[LANES];
};

// p of one row from its raw scores; sums them (as rounded) into `sum`. Returns the row's maximum, scaled as the scores are: so no p
// exceeds 1, however large the scores.
inline float weigh_row(const float* scores, uint64_t mask, float scale, uint16_t* p, __m512& sum) {
    __m512 s[4], top = _mm512_set1_ps(LOWEST);
    for (int i = 0; i < 4; ++i) {
        s[i] = _mm512_mul_ps(_mm512_load_ps(scores + 16 * i), _mm512_set1_ps(scale));
        // The second operand is what a NaN comes through: a NaN score is not the maximum, and stays in the weights.
        top = _mm512_mask_max_ps(top, __mmask16(mask >> (16 * i)), s[i], top);
    }
    const float max = _mm512_reduce_max_ps(top);
    for (int i = 0; i < 4; ++i)
        s[i] = _mm512_maskz_mov_ps(__mmask16(mask >> (16 * i)), exp2_vector(_mm512_sub_ps(s[i], _mm512_set1_ps(max))));
    for (int i = 0; i < 4; ++i) store(p + 16 * i, s[i]);
    const __m512i ones = _mm512_set1_epi16(0x3f80);
    sum = add_products(add_products(_mm512_setzero_ps(), load_pairs(p), ones), load_pairs(p + 32), ones);
    return max;
}

// Weights of `count` rows from `scores` [count][TILE]; folds maximum and sum into their states. Rows that see nothing stay as they
// are.
inline void weigh(const float (*scores)[TILE], const Rows& rows, int first, int count, float scale, Weights& weights) {
    __m512 sums[DIRECT_ROWS];
    alignas(64) float tile_max[LANES];
    __mmask16 seeing = 0;
    for (int i = 0; i < count; ++i) {
        tile_max[i] = weigh_row(scores[i], rows.masks[first + i], scale, weights.p[i], sums[i]);
        seeing |= __mmask16((rows.masks[first + i] != 0) << i);
    }
    float* const max = rows.state.max + first;
    const __m512 old = _mm512_maskz_loadu_ps(seeing, max), own = _mm512_maskz_load_ps(seeing, tile_max);
    const __m512 top = _mm512_max_ps(old, own);
    const __m512 keep = exp2_vector(_mm512_sub_ps(old, top)), add = exp2_vector(_mm512_sub_ps(own, top));
    _mm512_mask_storeu_ps(max, seeing, top);
    _mm512_store_ps(weights.keep, keep);
    _mm512_store_ps(weights.add, add);
    for (int i = 0; i < count; ++i) {
        if (!rows.masks[first + i]) continue;
        float* const sum = rows.state.sum + (first + i) * LANES;
        const __m512 kept = _mm512_mul_ps(_mm512_loadu_ps(sum), _mm512_set1_ps(weights.keep[i]));
        _mm512_storeu_ps(sum, _mm512_fmadd_ps(sums[i], _mm512_set1_ps(weights.add[i]), kept));
    }
}

// out = out * keep + acc * add for one row's 16 * N columns.
template <int N>
inline void fold_out(const __m512 (&acc)[N], float keep, float add, float* out) {
    for (int n = 0; n < N; ++n) {
        const __m512 kept = _mm512_mul_ps(_mm512_loadu_ps(out + 16 * n), _mm512_set1_ps(keep));
        _mm512_storeu_ps(out + 16 * n, _mm512_fmadd_ps(acc[n], _mm512_set1_ps(add), kept));
    }
}

inline void prefetch_row(const uint16_t* row, int head_dim) {
    for (int column = 0; column < head_dim; column += 32) _mm_prefetch(row + column, _MM_HINT_T0);
}

// ---- Few rows, straight from the pool ----

template <int M>
inline void direct_scores(const KeyTile& tile, const KeyTile* next, const uint16_t* q, const Shape& shape, float (*scores)[TILE]) {
    for (int key = 0; key < tile.count; key += 16) {
        __m512 acc[M];
        for (int m = 0; m < M; ++m) acc[m] = _mm512_setzero_ps();
        for (int column = 0; column < shape.padded; column += 32) {
            __m512i keys[16];
            load_transposed(tile, key, column, columns_mask(column, shape.head_dim), keys);
#pragma GCC unroll 16
            for (int i = 0; i < 16; ++i)
#pragma GCC unroll 8
                for (int m = 0; m < M; ++m) acc[m] = add_products(acc[m], splat_pair(q + m * shape.padded + column + 2 * i), keys[i]);
        }
        for (int m = 0; m < M; ++m) _mm512_store_ps(scores[m] + key, acc[m]);
        if (next)
            for (int i = 0; i < 16; ++i) prefetch_row(next->k + next->offsets[key + i], shape.head_dim);
    }
}

// Two registers (32 columns) by C chunks for each row.
template <int M, int C>
inline void direct_out(const KeyTile& tile, const KeyTile* next, const Rows& rows, const Weights& w, int column, const Shape& shape) {
    __m512 acc[M][2 * C];
    for (int m = 0; m < M; ++m)
        for (int c = 0; c < 2 * C; ++c) acc[m][c] = _mm512_setzero_ps();
    for (int pair = 0; 2 * pair < tile.count; ++pair) {
        __m512i v[2 * C];
#pragma GCC unroll 2
        for (int c = 0; c < C; ++c)
            load_interleaved(tile, pair, column + 32 * c, columns_mask(column + 32 * c, shape.head_dim), v[2 * c], v[2 * c + 1]);
#pragma GCC unroll 8
        for (int m = 0; m < M; ++m)
#pragma GCC unroll 4
            for (int c = 0; c < 2 * C; ++c) acc[m][c] = add_products(acc[m][c], splat_pair(w.p[m] + 2 * pair), v[c]);
        if (next) {
            prefetch_row(next->v + next->offsets[2 * pair] + column, 32 * C);
            prefetch_row(next->v + next->offsets[2 * pair + 1] + column, 32 * C);
        }
    }
    for (int m = 0; m < M; ++m)
        if (rows.masks[m]) fold_out(acc[m], w.keep[m], w.add[m], rows.state.out + m * shape.padded + column);
}

template <int M>
void fold_direct(const KeyTile& tile, const KeyTile* next, const Rows& rows, const Shape& shape) {
    alignas(64) float scores[M][TILE];
    direct_scores<M>(tile, next, rows.q, shape, scores);
    for (int key = (tile.count + 15) / 16 * 16; key < TILE; key += 16)
        for (int m = 0; m < M; ++m) _mm512_store_ps(scores[m] + key, _mm512_setzero_ps());
    Weights weights;
    weigh(scores, rows, 0, M, shape.scale, weights);
    int column = 0;
    if constexpr (M <= PACKED_ROWS)
        for (; column + 64 <= shape.padded; column += 64) direct_out<M, 2>(tile, next, rows, weights, column, shape);
    for (; column < shape.padded; column += 32) direct_out<M, 1>(tile, next, rows, weights, column, shape);
}

// ---- Many rows, over a packed tile ----

inline void pack(const KeyTile& tile, const Shape& shape, const Packed& packed) {
    for (int column = 0; column < shape.padded; column += 32) {
        const __mmask32 mask = columns_mask(column, shape.head_dim);
        for (int key = 0; key < TILE; key += 16) {
            __m512i keys[16];
            load_transposed(tile, key, column, mask, keys);
            for (int i = 0; i < 16; ++i) _mm512_store_si512(packed.k + (column / 2 + i) * TILE + key, keys[i]);
        }
        for (int pair = 0; pair < TILE / 2; ++pair) {
            __m512i low, high;
            load_interleaved(tile, pair, column, mask, low, high);
            _mm512_store_si512(packed.v + pair * shape.padded + column, low);
            _mm512_store_si512(packed.v + pair * shape.padded + column + 16, high);
        }
    }
}

template <int M>
inline void packed_scores(const float* k, const uint16_t* q, int padded, float (*scores)[TILE]) {
    __m512 acc[M][4];
    for (int m = 0; m < M; ++m)
        for (int i = 0; i < 4; ++i) acc[m][i] = _mm512_setzero_ps();
    for (int pair = 0; pair < padded / 2; ++pair) {
        __m512i keys[4];
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) keys[i] = load_pairs(k + pair * TILE + 16 * i);
#pragma GCC unroll 6
        for (int m = 0; m < M; ++m) {
            const __m512i query = splat_pair(q + m * padded + 2 * pair);
#pragma GCC unroll 4
            for (int i = 0; i < 4; ++i) acc[m][i] = add_products(acc[m][i], query, keys[i]);
        }
    }
    for (int m = 0; m < M; ++m)
        for (int i = 0; i < 4; ++i) _mm512_store_ps(scores[m] + 16 * i, acc[m][i]);
}

template <int M, int N>
inline void packed_out(const float* v, const Rows& rows, int first, int num_pairs, const Weights& w, int column, int padded) {
    __m512 acc[M][N];
    for (int m = 0; m < M; ++m)
        for (int n = 0; n < N; ++n) acc[m][n] = _mm512_setzero_ps();
    for (int pair = 0; pair < num_pairs; ++pair) {
        __m512i values[N];
#pragma GCC unroll 4
        for (int n = 0; n < N; ++n) values[n] = load_pairs(v + pair * padded + column + 16 * n);
#pragma GCC unroll 6
        for (int m = 0; m < M; ++m) {
            const __m512i p = splat_pair(w.p[m] + 2 * pair);
#pragma GCC unroll 4
            for (int n = 0; n < N; ++n) acc[m][n] = add_products(acc[m][n], p, values[n]);
        }
    }
    for (int m = 0; m < M; ++m)
        if (rows.masks[first + m]) fold_out(acc[m], w.keep[m], w.add[m], rows.state.out + (first + m) * padded + column);
}

template <int M>
void fold_packed(const Packed& packed, int num_keys, const Rows& rows, int first, const Shape& shape) {
    alignas(64) float scores[M][TILE];
    packed_scores<M>(packed.k, rows.q + first * shape.padded, shape.padded, scores);
    Weights weights;
    weigh(scores, rows, first, M, shape.scale, weights);
    const int num_pairs = (num_keys + 1) / 2;
    int column = 0;
    for (; column + 64 <= shape.padded; column += 64) packed_out<M, 4>(packed.v, rows, first, num_pairs, weights, column, shape.padded);
    if (column < shape.padded) packed_out<M, 2>(packed.v, rows, first, num_pairs, weights, column, shape.padded);
}

// ---- What attention.cpp calls ----

template <int M>
void fold_direct_upto(int count, const KeyTile& tile, const KeyTile* next, const Rows& rows, const Shape& shape) {
    if (count == M) return fold_direct<M>(tile, next, rows, shape);
    if constexpr (M > 1) fold_direct_upto<M - 1>(count, tile, next, rows, shape);
}

template <int M>
void fold_packed_upto(int count, const Packed& packed, int num_keys, const Rows& rows, int first, const Shape& shape) {
    if (count == M) return fold_packed<M>(packed, num_keys, rows, first, shape);
    if constexpr (M > 1) fold_packed_upto<M - 1>(count, packed, num_keys, rows, first, shape);
}

// Folds a tile into the states of rows that see it. `next`: the tile to prefetch, if any.
inline void fold_tile(const KeyTile& tile, const KeyTile* next, const Rows& rows, const Shape& shape, const Packed& packed) {
    if (rows.count <= DIRECT_ROWS) return fold_direct_upto<DIRECT_ROWS>(rows.count, tile, next, rows, shape);
    pack(tile, shape, packed);
    if (next) prefetch(*next, shape);
    for (int first = 0; first < rows.count; first += PACKED_ROWS) {
        const int count = rows.count - first < PACKED_ROWS ? rows.count - first : PACKED_ROWS;
        fold_packed_upto<PACKED_ROWS>(count, packed, tile.count, rows, first, shape);
    }
}

// Folds the state `tile` of one tile, which was started on its own, into `state`.
inline void fold_state(const State& state, const State& tile, int count, const Shape& shape) {
    for (int i = 0; i < count; ++i) {
        const __m512 old = _mm512_set1_ps(state.max[i]), own = _mm512_set1_ps(tile.max[i]), top = _mm512_max_ps(old, own);
        const __m512 keep = exp2_vector(_mm512_sub_ps(old, top)), add = exp2_vector(_mm512_sub_ps(own, top));
        state.max[i] = _mm512_cvtss_f32(top);
        const auto fold = [&](float* into, const float* from, int size) {
            for (int j = 0; j < size; j += 16) {
                const __m512 kept = _mm512_mul_ps(_mm512_loadu_ps(into + j), keep);
                _mm512_storeu_ps(into + j, _mm512_fmadd_ps(_mm512_loadu_ps(from + j), add, kept));
            }
        };
        fold(state.sum + i * LANES, tile.sum + i * LANES, LANES);
        fold(state.out + i * shape.padded, tile.out + i * shape.padded, shape.padded);
    }
}

// The output of row i, [padded_dim] floats in the order of the dimensions.
inline void finish_row(const State& state, int i, const Shape& shape, float* out) {
    const __m512 sum = _mm512_set1_ps(_mm512_reduce_add_ps(_mm512_loadu_ps(state.sum + i * LANES)));
    const __m512i first = _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
    const __m512i second = _mm512_setr_epi32(8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31);
    for (int column = 0; column < shape.padded; column += 32) {
        const float* row = state.out + i * shape.padded + column;
        const __m512 low = _mm512_div_ps(_mm512_loadu_ps(row), sum), high = _mm512_div_ps(_mm512_loadu_ps(row + 16), sum);
        _mm512_storeu_ps(out + column, _mm512_permutex2var_ps(low, first, high));
        _mm512_storeu_ps(out + column + 16, _mm512_permutex2var_ps(low, second, high));
    }
}

}  // namespace
}  // namespace KERNEL_LEVEL
