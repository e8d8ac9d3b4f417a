#include "lora.h"

#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "args.h"

static void make(LowRank* self, const Array& a, const Array& b) {
    const bf16 *reduced = bf16s(a, "a", {ANY, ANY}), *expanded = bf16s(b, "b", {ANY, ANY});
    const int64_t rank = a.shape(0), inputs = a.shape(1), outputs = b.shape(0);
    if (rank != static_cast<int64_t>(b.shape(1)))
        throw std::invalid_argument("a has rank " + std::to_string(rank) + " and b " + std::to_string(b.shape(1)));
    nb::gil_scoped_release release;  // steps go on
    new (self) LowRank(reduced, expanded, outputs, inputs, rank);
}

void bind_lora(nb::module_& module) {
    nb::class_<LowRank>(module, "LowRank").def("__init__", &make, nb::arg("a"), nb::arg("b"));
    nb::class_<LoraBatch>(module, "LoraBatch").def(nb::init<std::vector<LoraBatch::Run>, int64_t>(), nb::arg("runs"), nb::arg("rows"));
}
