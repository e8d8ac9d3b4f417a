// A product in tiles: the walk over rows and panels, and the end of a tile, which are the same for every kind of weights.
//
// A kind `Product` has the fields x [m, k], packed, bias, y, m, n, k and epilogue of `Gemm`, and the types and functions of `Operands`
// for its elements: how a group of inputs is loaded, multiplied and added, and how the sums become floats.
#pragma once
#include <algorithm>

#include "gemm.h"
#include "simd.h"
#include "threads.h"

namespace KERNEL_LEVEL {

constexpr int VECTORS_OF_PANEL = PANEL / WIDTH;
// The sums of ROWS rows and PANELS panels stay in registers: 24 of the 32 that AVX512 has, 8 or 12 of 16 elsewhere.
constexpr int MAX_ROWS = WIDTH == 16 ? 12 : WIDTH == 8 ? 3 : 1;
constexpr int MAX_ROWS_OF_TWO_PANELS = WIDTH == 16 ? 6 : 0;
// Rows whose inputs leave room for a panel in the second-level cache.
constexpr int64_t BLOCK_BYTES = 512 << 10;
// How far ahead of its use a panel is asked for. The next panel follows on this one.
constexpr int64_t PREFETCH_BYTES = 2048;

template <class Product>
struct Operands;

template <class Product, int ROWS, int VECTORS>
INLINE void finish(const Product& g, Floats (&sums)[ROWS][VECTORS], int64_t row, int64_t column) {
    if (g.bias)
        for (int i = 0; i < ROWS; i++)
            for (int j = 0; j < VECTORS; j++) sums[i][j] = sums[i][j] + load(g.bias + column + j * WIDTH);
    if (g.addend.values)
        for (int i = 0; i < ROWS; i++) {
            const int64_t place = g.addend.places[row + i];
            if (place < 0) continue;
            for (int j = 0; j < VECTORS; j++) {
                const int64_t left = g.n - column - j * WIDTH;
                if (left <= 0) break;
                sums[i][j] =
                    sums[i][j] + load(g.addend.values + place * g.n + column + j * WIDTH, static_cast<int>(std::min<int64_t>(left, WIDTH)));
            }
        }
    if (g.epilogue == Epilogue::silu_mul) {
        for (int i = 0; i < ROWS; i++)
            for (int j = 0; j < VECTORS / 2; j++) {
                constexpr int HALF = VECTORS_OF_PANEL / 2;  // of a panel: gates, then ups
                const int at = j / HALF * VECTORS_OF_PANEL + j % HALF;
                Floats gate = sums[i][at], negative = splat(0.0f) - gate;
                Floats activated = gate / (splat(1.0f) + exponential(negative)) * sums[i][at + HALF];
                store(static_cast<bf16*>(g.y) + (row + i) * (g.n / 2) + column / 2 + j * WIDTH, activated);
            }
        return;
    }
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < VECTORS; j++) {
            int64_t left = g.n - column - j * WIDTH;
            if (left <= 0) break;
            int n = static_cast<int>(std::min<int64_t>(left, WIDTH));
            if (g.epilogue == Epilogue::round) {
                store(static_cast<bf16*>(g.y) + (row + i) * g.n + column + j * WIDTH, sums[i][j], n);
                continue;
            }
            float* y = static_cast<float*>(g.y) + (row + i) * g.n + column + j * WIDTH;
            store(y, g.epilogue == Epilogue::add ? load(y, n) + sums[i][j] : sums[i][j], n);
        }
}

template <class Product, int ROWS, int PANELS>
static void tile(const Product& g, int64_t row, int64_t panel) {
    using Of = Operands<Product>;
    constexpr int VECTORS = VECTORS_OF_PANEL * PANELS, GROUP = Of::GROUP;
    const auto* x = g.x + row * g.k;
    const auto* w = g.packed + panel * PANEL * g.k;
    const int64_t next = PANEL * g.k;
    typename Of::Sums sums[ROWS][VECTORS];
#pragma GCC unroll 12
    for (int i = 0; i < ROWS; i++)
#pragma GCC unroll 8
        for (int j = 0; j < VECTORS; j++) sums[i][j] = typename Of::Sums{};
    for (int64_t k = 0; k < g.k; k += GROUP, w += GROUP * PANEL) {
        typename Of::Groups b[VECTORS];
#pragma GCC unroll 8
        for (int j = 0; j < VECTORS; j++) {
            const auto* source = w + (j / VECTORS_OF_PANEL) * next + (j % VECTORS_OF_PANEL) * GROUP * WIDTH;
            prefetch(reinterpret_cast<const char*>(source) + PREFETCH_BYTES);
            b[j] = Of::load(source);
        }
#pragma GCC unroll 12
        for (int i = 0; i < ROWS; i++) {
            const auto a = Of::splat(x + i * g.k + k);
#pragma GCC unroll 8
            for (int j = 0; j < VECTORS; j++) sums[i][j] = Of::add(sums[i][j], a, b[j]);
        }
    }
    Floats results[ROWS][VECTORS];
#pragma GCC unroll 12
    for (int i = 0; i < ROWS; i++)
#pragma GCC unroll 8
        for (int j = 0; j < VECTORS; j++) results[i][j] = Of::result(g, sums[i][j], row + i, panel * PANEL + j * WIDTH);
    finish(g, results, row, panel * PANEL);
}

template <class Product, int ROWS, int PANELS>
static void tile_of(const Product& g, int rows, int64_t row, int64_t panel) {
    if constexpr (ROWS > 0) {
        if (rows == ROWS)
            tile<Product, ROWS, PANELS>(g, row, panel);
        else
            tile_of<Product, ROWS - 1, PANELS>(g, rows, row, panel);
    }
}

// Rows begin .. end - 1 of the outputs of the panels, in tiles of nearly equal height.
template <class Product>
static void rows_of_panels(const Product& g, Range rows, Range panels) {
    const int64_t count = rows.end - rows.begin, tiles = (count + MAX_ROWS - 1) / MAX_ROWS;
    for (int64_t panel = panels.begin; panel < panels.end;) {
        const bool two = count <= MAX_ROWS_OF_TWO_PANELS && panel + 2 <= panels.end;
        for (int64_t i = 0; i < tiles; i++) {
            Range part = share(count, static_cast<int>(i), static_cast<int>(tiles));
            int height = static_cast<int>(part.end - part.begin);
            if (two)
                tile_of<Product, MAX_ROWS_OF_TWO_PANELS, 2>(g, height, rows.begin + part.begin, panel);
            else
                tile_of<Product, MAX_ROWS, 1>(g, height, rows.begin + part.begin, panel);
        }
        panel += two ? 2 : 1;
    }
}

// The panels that fall to `thread`.
template <class Product>
static void product_in_tiles(const Product& g, int thread, int threads) {
    const Range panels = share((g.n + PANEL - 1) / PANEL, thread, threads);
    const int64_t row_bytes = g.k * static_cast<int64_t>(sizeof *g.x);
    const int64_t fitting = std::max<int64_t>(BLOCK_BYTES / row_bytes / MAX_ROWS * MAX_ROWS, MAX_ROWS);
    for (int64_t row = 0; row < g.m; row += fitting) rows_of_panels(g, {row, std::min(row + fitting, g.m)}, panels);
}

}  // namespace KERNEL_LEVEL
