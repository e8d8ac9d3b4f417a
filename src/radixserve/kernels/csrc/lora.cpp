#include "lora.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "threads.h"

// Rows of x that one thread multiplies with a group of A.
constexpr int64_t ROWS_OF_ITEM = 24;

static int64_t num_blocks(int64_t rows) { return (rows + ROWS_OF_ITEM - 1) / ROWS_OF_ITEM; }

// The inputs of a group's outputs from the first weight that is not zero to the last. `weight`: [outputs, inputs].
static Range inputs_with_weights(const bf16* weight, Range outputs, int64_t inputs) {
    Range range{inputs, 0};
    for (int64_t row = outputs.begin; row < outputs.end; row++)
        for (int64_t i = 0; i < inputs; i++)
            if (weight[row * inputs + i] & 0x7fff) range = {std::min(range.begin, i), std::max(range.end, i + 1)};
    return range.end ? Range{range.begin / 2 * 2, (range.end + 1) / 2 * 2} : Range{0, 0};
}

static std::vector<LoraGroup> groups_of(const bf16* weight, int64_t outputs, int64_t inputs) {
    std::vector<LoraGroup> groups;
    for (int64_t first = 0; first < outputs; first += LORA_GROUP) {
        const Range range = inputs_with_weights(weight, {first, std::min(first + LORA_GROUP, outputs)}, inputs);
        groups.push_back({range.begin, range.end - range.begin, nullptr});
    }
    return groups;
}

static size_t packed_bytes(const std::vector<LoraGroup>& groups) {
    size_t size = 0;
    for (const LoraGroup& group : groups) size += group.inputs * LORA_GROUP * sizeof(bf16);
    return size;
}

LoraWeight::LoraWeight(const bf16* weight, int64_t outputs, int64_t inputs, const char* name)
    : outputs(outputs), inputs(inputs), groups_(groups_of(weight, outputs, inputs)), memory_(std::max<size_t>(packed_bytes(groups_), 1)) {
    if (inputs % 2) throw std::invalid_argument(std::string(name) + " has " + std::to_string(inputs) + " inputs: must be even");
    bf16* out = static_cast<bf16*>(memory_.data());
    for (int64_t i = 0; i < num_groups(); i++) {
        LoraGroup& group = groups_[i];
        group.packed = out;
        for (int64_t k = group.first; k < group.first + group.inputs; k += 2)
            for (int64_t row = i * LORA_GROUP; row < (i + 1) * LORA_GROUP; row++) {
                *out++ = row < outputs ? weight[row * inputs + k] : 0;
                *out++ = row < outputs ? weight[row * inputs + k + 1] : 0;
            }
    }
}

LoraBatch::LoraBatch(std::vector<Run> runs, int64_t rows) : rows(rows), runs_(std::move(runs)), places_(rows, -1) {
    if (runs_.empty()) throw std::invalid_argument("runs is empty: leave the additions out");
    int64_t last = 0;
    for (const Run& run : runs_) {
        const auto& [lora, begin, end] = run;
        if (begin < last || end <= begin || end > rows)
            throw std::invalid_argument("run " + std::to_string(begin) + ":" + std::to_string(end) + " is empty, out of order or beyond " +
                                        std::to_string(rows) + " rows");
        if (lora->a.inputs != inputs() || lora->b.outputs != outputs())
            throw std::invalid_argument("the weights of the runs differ in shape");
        for (int64_t row = begin; row < end; row++) places_[row] = static_cast<int32_t>(added_rows_++);
        hidden_size_ += (end - begin) * lora->a.outputs;
        num_items_ += num_blocks(end - begin) * lora->a.num_groups();
        last = end;
    }
}

void LoraBatch::reduce(const bf16* x, bf16* hidden, int thread, int threads) const {
    const Range mine = share(num_items_, thread, threads);
    int64_t first = 0, at = 0;
    for (const auto& [lora, begin, end] : runs_) {
        const LoraProduct product = lora->a.product(x + begin * lora->a.inputs, hidden + at, true);
        const int64_t rows = end - begin, blocks = num_blocks(rows), items = lora->a.num_groups() * blocks;
        for (int64_t i = std::max<int64_t>(mine.begin - first, 0); i < std::min(mine.end - first, items); i++) {
            const int64_t row = i % blocks * ROWS_OF_ITEM;
            AT_LEVEL(lora_product, product, i / blocks, {row, std::min(row + ROWS_OF_ITEM, rows)});
        }
        first += items;
        at += rows * lora->a.outputs;
    }
}

void LoraBatch::expand(const bf16* hidden, float* values, int thread, int threads) const {
    constexpr int64_t GROUPS_OF_PANEL = PANEL / LORA_GROUP;
    const Range panels = share((outputs() + PANEL - 1) / PANEL, thread, threads);
    int64_t at = 0;
    for (const auto& [lora, begin, end] : runs_) {
        const LoraProduct product = lora->b.product(hidden + at, values + places_[begin] * lora->b.outputs, false);
        const int64_t last = std::min(panels.end * GROUPS_OF_PANEL, lora->b.num_groups());
        for (int64_t group = panels.begin * GROUPS_OF_PANEL; group < last; group++)
            AT_LEVEL(lora_product, product, group, {0, end - begin});
        at += (end - begin) * lora->a.outputs;
    }
}

LoraAddend LoraBatch::multiply(const bf16* x, bf16* hidden, float* values, int thread, int threads) const {
    reduce(x, hidden, thread, threads);
    wait_for_all(threads);
    expand(hidden, values, thread, threads);
    return {values, places_.data()};
}

static thread_local std::vector<bf16> hidden_memory;
static thread_local std::vector<float> values_memory;

LoraMemory memory_for(std::initializer_list<const LoraBatch*> products) {
    int64_t hidden = 0, values = 0;
    for (const LoraBatch* lora : products)
        if (lora) hidden = std::max(hidden, lora->hidden_size()), values = std::max(values, lora->added_rows() * lora->outputs());
    return {scratch(hidden_memory, hidden), scratch(values_memory, values)};
}

void check_fit(const LoraBatch* lora, const Linear& linear, int64_t rows) {
    if (lora && (lora->rows != rows || lora->inputs() != linear.inputs || lora->outputs() != linear.outputs))
        throw std::invalid_argument("the additions are for " + std::to_string(lora->rows) + " rows of a weight [" +
                                    std::to_string(lora->outputs()) + ", " + std::to_string(lora->inputs()) + "]: must be " +
                                    std::to_string(rows) + " of [" + std::to_string(linear.outputs) + ", " + std::to_string(linear.inputs) +
                                    "]");
}

LoraAddend multiply(const LoraBatch* lora, const bf16* x, LoraMemory memory, int thread, int threads) {
    return lora ? lora->multiply(x, memory.hidden, memory.values, thread, threads) : LoraAddend{};
}
