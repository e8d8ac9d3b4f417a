#include "gemm.h"

#include "tiles.h"

namespace KERNEL_LEVEL {

template <>
struct Operands<Gemm> {
    static constexpr int GROUP = 2;
    using Sums = Floats;
    using Groups = Pairs;
    INLINE Groups load(const bf16* w) { return load_pairs(w); }
    INLINE Groups splat(const bf16* x) { return splat_pair(x); }
    INLINE Sums add(Sums sums, Groups a, Groups b) { return add_products(sums, a, b); }
    INLINE Floats result(const Gemm&, Sums sums, int64_t, int64_t) { return sums; }
};

void gemm(const Gemm& g, int thread, int threads) { product_in_tiles(g, thread, threads); }

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
