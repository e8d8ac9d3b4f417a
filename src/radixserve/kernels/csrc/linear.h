// A packed weight with its bias, of bfloat16 or int8, and the product of bf16 rows with it.
#pragma once
#include <algorithm>
#include <cstdlib>
#include <initializer_list>
#include <memory>
#include <new>
#include <optional>
#include <vector>

#include "borders.h"
#include "gemm.h"
#include "int8.h"

// Memory on huge pages where it fills a quarter of one and the system gives them on request: weights are read in order, once a step.
class HugeMemory {
  public:
    explicit HugeMemory(size_t bytes);
    void* data() const { return data_.get(); }

  private:
    std::unique_ptr<void, decltype(&std::free)> data_{nullptr, &std::free};
};

// Memory of one thread that stays between calls: fresh memory costs page faults.
template <class T>
static inline T* scratch(std::vector<T>& memory, int64_t size) {
    if (static_cast<int64_t>(memory.size()) < size) memory.resize(size);
    return memory.data();
}

struct QuantizedRows {
    uint8_t* bytes;
    float* scales;
};

class Linear {
  public:
    const int64_t outputs, inputs;
    const bool int8;

    Linear(const Array& weight, const std::optional<Array>& bias, bool int8);

    // y = xW + b + addend, or as the epilogue has it. Called by all threads of a region; `shared` is memory for the rows of all of
    // them. The outputs of a thread depend on their number alone: two weights of as many outputs are shared out alike.
    void multiply(const bf16* x, void* y, int64_t rows, Epilogue epilogue, QuantizedRows shared, int thread, int threads,
                  const Addend& addend = {}) const;

  private:
    const int64_t padded_outputs_;
    HugeMemory memory_;
    std::vector<float> bias_, scales_;
    std::vector<int32_t> offsets_;

    const float* bias() const { return bias_.empty() ? nullptr : bias_.data(); }
};

// Memory of the calling thread in which `rows` rows for each of `linears` can be quantized, one linear after another.
QuantizedRows memory_for(int64_t rows, std::initializer_list<const Linear*> linears);
