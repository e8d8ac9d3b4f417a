// The extension module radixserve.kernels._native.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include "cpu_level.h"
#include "threads.h"

namespace nb = nanobind;

void bind_attention(nb::module_& module);
void bind_linear(nb::module_& module);
void bind_lora(nb::module_& module);
void bind_layer(nb::module_& module);
void bind_logits(nb::module_& module);

static void choose_by_name(const std::string& name) {
    for (Level candidate : {Level::portable, Level::avx2, Level::avx512, Level::avx512_bf16})
        if (name == level_name(candidate) && choose_level(candidate)) return;
    throw std::invalid_argument("level is '" + name + "': this CPU or this build has no such level");
}

NB_MODULE(_native, module) {
    module.def("level", [] { return std::string(level_name(level())); });
    module.def("choose_level", &choose_by_name, nb::arg("name"));
    module.def("num_threads", &num_threads);
    module.def("set_num_threads", &set_num_threads, nb::arg("n"));
    bind_linear(module);
    bind_lora(module);
    bind_layer(module);
    bind_attention(module);
    bind_logits(module);
}
