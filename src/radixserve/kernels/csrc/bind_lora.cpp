#include "lora.h"

#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "threads.h"

LowRank::LowRank(const Array& a, const Array& b) : a(a, std::nullopt, false), b(b, std::nullopt, false) {
    if (this->a.outputs != this->b.inputs)
        throw std::invalid_argument("a has rank " + std::to_string(this->a.outputs) + " and b " + std::to_string(this->b.inputs));
}

LowRanks::LowRanks(std::vector<Run> runs, int64_t rows) : rows(rows), runs_(std::move(runs)), places_(rows, -1) {
    if (runs_.empty()) throw std::invalid_argument("runs is empty: leave the additions out");
    int64_t last = 0;
    for (const Run& run : runs_) {
        const auto& [lora, begin, end] = run;
        if (begin < last || end <= begin || end > rows)
            throw std::invalid_argument("run " + std::to_string(begin) + ":" + std::to_string(end) + " is empty, out of order or beyond " +
                                        std::to_string(rows) + " rows");
        if (lora->a.inputs != inputs() || lora->b.outputs != outputs()) throw std::invalid_argument("the weights of the runs differ in shape");
        for (int64_t row = begin; row < end; row++) places_[row] = static_cast<int32_t>(added_rows_++);
        hidden_size_ += (end - begin) * lora->a.outputs;
        last = end;
    }
}

Addend LowRanks::multiply(const bf16* x, bf16* hidden, float* values, int thread, int threads) const {
    int64_t at = 0;
    int turn = thread;
    for (const auto& [lora, begin, end] : runs_) {
        // A small rank is a single panel, which one thread computes: they take turns.
        lora->a.multiply(x + begin * lora->a.inputs, hidden + at, end - begin, Epilogue::round, {}, turn, threads);
        at += (end - begin) * lora->a.outputs;
        turn = (turn + 1) % threads;
    }
    wait_for_all(threads);
    at = 0;
    for (const auto& [lora, begin, end] : runs_) {
        lora->b.multiply(hidden + at, values + places_[begin] * lora->b.outputs, end - begin, Epilogue::store, {}, thread, threads);
        at += (end - begin) * lora->a.outputs;
    }
    return {values, places_.data()};
}

static thread_local std::vector<bf16> hidden_memory;
static thread_local std::vector<float> values_memory;

LoraMemory memory_for(std::initializer_list<const LowRanks*> products) {
    int64_t hidden = 0, values = 0;
    for (const LowRanks* lora : products)
        if (lora) hidden = std::max(hidden, lora->hidden_size()), values = std::max(values, lora->added_rows() * lora->outputs());
    return {scratch(hidden_memory, hidden), scratch(values_memory, values)};
}

void check_fit(const LowRanks* lora, const Linear& linear, int64_t rows) {
    if (lora && (lora->rows != rows || lora->inputs() != linear.inputs || lora->outputs() != linear.outputs))
        throw std::invalid_argument("the additions are for " + std::to_string(lora->rows) + " rows of a weight [" +
                                    std::to_string(lora->outputs()) + ", " + std::to_string(lora->inputs()) + "]: must be " +
                                    std::to_string(rows) + " of [" + std::to_string(linear.outputs) + ", " + std::to_string(linear.inputs) + "]");
}

Addend multiply(const LowRanks* lora, const bf16* x, LoraMemory memory, int thread, int threads) {
    return lora ? lora->multiply(x, memory.hidden, memory.values, thread, threads) : Addend{};
}

void bind_lora(nb::module_& module) {
    nb::class_<LowRank>(module, "LowRank").def(nb::init<const Array&, const Array&>(), nb::arg("a"), nb::arg("b"));
    nb::class_<LowRanks>(module, "LowRanks").def(nb::init<std::vector<LowRanks::Run>, int64_t>(), nb::arg("runs"), nb::arg("rows"));
}
