// Sixteen floats at a time, by intrinsics where there is AVX512 with BF16 and by the compiler's vectors elsewhere. Every function
// rounds in one fixed order, so a result depends on the operands and the level alone.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
#ifdef __AVX512BF16__
#include <immintrin.h>
#endif

using bf16 = uint16_t;  // the upper half of a float

namespace KERNEL_LEVEL {

#define INLINE static inline __attribute__((always_inline))
constexpr int WIDTH = 16;

// Not __m512i: GCC 12 keeps arrays of that in memory.
typedef int32_t Ints __attribute__((vector_size(64)));

#ifdef __AVX512BF16__

using Floats = __m512;
using Pairs = __m512i;  // sixteen pairs of bf16

INLINE __mmask16 first(int n) { return n >= WIDTH ? 0xffff : static_cast<__mmask16>((1u << n) - 1); }
INLINE Floats splat(float x) { return _mm512_set1_ps(x); }
INLINE Floats load(const float* p) { return _mm512_loadu_ps(p); }
INLINE Floats load(const float* p, int n) { return _mm512_maskz_loadu_ps(first(n), p); }
INLINE void store(float* p, Floats x) { _mm512_storeu_ps(p, x); }
INLINE void store(float* p, Floats x, int n) { _mm512_mask_storeu_ps(p, first(n), x); }
INLINE Floats load(const bf16* p) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))), 16));
}
INLINE void store(bf16* p, Floats x, int n = WIDTH) {
    _mm256_mask_storeu_epi16(p, first(n), reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(x)));
}
INLINE Floats multiply_add(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
INLINE Floats subtract_product(Floats c, Floats a, Floats b) { return _mm512_fnmadd_ps(a, b, c); }
INLINE Floats larger(Floats a, Floats b) { return _mm512_max_ps(a, b); }
INLINE Floats smaller(Floats a, Floats b) { return _mm512_min_ps(a, b); }
INLINE Floats rounded(Floats x) { return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
// x * 2^n for whole n.
INLINE Floats scaled(Floats x, Floats n) { return _mm512_scalef_ps(x, n); }
INLINE float sum(Floats x) { return _mm512_reduce_add_ps(x); }
INLINE bool any_larger(Floats a, Floats b) { return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ) != 0; }

INLINE Pairs load_pairs(const bf16* p) { return _mm512_loadu_si512(p); }
INLINE Pairs splat_pair(const bf16* p) {
    int pair;
    std::memcpy(&pair, p, sizeof pair);
    return _mm512_set1_epi32(pair);
}
// c + a0 * b0 + a1 * b1, for each of the sixteen pairs.
INLINE Floats add_products(Floats c, Pairs a, Pairs b) {
    return _mm512_dpbf16_ps(c, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
}
INLINE void prefetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0); }

#else

typedef float Floats __attribute__((vector_size(64)));
typedef uint32_t Pairs __attribute__((vector_size(64)));

INLINE Floats splat(float x) { return x - Floats{}; }
INLINE Floats load(const float* p) {
    Floats x;
    std::memcpy(&x, p, sizeof x);
    return x;
}
INLINE Floats load(const float* p, int n) {
    Floats x{};
    std::memcpy(&x, p, (n < WIDTH ? n : WIDTH) * sizeof(float));
    return x;
}
INLINE void store(float* p, Floats x) { std::memcpy(p, &x, sizeof x); }
INLINE void store(float* p, Floats x, int n) { std::memcpy(p, &x, (n < WIDTH ? n : WIDTH) * sizeof(float)); }
INLINE Floats load(const bf16* p) {
    Pairs x;
    for (int i = 0; i < WIDTH; i++) x[i] = static_cast<uint32_t>(p[i]) << 16;
    return reinterpret_cast<Floats>(x);
}
INLINE void store(bf16* p, Floats x, int n = WIDTH) {
    Pairs bits = reinterpret_cast<Pairs>(x);
    Pairs even = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;  // to nearest, ties to even
    for (int i = 0; i < n && i < WIDTH; i++) p[i] = x[i] == x[i] ? even[i] : (bits[i] >> 16) | 0x40;
}
INLINE Floats multiply_add(Floats a, Floats b, Floats c) { return a * b + c; }
INLINE Floats subtract_product(Floats c, Floats a, Floats b) { return c - a * b; }
INLINE Floats larger(Floats a, Floats b) { return a > b ? a : b; }
INLINE Floats smaller(Floats a, Floats b) { return a < b ? a : b; }
INLINE Floats rounded(Floats x) {
    for (int i = 0; i < WIDTH; i++) x[i] = std::nearbyint(x[i]);
    return x;
}
INLINE Floats scaled(Floats x, Floats n) {
    for (int i = 0; i < WIDTH; i++) x[i] = std::ldexp(x[i], static_cast<int>(n[i]));
    return x;
}
INLINE float sum(Floats x) {
    for (int half = WIDTH / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++) x[i] += x[i + half];
    return x[0];
}
INLINE bool any_larger(Floats a, Floats b) {
    const Ints larger = a > b;
    int32_t any = 0;
    for (int i = 0; i < WIDTH; i++) any |= larger[i];
    return any != 0;
}

INLINE Pairs load_pairs(const bf16* p) {
    Pairs x;
    std::memcpy(&x, p, sizeof x);
    return x;
}
INLINE Pairs splat_pair(const bf16* p) {
    uint32_t pair;
    std::memcpy(&pair, p, sizeof pair);
    return pair - Pairs{};
}
INLINE Floats add_products(Floats c, Pairs a, Pairs b) {
    c = c + reinterpret_cast<Floats>(a & 0xffff0000u) * reinterpret_cast<Floats>(b & 0xffff0000u);
    return c + reinterpret_cast<Floats>(a << 16) * reinterpret_cast<Floats>(b << 16);
}
INLINE void prefetch(const void* p) { __builtin_prefetch(p); }

#endif

// e^x within two units in the last place; 0 below -87.3, infinity above 88.7. The polynomial of Cephes' expf.
INLINE Floats exponential(Floats x) {
    x = smaller(larger(x, splat(-104.0f)), splat(104.0f));
    Floats n = rounded(x * splat(1.44269504f));
    Floats r = subtract_product(subtract_product(x, n, splat(0.693359375f)), n, splat(-2.12194440e-4f));
    Floats p = splat(1.9875691500e-4f);
    p = multiply_add(p, r, splat(1.3981999507e-3f));
    p = multiply_add(p, r, splat(8.3334519073e-3f));
    p = multiply_add(p, r, splat(4.1665795894e-2f));
    p = multiply_add(p, r, splat(1.6666665459e-1f));
    p = multiply_add(p, r, splat(5.0000001201e-1f));
    return scaled(multiply_add(p, r * r, r + splat(1.0f)), n);
}

}  // namespace KERNEL_LEVEL
