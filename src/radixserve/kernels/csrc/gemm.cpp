#include "gemm.h"

#include <algorithm>

#include "simd.h"
#include "threads.h"

namespace KERNEL_LEVEL {

// The sums of ROWS rows and PANELS panels stay in registers: 24 of the 32 that AVX512 has.
constexpr int MAX_ROWS = 12;
constexpr int MAX_ROWS_OF_TWO_PANELS = 6;
// Rows whose inputs, in bf16, leave room for a panel in the second-level cache.
constexpr int64_t BLOCK_BYTES = 512 << 10;
// How far ahead of its use a panel is asked for. The next panel follows on this one.
constexpr int64_t PREFETCH = 2048 / sizeof(bf16);

template <int ROWS, int VECTORS>
INLINE void finish(const Gemm& g, Floats (&sums)[ROWS][VECTORS], int64_t row, int64_t column) {
    if (g.bias)
        for (int i = 0; i < ROWS; i++)
            for (int j = 0; j < VECTORS; j++) sums[i][j] = sums[i][j] + load(g.bias + column + j * WIDTH);
    if (g.epilogue == Epilogue::silu_mul) {
        for (int i = 0; i < ROWS; i++)
            for (int j = 0; j < VECTORS; j += 2) {
                Floats gate = sums[i][j], negative = splat(0.0f) - gate;
                Floats activated = gate / (splat(1.0f) + exponential(negative)) * sums[i][j + 1];
                store(static_cast<bf16*>(g.y) + (row + i) * (g.n / 2) + (column + j * WIDTH) / 2, activated);
            }
        return;
    }
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < VECTORS; j++) {
            int64_t left = g.n - column - j * WIDTH;
            if (left <= 0) break;
            int n = static_cast<int>(std::min<int64_t>(left, WIDTH));
            float* y = static_cast<float*>(g.y) + (row + i) * g.n + column + j * WIDTH;
            store(y, g.epilogue == Epilogue::add ? load(y, n) + sums[i][j] : sums[i][j], n);
        }
}

template <int ROWS, int PANELS>
static void tile(const Gemm& g, int64_t row, int64_t panel) {
    constexpr int VECTORS = 2 * PANELS;
    const bf16* x = g.x + row * g.k;
    const bf16* w = g.packed + panel * PANEL * g.k;
    const int64_t next = PANEL * g.k;
    Floats sums[ROWS][VECTORS];
#pragma GCC unroll 12
    for (int i = 0; i < ROWS; i++)
#pragma GCC unroll 4
        for (int j = 0; j < VECTORS; j++) sums[i][j] = splat(0.0f);
    for (int64_t k = 0; k < g.k; k += 2, w += 2 * PANEL) {
        Pairs b[VECTORS];
#pragma GCC unroll 4
        for (int j = 0; j < VECTORS; j++) {
            const bf16* source = w + (j / 2) * next + (j % 2) * PANEL;
            prefetch(source + PREFETCH);
            b[j] = load_pairs(source);
        }
#pragma GCC unroll 12
        for (int i = 0; i < ROWS; i++) {
            Pairs a = splat_pair(x + i * g.k + k);
#pragma GCC unroll 4
            for (int j = 0; j < VECTORS; j++) sums[i][j] = add_products(sums[i][j], a, b[j]);
        }
    }
    finish<ROWS, VECTORS>(g, sums, row, panel * PANEL);
}

template <int ROWS, int PANELS>
static void tile_of(const Gemm& g, int rows, int64_t row, int64_t panel) {
    if constexpr (ROWS > 0) {
        if (rows == ROWS)
            tile<ROWS, PANELS>(g, row, panel);
        else
            tile_of<ROWS - 1, PANELS>(g, rows, row, panel);
    }
}

// Rows begin .. end - 1 of the outputs of the panels, in tiles of nearly equal height.
static void rows_of_panels(const Gemm& g, Range rows, Range panels) {
    const int64_t count = rows.end - rows.begin, tiles = (count + MAX_ROWS - 1) / MAX_ROWS;
    for (int64_t panel = panels.begin; panel < panels.end;) {
        const bool two = count <= MAX_ROWS_OF_TWO_PANELS && panel + 2 <= panels.end;
        for (int64_t i = 0; i < tiles; i++) {
            Range part = share(count, static_cast<int>(i), static_cast<int>(tiles));
            int height = static_cast<int>(part.end - part.begin);
            if (two)
                tile_of<MAX_ROWS_OF_TWO_PANELS, 2>(g, height, rows.begin + part.begin, panel);
            else
                tile_of<MAX_ROWS, 1>(g, height, rows.begin + part.begin, panel);
        }
        panel += two ? 2 : 1;
    }
}

// The panels that fall to `thread`.
void gemm(const Gemm& g, int thread, int threads) {
    const Range panels = share((g.n + PANEL - 1) / PANEL, thread, threads);
    const int64_t fitting = std::max<int64_t>(BLOCK_BYTES / (g.k * static_cast<int64_t>(sizeof(bf16))) / MAX_ROWS * MAX_ROWS, MAX_ROWS);
    for (int64_t row = 0; row < g.m; row += fitting) rows_of_panels(g, {row, std::min(row + fitting, g.m)}, panels);
}

void pack(const bf16* weight, bf16* packed, int64_t n, int64_t k) {
    in_parallel(num_threads(), [&](int thread, int threads) {
        const Range panels = share((n + PANEL - 1) / PANEL, thread, threads);
        for (int64_t panel = panels.begin; panel < panels.end; panel++) {
            bf16* out = packed + panel * PANEL * k;
            for (int64_t j = 0; j < k; j += 2)
                for (int64_t i = panel * PANEL; i < (panel + 1) * PANEL; i++) {
                    *out++ = i < n ? weight[i * k + j] : 0;
                    *out++ = i < n ? weight[i * k + j + 1] : 0;
                }
        }
    });
}

}  // namespace KERNEL_LEVEL
