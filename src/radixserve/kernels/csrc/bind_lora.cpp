#include "lora.h"

#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>

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

static std::vector<ThinGroup> groups_of(const bf16* weight, int64_t outputs, int64_t inputs) {
    std::vector<ThinGroup> groups;
    for (int64_t first = 0; first < outputs; first += THIN_GROUP) {
        const Range range = inputs_with_weights(weight, {first, std::min(first + THIN_GROUP, outputs)}, inputs);
        groups.push_back({range.begin, range.end - range.begin, nullptr});
    }
    return groups;
}

static size_t packed_bytes(const std::vector<ThinGroup>& groups) {
    size_t size = 0;
    for (const ThinGroup& group : groups) size += group.inputs * THIN_GROUP * sizeof(bf16);
    return size;
}

ThinWeight::ThinWeight(const Array& weight, const char* name)
    : outputs(weight.ndim() ? weight.shape(0) : 0),
      inputs(weight.ndim() > 1 ? weight.shape(1) : 0),
      groups_(groups_of(bf16s(weight, name, {ANY, ANY}), outputs, inputs)),
      memory_(std::max<size_t>(packed_bytes(groups_), 1)) {
    if (inputs % 2) throw std::invalid_argument(std::string(name) + " has " + std::to_string(inputs) + " inputs: must be even");
    const bf16* source = bf16s(weight, name, {ANY, ANY});
    bf16* out = static_cast<bf16*>(memory_.data());
    for (int64_t i = 0; i < num_groups(); i++) {
        ThinGroup& group = groups_[i];
        group.packed = out;
        for (int64_t k = group.first; k < group.first + group.inputs; k += 2)
            for (int64_t row = i * THIN_GROUP; row < (i + 1) * THIN_GROUP; row++) {
                *out++ = row < outputs ? source[row * inputs + k] : 0;
                *out++ = row < outputs ? source[row * inputs + k + 1] : 0;
            }
    }
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
        num_items_ += num_blocks(end - begin) * lora->a.num_groups();
        last = end;
    }
}

void LowRanks::reduce(const bf16* x, bf16* hidden, int thread, int threads) const {
    const Range mine = share(num_items_, thread, threads);
    int64_t first = 0, at = 0;
    for (const auto& [lora, begin, end] : runs_) {
        const ThinProduct product = lora->a.product(x + begin * lora->a.inputs, hidden + at, true);
        const int64_t rows = end - begin, blocks = num_blocks(rows), items = lora->a.num_groups() * blocks;
        for (int64_t i = std::max<int64_t>(mine.begin - first, 0); i < std::min(mine.end - first, items); i++) {
            const int64_t row = i % blocks * ROWS_OF_ITEM;
            AT_LEVEL(thin_product, product, i / blocks, {row, std::min(row + ROWS_OF_ITEM, rows)});
        }
        first += items;
        at += rows * lora->a.outputs;
    }
}

void LowRanks::expand(const bf16* hidden, float* values, int thread, int threads) const {
    constexpr int64_t GROUPS_OF_PANEL = PANEL / THIN_GROUP;
    const Range panels = share((outputs() + PANEL - 1) / PANEL, thread, threads);
    int64_t at = 0;
    for (const auto& [lora, begin, end] : runs_) {
        const ThinProduct product = lora->b.product(hidden + at, values + places_[begin] * lora->b.outputs, false);
        const int64_t last = std::min(panels.end * GROUPS_OF_PANEL, lora->b.num_groups());
        for (int64_t group = panels.begin * GROUPS_OF_PANEL; group < last; group++)
            AT_LEVEL(thin_product, product, group, {0, end - begin});
        at += (end - begin) * lora->a.outputs;
    }
}

Addend LowRanks::multiply(const bf16* x, bf16* hidden, float* values, int thread, int threads) const {
    reduce(x, hidden, thread, threads);
    wait_for_all(threads);
    expand(hidden, values, thread, threads);
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
    nb::class_<LowRank>(module, "LowRank")
        .def(nb::init<const Array&, const Array&>(), nb::arg("a"), nb::arg("b"), nb::call_guard<nb::gil_scoped_release>());  // steps go on
    nb::class_<LowRanks>(module, "LowRanks").def(nb::init<std::vector<LowRanks::Run>, int64_t>(), nb::arg("runs"), nb::arg("rows"));
}
