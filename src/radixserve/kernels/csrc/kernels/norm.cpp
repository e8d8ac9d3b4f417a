#include "norm.h"

#include <algorithm>

#include "simd.h"

namespace KERNEL_LEVEL {

void rms_norm(const Norm& norm, const float* x, bf16* y, int64_t size) {
    Floats squares = splat(0.0f);
    for (int64_t i = 0; i < size; i += WIDTH) {
        Floats part = load(x + i, static_cast<int>(std::min<int64_t>(size - i, WIDTH)));
        squares = multiply_add(part, part, squares);
    }
    const Floats inverse = splat(1.0f / std::sqrt(sum(squares) / static_cast<float>(size) + norm.eps));
    for (int64_t i = 0; i < size; i += WIDTH) {
        int n = static_cast<int>(std::min<int64_t>(size - i, WIDTH));
        store(y + i, load(x + i, n) * inverse * load(norm.weight + i, n), n);
    }
}

}  // namespace KERNEL_LEVEL
