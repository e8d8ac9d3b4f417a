// A packed weight with its bias, of bfloat16 or int8, and the product of bf16 rows with it.
#pragma once
#include <initializer_list>
#include <vector>

#include "gemm.h"
#include "int8.h"
#include "memory.h"

struct QuantizedRows {
    uint8_t* bytes;
    float* scales;
};

class Linear {
  public:
    const int64_t outputs, inputs;
    const bool int8;

    // `weight`: [outputs, inputs], of an even number of inputs; `bias`: [outputs], or null. Both are copied.
    Linear(const bf16* weight, const float* bias, int64_t outputs, int64_t inputs, bool int8);

    // y = xW + b + addend, or as the epilogue has it. Called by all threads of a region; `shared` is memory for the rows of all of
    // them. The outputs of a thread depend on their number alone: two weights of as many outputs are shared out alike.
    void multiply(const bf16* x, void* y, int64_t rows, Epilogue epilogue, QuantizedRows shared, int thread, int threads,
                  const LoraAddend& addend = {}) const;

  private:
    const int64_t padded_outputs_;
    HugeMemory memory_;
    std::vector<float> bias_, scales_;
    std::vector<int32_t> offsets_;

    const float* bias() const { return bias_.empty() ? nullptr : bias_.data(); }
};

// Memory of the calling thread in which `rows` rows for each of `linears` can be quantized, one linear after another.
QuantizedRows memory_for(int64_t rows, std::initializer_list<const Linear*> linears);
