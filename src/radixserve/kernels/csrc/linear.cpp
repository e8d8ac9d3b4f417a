#include "linear.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "threads.h"

static int64_t packed_bytes(int64_t inputs, bool int8) { return int8 ? int8_width(inputs) : inputs * static_cast<int64_t>(sizeof(bf16)); }

Linear::Linear(const bf16* weight, const float* bias, int64_t outputs, int64_t inputs, bool int8)
    : outputs(outputs),
      inputs(inputs),
      int8(int8),
      padded_outputs_((outputs + PANEL - 1) / PANEL * PANEL),
      memory_(padded_outputs_ * packed_bytes(inputs, int8)) {
    const std::string what = "weight has " + std::to_string(inputs) + " inputs: must be ";
    if (inputs % 2) throw std::invalid_argument(what + "even");
    if (int8 && inputs > MAX_INT8_INPUTS) throw std::invalid_argument(what + "at most " + std::to_string(MAX_INT8_INPUTS) + " in int8");
    if (bias) {
        bias_.assign(padded_outputs_, 0.0f);
        std::copy(bias, bias + outputs, bias_.begin());
    }
    if (int8) {
        scales_.resize(padded_outputs_);
        offsets_.resize(padded_outputs_);
        const Int8Weights packed{static_cast<int8_t*>(memory_.data()), scales_.data(), offsets_.data()};
        AT_LEVEL(pack_int8, weight, packed, outputs, inputs);
    } else {
        AT_LEVEL(pack, weight, static_cast<bf16*>(memory_.data()), outputs, inputs);
    }
}

// Up to so many rows every thread quantizes all of them for itself, which is faster than to wait for the others.
constexpr int64_t ROWS_QUANTIZED_BY_ALL = 16;

static thread_local std::vector<uint8_t> shared_bytes, own_bytes;
static thread_local std::vector<float> shared_scales, own_scales;

QuantizedRows memory_for(int64_t rows, std::initializer_list<const Linear*> linears) {
    int64_t width = 0;
    for (const Linear* linear : linears)
        if (linear->int8) width = std::max(width, int8_width(linear->inputs));
    if (!width) return {};
    return {scratch(shared_bytes, rows * width), scratch(shared_scales, rows)};
}

// Called by all threads of a region.
static QuantizedRows quantized(const bf16* x, int64_t rows, int64_t inputs, QuantizedRows shared, int thread, int threads) {
    const int64_t width = int8_width(inputs);
    const bool by_all = rows <= ROWS_QUANTIZED_BY_ALL;
    const Range range = by_all ? Range{0, rows} : share(rows, thread, threads);
    const QuantizedRows out = by_all ? QuantizedRows{scratch(own_bytes, rows * width), scratch(own_scales, rows)} : shared;
    for (int64_t row = range.begin; row < range.end; row++)
        AT_LEVEL(quantize, x + row * inputs, out.bytes + row * width, out.scales + row, inputs);
    if (!by_all) wait_for_all(threads);
    return out;
}

void Linear::multiply(const bf16* x, void* y, int64_t rows, Epilogue epilogue, QuantizedRows shared, int thread, int threads,
                      const LoraAddend& addend) const {
    if (!int8) {
        const Gemm g{x, static_cast<const bf16*>(memory_.data()), bias(), y, rows, outputs, inputs, epilogue, addend};
        return AT_LEVEL(gemm, g, thread, threads);
    }
    const QuantizedRows q = quantized(x, rows, inputs, shared, thread, threads);
    const Int8Gemm g{q.bytes,
                     q.scales,
                     static_cast<const int8_t*>(memory_.data()),
                     scales_.data(),
                     offsets_.data(),
                     bias(),
                     y,
                     rows,
                     outputs,
                     int8_width(inputs),
                     epilogue,
                     addend};
    AT_LEVEL(gemm_int8, g, thread, threads);
}
