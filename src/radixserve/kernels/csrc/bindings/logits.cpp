#include "logits.h"

#include <nanobind/stl/vector.h>

#include "args.h"

static std::vector<int64_t> argmax(const Array& logits) {
    const float* x = floats(logits, "logits", {ANY, ANY});
    const int64_t rows = logits.shape(0), size = logits.shape(1);
    nb::gil_scoped_release release;
    return argmax_of_rows(x, rows, size);
}

static void top_k(const Array& logits, const Array& values, const Array& ids) {
    const float* x = floats(logits, "logits", {ANY, ANY});
    const int64_t rows = logits.shape(0), size = logits.shape(1);
    float* top = floats(values, "values", {rows, ANY});
    const int64_t k = values.shape(1);
    int64_t* indices = int64s(ids, "ids", {rows, k});
    if (k < 1 || k > size)
        throw std::invalid_argument("values has " + std::to_string(k) + " columns: must be 1 to " + std::to_string(size));
    nb::gil_scoped_release release;
    top_k_of_rows(x, rows, size, k, top, indices);
}

void bind_logits(nb::module_& module) {
    module.def("argmax", &argmax, nb::arg("logits"));
    module.def("top_k", &top_k, nb::arg("logits"), nb::arg("values"), nb::arg("ids"));
}
