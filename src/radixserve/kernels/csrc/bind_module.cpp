// The extension module radixserve.kernels._native.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <omp.h>

#include "level.h"

namespace nb = nanobind;

NB_MODULE(_native, module) {
    module.def("level", [] { return std::string(level_name(level())); }, "The instruction sets that the kernels use.");
    module.def("set_num_threads", [](int n) { omp_set_num_threads(n); }, nb::arg("n"));
}
