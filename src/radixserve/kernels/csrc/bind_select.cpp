// Choosing from logits.
#include <nanobind/stl/vector.h>

#include <algorithm>

#include "borders.h"
#include "select.h"
#include "threads.h"

namespace {

// From so many logits on it takes longer to look at them than to wake threads.
constexpr int64_t MANY_LOGITS = 1 << 18;

template <class Work>
void each_row(int64_t rows, int64_t size, const Work& work) {
    nb::gil_scoped_release release;
    const int threads = rows * size < MANY_LOGITS ? 1 : static_cast<int>(std::min<int64_t>(rows, num_threads()));
    in_parallel(threads, [&](int thread, int threads) {
        const Range range = share(rows, thread, threads);
        for (int64_t row = range.begin; row < range.end; row++) work(row);
    });
}

std::vector<int64_t> argmax_of_rows(const Array& logits) {
    const float* x = floats(logits, "logits", {ANY, ANY});
    const int64_t rows = logits.shape(0), size = logits.shape(1);
    std::vector<int64_t> ids(rows);
    each_row(rows, size, [&](int64_t row) { ids[row] = AT_LEVEL(argmax, x + row * size, size); });
    return ids;
}

void top_k_of_rows(const Array& logits, const Array& values, const Array& ids) {
    const float* x = floats(logits, "logits", {ANY, ANY});
    const int64_t rows = logits.shape(0), size = logits.shape(1);
    float* top = floats(values, "values", {rows, ANY});
    const int64_t k = values.shape(1);
    int64_t* indices = int64s(ids, "ids", {rows, k});
    if (k < 1 || k > size)
        throw std::invalid_argument("values has " + std::to_string(k) + " columns: must be 1 to " + std::to_string(size));
    each_row(rows, size, [&](int64_t row) {
        thread_local std::vector<Ranked> found;
        AT_LEVEL(top_k, x + row * size, size, k, found);
        for (int64_t i = 0; i < k; i++) top[row * k + i] = found[i].value, indices[row * k + i] = found[i].index;
    });
}

}  // namespace

void bind_select(nb::module_& module) {
    module.def("argmax", &argmax_of_rows, nb::arg("logits"));
    module.def("top_k", &top_k_of_rows, nb::arg("logits"), nb::arg("values"), nb::arg("ids"));
}
