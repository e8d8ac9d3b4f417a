#include "logits.h"

#include <algorithm>

#include "threads.h"

// From so many logits on it takes longer to look at them than to wake threads.
constexpr int64_t MANY_LOGITS = 1 << 18;

template <class Work>
static void each_row(int64_t rows, int64_t size, const Work& work) {
    const int threads = rows * size < MANY_LOGITS ? 1 : static_cast<int>(std::min<int64_t>(rows, num_threads()));
    in_parallel(threads, [&](int thread, int threads) {
        const Range range = share(rows, thread, threads);
        for (int64_t row = range.begin; row < range.end; row++) work(row);
    });
}

std::vector<int64_t> argmax_of_rows(const float* x, int64_t rows, int64_t size) {
    std::vector<int64_t> ids(rows);
    each_row(rows, size, [&](int64_t row) { ids[row] = AT_LEVEL(argmax, x + row * size, size); });
    return ids;
}

void top_k_of_rows(const float* x, int64_t rows, int64_t size, int64_t k, float* values, int64_t* indices) {
    each_row(rows, size, [&](int64_t row) {
        thread_local std::vector<Ranked> found;
        AT_LEVEL(top_k, x + row * size, size, k, found);
        for (int64_t i = 0; i < k; i++) values[row * k + i] = found[i].value, indices[row * k + i] = found[i].index;
    });
}
