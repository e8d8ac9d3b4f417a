#include "linear.h"

#include <nanobind/stl/optional.h>

#include "args.h"

static void make(Linear* self, const Array& weight, const std::optional<Array>& bias, bool int8) {
    const bf16* values = bf16s(weight, "weight", {ANY, ANY});
    const int64_t outputs = weight.shape(0), inputs = weight.shape(1);
    new (self) Linear(values, bias ? floats(*bias, "bias", {outputs}) : nullptr, outputs, inputs, int8);
}

void bind_linear(nb::module_& module) {
    nb::class_<Linear>(module, "Linear")
        .def("__init__", &make, nb::arg("weight"), nb::arg("bias") = nb::none(), nb::arg("int8") = false)
        .def_ro("outputs", &Linear::outputs)
        .def_ro("inputs", &Linear::inputs);
}
