// Low-rank additions to a product: some runs of a step's rows get x A^T B^T on top, each run by weights of its own.
//
// A is [rank, inputs] and B [outputs, rank], packed by `lora_gemm.h`; x A^T is rounded to bf16. A row's addition depends on the row and
// its own weights alone, for the reason that a product's results do.
#pragma once
#include <initializer_list>
#include <memory>
#include <tuple>
#include <vector>

#include "linear.h"
#include "lora_gemm.h"

class LoraWeight {
  public:
    const int64_t outputs, inputs;

    // `weight`: [outputs, inputs], of an even number of inputs; it is copied. `name`: what an error calls it.
    LoraWeight(const bf16* weight, int64_t outputs, int64_t inputs, const char* name);
    int64_t num_groups() const { return static_cast<int64_t>(groups_.size()); }
    LoraProduct product(const bf16* x, void* y, bool rounded) const { return {x, groups_.data(), y, outputs, inputs, rounded}; }

  private:
    std::vector<LoraGroup> groups_;
    HugeMemory memory_;
};

struct LowRank {
    LoraWeight a, b;
    // `a`: [rank, inputs]; `b`: [outputs, rank].
    LowRank(const bf16* a, const bf16* b, int64_t outputs, int64_t inputs, int64_t rank)
        : a(a, rank, inputs, "a"), b(b, outputs, rank, "b") {}
};

// The additions to one product of a step of `rows` rows.
class LoraBatch {
  public:
    using Run = std::tuple<std::shared_ptr<LowRank>, int64_t, int64_t>;  // weights, first row, row after the last

    const int64_t rows;

    LoraBatch(std::vector<Run> runs, int64_t rows);
    int64_t inputs() const { return weights(runs_.front()).a.inputs; }
    int64_t outputs() const { return weights(runs_.front()).b.outputs; }
    int64_t hidden_size() const { return hidden_size_; }
    int64_t added_rows() const { return added_rows_; }

    // What is to be added to the product of `x`. Called by all threads of a region; each has computed what its own share of the
    // product needs. `hidden`, `values`: memory for hidden_size() and added_rows() * outputs().
    LoraAddend multiply(const bf16* x, bf16* hidden, float* values, int thread, int threads) const;

  private:
    static const LowRank& weights(const Run& run) { return *std::get<0>(run); }
    // What this thread computes of x A^T, of all runs. Threads share it out by groups and blocks of rows.
    void reduce(const bf16* x, bf16* hidden, int thread, int threads) const;
    // B times that, for the outputs that this thread computes of the product.
    void expand(const bf16* hidden, float* values, int thread, int threads) const;

    std::vector<Run> runs_;
    std::vector<int32_t> places_;
    int64_t hidden_size_ = 0, added_rows_ = 0, num_items_ = 0;
};

struct LoraMemory {
    bf16* hidden;
    float* values;
};

// Memory of the calling thread for each of `products`, one after another. Null stands for a product without additions, here and below.
LoraMemory memory_for(std::initializer_list<const LoraBatch*> products);
// Throws unless `lora` was made for the products of so many rows with `linear`.
void check_fit(const LoraBatch* lora, const Linear& linear, int64_t rows);
LoraAddend multiply(const LoraBatch* lora, const bf16* x, LoraMemory memory, int thread, int threads);
