#include "lora_gemm.h"

#include <algorithm>

#include "simd.h"

namespace KERNEL_LEVEL {

constexpr int VECTORS_OF_GROUP = LORA_GROUP / WIDTH;
constexpr int MAX_LORA_ROWS = WIDTH == 16 ? 12 : WIDTH == 8 ? 4 : 1;

template <int ROWS>
static void lora_tile(const LoraProduct& p, int64_t index, int64_t row) {
    const LoraGroup& group = p.groups[index];
    const bf16 *x = p.x + row * p.k + group.first, *w = group.packed;
    Floats sums[ROWS][VECTORS_OF_GROUP];
#pragma GCC unroll 12
    for (int i = 0; i < ROWS; i++)
#pragma GCC unroll 4
        for (int j = 0; j < VECTORS_OF_GROUP; j++) sums[i][j] = Floats{};
    for (int64_t k = 0; k < group.inputs; k += 2, w += 2 * LORA_GROUP) {
        Pairs b[VECTORS_OF_GROUP];
#pragma GCC unroll 4
        for (int j = 0; j < VECTORS_OF_GROUP; j++) b[j] = load_pairs(w + j * 2 * WIDTH);
#pragma GCC unroll 12
        for (int i = 0; i < ROWS; i++) {
            const Pairs a = splat_pair(x + i * p.k + k);
#pragma GCC unroll 4
            for (int j = 0; j < VECTORS_OF_GROUP; j++) sums[i][j] = add_products(sums[i][j], a, b[j]);
        }
    }
    const int64_t column = index * LORA_GROUP;
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < VECTORS_OF_GROUP; j++) {
            const int64_t at = (row + i) * p.n + column + j * WIDTH, left = p.n - column - j * WIDTH;
            if (left <= 0) break;
            const int n = static_cast<int>(std::min<int64_t>(left, WIDTH));
            if (p.rounded)
                store(static_cast<bf16*>(p.y) + at, sums[i][j], n);
            else
                store(static_cast<float*>(p.y) + at, sums[i][j], n);
        }
}

template <int ROWS>
static void lora_tile_of(const LoraProduct& p, int rows, int64_t group, int64_t row) {
    if constexpr (ROWS > 0) {
        if (rows == ROWS)
            lora_tile<ROWS>(p, group, row);
        else
            lora_tile_of<ROWS - 1>(p, rows, group, row);
    }
}

void lora_product(const LoraProduct& p, int64_t group, Range rows) {
    for (int64_t row = rows.begin; row < rows.end; row += MAX_LORA_ROWS)
        lora_tile_of<MAX_LORA_ROWS>(p, static_cast<int>(std::min<int64_t>(rows.end - row, MAX_LORA_ROWS)), group, row);
}

}  // namespace KERNEL_LEVEL
