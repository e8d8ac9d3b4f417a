#include "int8.h"

#include <vector>

#include "tiles.h"

namespace KERNEL_LEVEL {

// Below this a row is taken for zeros: the inverse of its scale would leave float.
constexpr float SMALLEST = 1e-30f;
constexpr float LARGEST_BYTE = 127.0f;
constexpr uint8_t ZERO = 128;

#ifdef __AVX512VNNI__

INLINE Ints load_fours(const int8_t* p) { return reinterpret_cast<Ints>(_mm512_loadu_si512(p)); }
INLINE Ints splat_four(const uint8_t* p) {
    int four;
    std::memcpy(&four, p, sizeof four);
    return reinterpret_cast<Ints>(_mm512_set1_epi32(four));
}
// c + the four products of unsigned a with signed b, for each of the sixteen sums.
INLINE Ints add_products_of_bytes(Ints c, Ints a, Ints b) {
    return reinterpret_cast<Ints>(
        _mm512_dpbusd_epi32(reinterpret_cast<__m512i>(c), reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)));
}
INLINE void store_bytes(uint8_t* p, Floats x, int n) {
    _mm_mask_storeu_epi8(p, first(n), _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(x + splat(ZERO))));
}
#else

INLINE Ints load_fours(const int8_t* p) {
    Ints x;
    std::memcpy(&x, p, sizeof x);
    return x;
}
typedef uint32_t Bits __attribute__((vector_size(4 * WIDTH)));
struct Four {
    int32_t at[4];
};
INLINE Four splat_four(const uint8_t* p) { return {{p[0], p[1], p[2], p[3]}}; }
INLINE Ints add_products_of_bytes(Ints c, Four a, Ints b) {
    for (int i = 0; i < 4; i++) c += a.at[i] * (reinterpret_cast<Ints>(reinterpret_cast<Bits>(b) << (24 - 8 * i)) >> 24);
    return c;
}
INLINE void store_bytes(uint8_t* p, Floats x, int n) {
    for (int i = 0; i < n && i < WIDTH; i++) p[i] = static_cast<uint8_t>(x[i] + ZERO);
}

#endif

INLINE float largest(Floats x) {
    float most = x[0];
    for (int i = 1; i < WIDTH; i++) most = x[i] > most ? x[i] : most;
    return most;
}

INLINE Floats difference(Ints sums, const int32_t* offsets) {
    Ints taken;
    std::memcpy(&taken, offsets, sizeof taken);
    return __builtin_convertvector(sums - taken, Floats);
}

template <>
struct Operands<Int8Gemm> {
    static constexpr int GROUP = 4;
    using Sums = Ints;
    using Groups = Ints;
    INLINE Groups load(const int8_t* w) { return load_fours(w); }
    INLINE auto splat(const uint8_t* x) { return splat_four(x); }
    template <class Four>
    INLINE Sums add(Sums sums, Four a, Groups b) {
        return add_products_of_bytes(sums, a, b);
    }
    INLINE Floats result(const Int8Gemm& g, Sums sums, int64_t row, int64_t column) {
        return difference(sums, g.offsets + column) * (KERNEL_LEVEL::splat(g.x_scales[row]) * KERNEL_LEVEL::load(g.scales + column));
    }
};

void gemm_int8(const Int8Gemm& g, int thread, int threads) { product_in_tiles(g, thread, threads); }

INLINE Floats load_some(const bf16* p, int n) {
    if (n >= WIDTH) return load(p);
    bf16 padded[WIDTH] = {};
    std::memcpy(padded, p, n * sizeof *p);
    return load(padded);
}

void quantize(const bf16* x, uint8_t* y, float* scale, int64_t size) {
    Floats most = splat(0.0f), faults = splat(0.0f);  // x * 0 is NaN for what is not finite, and a maximum may lose a NaN
    for (int64_t i = 0; i < size; i += WIDTH) {
        const Floats part = load_some(x + i, static_cast<int>(std::min<int64_t>(size - i, WIDTH)));
        most = larger(most, larger(part, splat(0.0f) - part));
        faults = faults + part * splat(0.0f);
    }
    const float magnitude = largest(most);
    const bool zeros = magnitude < SMALLEST;
    *scale = (zeros ? 0.0f : magnitude / LARGEST_BYTE) + sum(faults);
    const Floats inverse = splat(zeros ? 0.0f : LARGEST_BYTE / magnitude);
    const int64_t width = int8_width(size);
    for (int64_t i = 0; i < width; i += WIDTH) {
        const Floats part = load_some(x + i, static_cast<int>(std::min<int64_t>(size - i, WIDTH)));
        const Floats whole = rounded(smaller(larger(part * inverse, splat(-LARGEST_BYTE)), splat(LARGEST_BYTE)));
        store_bytes(y + i, whole, static_cast<int>(std::min<int64_t>(width - i, WIDTH)));
    }
}

void pack_int8(const bf16* weight, const Int8Weights& out, int64_t n, int64_t k) {
    const int64_t width = int8_width(k);
    in_parallel(num_threads(), [&](int thread, int threads) {
        const Range panels = share((n + PANEL - 1) / PANEL, thread, threads);
        std::vector<uint8_t> bytes(width);
        for (int64_t i = panels.begin * PANEL; i < panels.end * PANEL; i++) {
            std::fill(bytes.begin(), bytes.end(), ZERO);
            out.scales[i] = 0.0f;
            if (i < n) quantize(weight + i * k, bytes.data(), out.scales + i, k);
            int8_t* packed = out.packed + i / PANEL * PANEL * width + i % PANEL * 4;
            int32_t total = 0;
            for (int64_t j = 0; j < width; j++) {
                const int value = bytes[j] - ZERO;
                packed[j / 4 * 4 * PANEL + j % 4] = static_cast<int8_t>(value);
                total += value;
            }
            out.offsets[i] = ZERO * total;
        }
    });
}

}  // namespace KERNEL_LEVEL
