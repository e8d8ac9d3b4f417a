#include "argmax_topk.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "simd.h"

namespace KERNEL_LEVEL {

constexpr float INFINITE = std::numeric_limits<float>::infinity();

int64_t argmax(const float* x, int64_t n) {
    Floats most = splat(-INFINITE);
    Ints found{}, faults{}, here;
    for (int i = 0; i < WIDTH; i++) here[i] = i;
    int64_t i = 0;
    for (; i + WIDTH <= n; i += WIDTH, here += WIDTH) {
        const Floats part = load(x + i);
        const auto more = part > most;
        most = more ? part : most;
        found = more ? here : found;
        faults |= part != part;
    }
    int64_t best = -1;
    float value = -INFINITE;
    bool fault = false;
    for (int lane = 0; lane < WIDTH; lane++) {
        fault |= faults[lane] != 0;
        if (most[lane] > value || (most[lane] == value && found[lane] < best)) value = most[lane], best = found[lane];
    }
    for (; i < n; i++) {
        fault |= x[i] != x[i];
        if (x[i] > value) value = x[i], best = i;
    }
    return fault || std::isinf(value) ? -1 : best;
}

// Orders floats as integers, so that a NaN has its place too; the two zeros are equal.
static int32_t key(float x) {
    x += 0.0f;
    int32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    return bits < 0 ? bits ^ 0x7fffffff : bits;
}

static bool comes_first(const Ranked& a, const Ranked& b) {
    const int32_t x = key(a.value), y = key(b.value);
    return x != y ? x > y : a.index < b.index;
}

// What can't be among the k largest of those seen so far is passed over, sixteen at a time.
void top_k(const float* x, int64_t n, int64_t k, std::vector<Ranked>& found) {
    const size_t size = static_cast<size_t>(k), most = 4 * size;
    found.clear();
    float bound = -INFINITE;  // the k-th largest so far: what comes later has to exceed it
    bool bounded = false;
    const auto keep_largest = [&] {
        std::nth_element(found.begin(), found.begin() + (k - 1), found.end(), comes_first);
        found.resize(size);
    };
    const auto take = [&](int64_t i) {
        if (bounded && !(x[i] > bound)) return;
        found.push_back({x[i], static_cast<int32_t>(i)});
        if (found.size() < most) return;
        keep_largest();
        bound = found.back().value, bounded = true;
    };
    int64_t i = 0;
    for (; i + WIDTH <= n; i += WIDTH) {
        if (bounded && !any_larger(load(x + i), splat(bound))) continue;
        for (int64_t j = i; j < i + WIDTH; j++) take(j);
    }
    for (; i < n; i++) take(i);
    keep_largest();
    std::sort(found.begin(), found.end(), comes_first);
}

}  // namespace KERNEL_LEVEL
