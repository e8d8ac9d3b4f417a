// Low-rank additions to a product: some runs of a step's rows get x A^T B^T on top, each run by weights of its own.
//
// A is [rank, inputs] and B [outputs, rank], packed as thin weights; x A^T is rounded to bf16. A row's addition depends on the row and
// its own weights alone, for the reason that a product's results do.
#pragma once
#include <initializer_list>
#include <memory>
#include <tuple>
#include <vector>

#include "linear.h"
#include "thin.h"

class ThinWeight {
  public:
    const int64_t outputs, inputs;

    // `weight`: bf16 [outputs, inputs], of an even number of inputs.
    ThinWeight(const Array& weight, const char* name);
    int64_t num_groups() const { return static_cast<int64_t>(groups_.size()); }
    ThinProduct product(const bf16* x, void* y, bool rounded) const { return {x, groups_.data(), y, outputs, inputs, rounded}; }

  private:
    std::vector<ThinGroup> groups_;
    HugeMemory memory_;
};

struct LowRank {
    ThinWeight a, b;
    LowRank(const Array& a, const Array& b) : a(a, "a"), b(b, "b") {
        if (this->a.outputs != this->b.inputs)
            throw std::invalid_argument("a has rank " + std::to_string(this->a.outputs) + " and b " + std::to_string(this->b.inputs));
    }
};

// The additions to one product of a step of `rows` rows.
class LowRanks {
  public:
    using Run = std::tuple<std::shared_ptr<LowRank>, int64_t, int64_t>;  // weights, first row, row after the last

    const int64_t rows;

    LowRanks(std::vector<Run> runs, int64_t rows);
    int64_t inputs() const { return weights(runs_.front()).a.inputs; }
    int64_t outputs() const { return weights(runs_.front()).b.outputs; }
    int64_t hidden_size() const { return hidden_size_; }
    int64_t added_rows() const { return added_rows_; }

    // What is to be added to the product of `x`. Called by all threads of a region; each has computed what its own share of the
    // product needs. `hidden`, `values`: memory for hidden_size() and added_rows() * outputs().
    Addend multiply(const bf16* x, bf16* hidden, float* values, int thread, int threads) const;

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
LoraMemory memory_for(std::initializer_list<const LowRanks*> products);
// Throws unless `lora` was made for the products of so many rows with `linear`.
void check_fit(const LowRanks* lora, const Linear& linear, int64_t rows);
Addend multiply(const LowRanks* lora, const bf16* x, LoraMemory memory, int thread, int threads);
