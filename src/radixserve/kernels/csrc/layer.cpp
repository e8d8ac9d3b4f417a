#include "layer.h"

#include <algorithm>
#include <stdexcept>

#include "threads.h"

static thread_local std::vector<bf16> normed_memory, activated_memory, own_memory;
static thread_local std::vector<float> qkv_memory;

// Up to so many rows every thread norms all of them for itself, which is faster than to wait for the others.
constexpr int64_t ROWS_NORMED_BY_ALL = 4;

// The normed rows, in `shared` or in memory of the calling thread. Called by all threads of a region.
static const bf16* normed(const RmsNorm& norm, const float* x, bf16* shared, int64_t rows, int thread, int threads) {
    const int64_t size = norm.size();
    const bool by_all = rows <= ROWS_NORMED_BY_ALL;
    const Range range = by_all ? Range{0, rows} : share(rows, thread, threads);
    bf16* y = by_all ? scratch(own_memory, rows * size) : shared;
    for (int64_t row = range.begin; row < range.end; row++) AT_LEVEL(rms_norm, norm.norm(), x + row * size, y + row * size, size);
    if (!by_all) wait_for_all(threads);
    return y;
}

static void check_fit(const RmsNorm& norm, const Linear& linear) {
    if (norm.size() != linear.inputs) throw std::invalid_argument("norm and linear differ in size");
}

void norm_linear(const float* x, const RmsNorm& norm, const Linear& linear, float* y, int64_t rows) {
    check_fit(norm, linear);
    bf16* shared = scratch(normed_memory, rows * linear.inputs);
    const QuantizedRows quantized = memory_for(rows, {&linear});
    in_parallel(num_threads(), [&](int thread, int threads) {
        const bf16* input = normed(norm, x, shared, rows, thread, threads);
        linear.multiply(input, y, rows, Epilogue::store, quantized, thread, threads);
    });
}

void linear(const bf16* x, const Linear& linear, const LoraBatch* lora, float* y, int64_t rows) {
    check_fit(lora, linear, rows);
    const LoraMemory memory = memory_for({lora});
    const QuantizedRows quantized = memory_for(rows, {&linear});
    in_parallel(num_threads(), [&](int thread, int threads) {
        const LoraAddend added = multiply(lora, x, memory, thread, threads);
        linear.multiply(x, y, rows, Epilogue::store, quantized, thread, threads, added);
    });
}

namespace {

// A feed forward of one step: its memory is of the thread that starts the region.
struct MlpStep {
    const Mlp& mlp;
    const int64_t rows;
    LoraMemory added;
    QuantizedRows quantized;
    bf16* shared = scratch(normed_memory, rows* mlp.gate_up.inputs);
    bf16* activated = scratch(activated_memory, rows* mlp.down.inputs);

    // Stores to `y`, or adds. Called by all threads of a region; `x` is whole.
    void run(const float* x, float* y, Epilogue epilogue, int thread, int threads) const {
        const bf16* input = normed(mlp.norm, x, shared, rows, thread, threads);
        const LoraAddend to_gate_up = multiply(mlp.gate_up_lora, input, added, thread, threads);
        mlp.gate_up.multiply(input, activated, rows, Epilogue::silu_mul, quantized, thread, threads, to_gate_up);
        wait_for_all(threads);
        const LoraAddend to_down = multiply(mlp.down_lora, activated, added, thread, threads);
        mlp.down.multiply(activated, y, rows, epilogue, quantized, thread, threads, to_down);
    }
};

}  // namespace

static void check_fit(const Mlp& mlp, int64_t rows) {
    const int64_t size = mlp.norm.size();
    const Linear &gate_up = mlp.gate_up, &down = mlp.down;
    if (gate_up.inputs != size || down.outputs != size || down.inputs * 2 != gate_up.outputs || gate_up.outputs % PANEL)
        throw std::invalid_argument("norm, gate_up and down do not fit each other");
    check_fit(mlp.gate_up_lora, gate_up, rows), check_fit(mlp.down_lora, down, rows);
}

void mlp(const float* x, const Mlp& mlp, float* y, int64_t rows) {
    check_fit(mlp, rows);
    const MlpStep step{mlp, rows, memory_for({mlp.gate_up_lora, mlp.down_lora}), memory_for(rows, {&mlp.gate_up, &mlp.down})};
    in_parallel(num_threads(), [&](int thread, int threads) { step.run(x, y, Epilogue::store, thread, threads); });
}

void add_and_mlp(float* x, const bf16* y, const Linear& output, const LoraBatch* output_lora, const Mlp& mlp, int64_t rows) {
    if (mlp.norm.size() != output.outputs) throw std::invalid_argument("linear and norm differ in size");
    check_fit(output_lora, output, rows);
    check_fit(mlp, rows);
    const MlpStep step{mlp, rows, memory_for({output_lora, mlp.gate_up_lora, mlp.down_lora}),
                       memory_for(rows, {&output, &mlp.gate_up, &mlp.down})};
    in_parallel(num_threads(), [&](int thread, int threads) {
        const LoraAddend added = multiply(output_lora, y, step.added, thread, threads);
        output.multiply(y, x, rows, Epilogue::add, step.quantized, thread, threads, added);
        wait_for_all(threads);
        step.run(x, x, Epilogue::add, thread, threads);
    });
}

void qkv_rope_store(const float* x, const RmsNorm& norm, const Linear& qkv, const LoraBatch* lora, QkvRope h) {
    const int64_t rows = h.tokens;
    check_fit(norm, qkv);
    check_fit(lora, qkv, rows);
    const LoraMemory memory = memory_for({lora});
    bf16* shared = scratch(normed_memory, rows * qkv.inputs);
    float* projected = scratch(qkv_memory, rows * qkv.outputs);
    h.qkv = projected;
    const QuantizedRows quantized = memory_for(rows, {&qkv});
    in_parallel(num_threads(), [&](int thread, int threads) {
        const bf16* input = normed(norm, x, shared, rows, thread, threads);
        const LoraAddend added = multiply(lora, input, memory, thread, threads);
        qkv.multiply(input, projected, rows, Epilogue::store, quantized, thread, threads, added);
        wait_for_all(threads);
        const Range range = share(rows, thread, threads);
        for (int64_t token = range.begin; token < range.end; token++) AT_LEVEL(rope_and_store, h, token);
    });
}
