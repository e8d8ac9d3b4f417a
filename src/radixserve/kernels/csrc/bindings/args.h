// Checks of what comes from Python. Every error names the argument, what it is and what it must be.
#pragma once
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <initializer_list>
#include <stdexcept>
#include <string>

#include "bf16.h"

namespace nb = nanobind;

using Array = nb::ndarray<>;

// A tensor that was taken over from Python. That costs 2 us, most of it in torch, so what is passed often is wrapped once. It is
// checked like any other, whenever it is passed.
struct Wrapped : Array {
    explicit Wrapped(const Array& array) : Array(array) {}
};

using Shape = std::initializer_list<int64_t>;
constexpr int64_t ANY = -1;
constexpr nb::dlpack::dtype BF16{static_cast<uint8_t>(nb::dlpack::dtype_code::Bfloat), 16, 1};

inline std::string dtype_name(nb::dlpack::dtype dtype) {
    static const char* names[] = {"int", "uint", "float", "opaque", "bfloat", "complex", "bool"};
    return (dtype.code < 7 ? names[dtype.code] : "unknown") + std::to_string(dtype.bits);
}

inline std::string shape_of(const Array& array) {
    std::string text = "[";
    for (size_t i = 0; i < array.ndim(); i++) text += (i ? ", " : "") + std::to_string(array.shape(i));
    return text + "]";
}

inline std::string shape_of(Shape shape) {
    std::string text = "[";
    for (int64_t size : shape) text += (text.size() > 1 ? ", " : "") + (size == ANY ? std::string("any") : std::to_string(size));
    return text + "]";
}

inline bool fits(const Array& array, Shape shape) {
    if (array.ndim() != shape.size()) return false;
    size_t i = 0;
    for (int64_t size : shape) {
        if (size != ANY && size != static_cast<int64_t>(array.shape(i))) return false;
        i++;
    }
    return true;
}

inline bool contiguous(const Array& array) {
    if (array.size() == 0) return true;
    int64_t stride = 1;
    for (size_t i = array.ndim(); i-- > 0; stride *= static_cast<int64_t>(array.shape(i)))
        if (array.shape(i) > 1 && array.stride(i) != stride) return false;
    return true;
}

// The memory of a contiguous CPU tensor of this dtype and shape. Raises ValueError for another.
inline void* checked(const Array& array, const char* name, nb::dlpack::dtype dtype, Shape shape) {
    const std::string what = std::string(name) + " ";
    if (array.device_type() != nb::device::cpu::value) throw std::invalid_argument(what + "must be on the CPU");
    if (array.dtype() != dtype)
        throw std::invalid_argument(what + "is of dtype " + dtype_name(array.dtype()) + ": must be " + dtype_name(dtype));
    if (!fits(array, shape)) throw std::invalid_argument(what + "has shape " + shape_of(array) + ": must be " + shape_of(shape));
    if (!contiguous(array)) throw std::invalid_argument(what + "must be contiguous");
    return array.data();
}

inline float* floats(const Array& array, const char* name, Shape shape) {
    return static_cast<float*>(checked(array, name, nb::dtype<float>(), shape));
}
inline bf16* bf16s(const Array& array, const char* name, Shape shape) { return static_cast<bf16*>(checked(array, name, BF16, shape)); }
inline int64_t* int64s(const Array& array, const char* name, Shape shape) {
    return static_cast<int64_t*>(checked(array, name, nb::dtype<int64_t>(), shape));
}
