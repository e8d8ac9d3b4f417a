// The products of a decoder's layer, each with what comes right before and after it in the same region of threads.
//
// Rows are those of a step. Memory for what is between two products belongs to the calling thread. A function whose weights do not
// fit each other throws std::invalid_argument; pointers are trusted.
#pragma once
#include <vector>

#include "linear.h"
#include "lora.h"
#include "norm.h"
#include "qkv_rope.h"

class RmsNorm {
  public:
    // `weight`: [size]; it is copied.
    RmsNorm(const float* weight, int64_t size, float eps) : weight_(weight, weight + size), eps_(eps) {}
    Norm norm() const { return {weight_.data(), eps_}; }
    int64_t size() const { return static_cast<int64_t>(weight_.size()); }

  private:
    std::vector<float> weight_;
    float eps_;
};

// A feed forward, and what adapters add to its two products: null for nothing.
struct Mlp {
    const RmsNorm& norm;
    const Linear& gate_up;  // outputs are 16 gates, then the 16 ups that belong to them, and so on
    const Linear& down;
    const LoraBatch *gate_up_lora, *down_lora;
};

// y = linear(norm(x)).
void norm_linear(const float* x, const RmsNorm& norm, const Linear& linear, float* y, int64_t rows);
// y = linear(x), and what adapters add to it.
void linear(const bf16* x, const Linear& linear, const LoraBatch* lora, float* y, int64_t rows);
// y = down(silu(gate) * up) of norm(x).
void mlp(const float* x, const Mlp& mlp, float* y, int64_t rows);
// x += output(y), then x += mlp(x).
void add_and_mlp(float* x, const bf16* y, const Linear& output, const LoraBatch* output_lora, const Mlp& mlp, int64_t rows);
// Projects norm(x) to q, k and v, and hands them to `rope_and_store`; `h` has all of its fields but qkv.
void qkv_rope_store(const float* x, const RmsNorm& norm, const Linear& qkv, const LoraBatch* lora, QkvRope h);
