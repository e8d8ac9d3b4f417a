// WIDTH floats at a time: by intrinsics where there is AVX512, by the compiler's vectors elsewhere. Every function rounds in one fixed
// order, so a result depends on the operands and the level alone. Products and sums are fused where the CPU has FMA.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
#ifdef __AVX2__
#include <immintrin.h>
#endif

#include "bf16.h"

namespace KERNEL_LEVEL {

#define INLINE static inline __attribute__((always_inline))
// A vector register. Wider vectors of the compiler's live in memory.
#ifdef __AVX512F__
constexpr int WIDTH = 16;
#elif defined(__AVX2__)
constexpr int WIDTH = 8;
#else
constexpr int WIDTH = 4;
#endif

// Not __m512i: GCC 12 keeps arrays of that in memory.
typedef int32_t Ints __attribute__((vector_size(4 * WIDTH)));

#ifdef __AVX512F__

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
INLINE __m256i rounded_to_bf16(Floats x) {
#ifdef __AVX512BF16__
    return reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(x));
#else
    const __m512i bits = _mm512_castps_si512(x), odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i even = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));  // to nearest, ties to even
    const __mmask16 numbers = _mm512_cmp_ps_mask(x, x, _CMP_ORD_Q);
    return _mm512_cvtepi32_epi16(
        _mm512_srli_epi32(_mm512_mask_mov_epi32(_mm512_or_si512(bits, _mm512_set1_epi32(0x400000)), numbers, even), 16));
#endif
}
INLINE void store(bf16* p, Floats x, int n = WIDTH) { _mm256_mask_storeu_epi16(p, first(n), rounded_to_bf16(x)); }
INLINE Floats multiply_add(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
INLINE Floats subtract_product(Floats c, Floats a, Floats b) { return _mm512_fnmadd_ps(a, b, c); }
INLINE Floats larger(Floats a, Floats b) { return _mm512_max_ps(a, b); }
INLINE Floats smaller(Floats a, Floats b) { return _mm512_min_ps(a, b); }
INLINE Floats rounded(Floats x) { return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
// x * 2^n for whole n.
INLINE Floats scaled(Floats x, Floats n) { return _mm512_scalef_ps(x, n); }
INLINE float sum(Floats x) { return _mm512_reduce_add_ps(x); }
INLINE bool any_larger(Floats a, Floats b) { return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ) != 0; }

INLINE Pairs load_pairs(const void* p) { return _mm512_loadu_si512(p); }
INLINE Pairs splat_pair(const bf16* p) {
    int pair;
    std::memcpy(&pair, p, sizeof pair);
    return _mm512_set1_epi32(pair);
}
// c + a0 * b0 + a1 * b1, for each of the sixteen pairs.
INLINE Floats add_products(Floats c, Pairs a, Pairs b) {
#ifdef __AVX512BF16__
    return _mm512_dpbf16_ps(c, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
#else
    const auto upper = [](Pairs pairs) { return _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32(0xffff0000))); };
    const auto lower = [](Pairs pairs) { return _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16)); };
    return multiply_add(lower(a), lower(b), multiply_add(upper(a), upper(b), c));
#endif
}
INLINE void prefetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0); }

#else

typedef float Floats __attribute__((vector_size(4 * WIDTH)));
typedef uint32_t Pairs __attribute__((vector_size(4 * WIDTH)));
typedef uint16_t Shorts __attribute__((vector_size(2 * WIDTH)));

INLINE Floats splat(float x) { return x - Floats{}; }
INLINE Floats load(const float* p) {
    Floats x;
    std::memcpy(&x, p, sizeof x);
    return x;
}
INLINE Floats load(const float* p, int n) {
    if (n >= WIDTH) return load(p);
    Floats x{};
    std::memcpy(&x, p, n * sizeof(float));
    return x;
}
INLINE void store(float* p, Floats x) { std::memcpy(p, &x, sizeof x); }
INLINE void store(float* p, Floats x, int n) {
    if (n >= WIDTH) return store(p, x);
    std::memcpy(p, &x, n * sizeof(float));
}
INLINE Floats load(const bf16* p) {
    Shorts x;
    std::memcpy(&x, p, sizeof x);
    return reinterpret_cast<Floats>(__builtin_convertvector(x, Pairs) << 16);
}
INLINE void store(bf16* p, Floats x, int n = WIDTH) {
    const Pairs bits = reinterpret_cast<Pairs>(x);
    const Pairs even = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;  // to nearest, ties to even
    const Shorts y = __builtin_convertvector(x == x ? even : (bits >> 16) | 0x40, Shorts);
    if (n >= WIDTH)
        std::memcpy(p, &y, sizeof y);
    else
        std::memcpy(p, &y, n * sizeof(bf16));
}
#ifdef __FMA__
INLINE Floats multiply_add(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }
INLINE Floats subtract_product(Floats c, Floats a, Floats b) { return _mm256_fnmadd_ps(a, b, c); }
#else
INLINE Floats multiply_add(Floats a, Floats b, Floats c) { return a * b + c; }
INLINE Floats subtract_product(Floats c, Floats a, Floats b) { return c - a * b; }
#endif
INLINE Floats larger(Floats a, Floats b) { return a > b ? a : b; }
INLINE Floats smaller(Floats a, Floats b) { return a < b ? a : b; }
// For magnitudes below 2^22: adding 1.5 * 2^23 leaves no room for a fraction.
INLINE Floats rounded(Floats x) { return x + splat(12582912.0f) - splat(12582912.0f); }
// x * 2^n for whole n of -252 .. 252, in two factors, as 2^-200 is no float.
INLINE Floats scaled(Floats x, Floats n) {
    const Ints exponent = __builtin_convertvector(n, Ints), half = exponent >> 1;
    return x * reinterpret_cast<Floats>((half + 127) << 23) * reinterpret_cast<Floats>((exponent - half + 127) << 23);
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

INLINE Pairs load_pairs(const void* p) {
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
    c = multiply_add(reinterpret_cast<Floats>(a & 0xffff0000u), reinterpret_cast<Floats>(b & 0xffff0000u), c);
    return multiply_add(reinterpret_cast<Floats>(a << 16), reinterpret_cast<Floats>(b << 16), c);
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
