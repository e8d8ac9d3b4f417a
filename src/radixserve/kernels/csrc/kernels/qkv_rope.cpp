#include "qkv_rope.h"

#include <algorithm>

#include "simd.h"

namespace KERNEL_LEVEL {

// One head, rotated: dimension i is paired with i + head_dim / 2.
static void rotate(const float* x, const Norm& norm, const float* cos, const float* sin, bf16* y, int64_t head_dim) {
    const int64_t half = head_dim / 2;
    Floats inverse = splat(1.0f);
    if (norm.weight) {
        Floats squares = splat(0.0f);
        for (int64_t i = 0; i < head_dim; i += WIDTH) {
            Floats part = load(x + i, static_cast<int>(std::min<int64_t>(head_dim - i, WIDTH)));
            squares = multiply_add(part, part, squares);
        }
        inverse = splat(1.0f / std::sqrt(sum(squares) / static_cast<float>(head_dim) + norm.eps));
    }
    for (int64_t i = 0; i < half; i += WIDTH) {
        const int n = static_cast<int>(std::min<int64_t>(half - i, WIDTH));
        Floats a = load(x + i, n), b = load(x + half + i, n), c = load(cos + i, n), s = load(sin + i, n);
        if (norm.weight) {
            a = a * inverse * load(norm.weight + i, n);
            b = b * inverse * load(norm.weight + half + i, n);
        }
        store(y + i, subtract_product(a * c, b, s), n);
        store(y + half + i, multiply_add(a, s, b * c), n);
    }
}

void rope_and_store(const QkvRope& h, int64_t token) {
    const int64_t d = h.head_dim, kv = h.num_kv_heads * d;
    const float* x = h.qkv + token * (h.num_heads * d + 2 * kv);
    const float *cos = h.cos + h.positions[token] * (d / 2), *sin = h.sin + h.positions[token] * (d / 2);
    for (int64_t head = 0; head < h.num_heads; head++, x += d) rotate(x, h.q_norm, cos, sin, h.q + (token * h.num_heads + head) * d, d);
    bf16* k = h.k_pool + h.slots[token] * kv;
    for (int64_t head = 0; head < h.num_kv_heads; head++, x += d) rotate(x, h.k_norm, cos, sin, k + head * d, d);
    bf16* v = h.v_pool + h.slots[token] * kv;
    for (int64_t i = 0; i < kv; i += WIDTH) {
        const int n = static_cast<int>(std::min<int64_t>(kv - i, WIDTH));
        store(v + i, load(x + i, n), n);
    }
}

void widen(const bf16* x, float* y, int64_t size) {
    for (int64_t i = 0; i < size; i++) y[i] = to_float(x[i]);
}

}  // namespace KERNEL_LEVEL
