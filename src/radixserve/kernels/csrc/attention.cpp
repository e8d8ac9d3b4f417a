// Attention over the pool: cuts a step into items, walks each item's keys tile by tile, left to right, and shares items out to threads.
//
// An item is a run of one request's queries under some of its KV heads. A decode whose keys are many may be cut over tiles: then each
// tile's state is stored, and whoever finishes the request's last part folds them, in the same order as an item would have.
#include "attention.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#ifdef __AVX512BF16__
#include "attention_tile_avx512.h"
#else
#include "attention_tile_portable.h"
#endif

namespace KERNEL_LEVEL {
namespace {

constexpr int NARROW_ROWS = 8;                  // requests of at most as many rows a KV head keep all heads in one item
constexpr int MAX_ITEM_ROWS = 192;              // of a wide request: enough to pay for packing, few enough to stay in the L2 cache
constexpr int MIN_ITEM_QUERIES = 16;            // of a wide request, however many threads want work
constexpr int MIN_PART_TILES = 4;               // of a narrow request that is cut over tiles
constexpr int ITEMS_PER_THREAD = 4;             // so that threads end at about the same time
constexpr int64_t SERIAL_BYTES = 256 << 10;     // of keys and values: waking a thread costs as much as reading these
constexpr double LOG2_E = 1.4426950408889634;

struct Request {
    const int32_t* slots;  // of its positions
    int64_t seq_len;
    int64_t extend_len;
    int64_t first_token;  // of the step
    int first_tile;       // that any of its queries sees
    int end_tile;
    int unfinished = 1;         // parts
    float* partials = nullptr;  // states of its tiles, where it has several parts
};

struct Item {
    int request;
    int first_head, num_heads;
    int64_t first_query, num_queries;  // of the tokens that the request computes
    int first_tile, end_tile;
    bool is_part;
    int64_t cost;
};

// Memory of one thread, kept from call to call.
class Scratch {
   public:
    // `count` floats, aligned to cache lines, valid until the next `reset`.
    float* take(int64_t count) {
        float* const taken = memory_.get() + used_;
        used_ += aligned(count);
        return taken;
    }
    void reset(int64_t count) {
        used_ = 0;
        if (count <= size_) return;
        memory_.reset(static_cast<float*>(std::aligned_alloc(64, count * sizeof(float))));
        size_ = count;
    }
    static int64_t aligned(int64_t count) { return (count + 15) / 16 * 16; }

   private:
    struct Free {
        void operator()(float* p) const { std::free(p); }
    };
    std::unique_ptr<float, Free> memory_;
    int64_t size_ = 0, used_ = 0;
};

int64_t state_size(int rows, const Shape& shape) { return rows * int64_t(LANES + shape.padded) + Scratch::aligned(rows); }

State state_at(float* memory, int rows, const Shape& shape) {
    return {memory, memory + rows * LANES, memory + rows * int64_t(LANES + shape.padded)};
}

State state_from(const State& state, int row, const Shape& shape) {
    return {state.sum + row * LANES, state.out + row * int64_t(shape.padded), state.max + row};
}

void start(const State& state, int rows, const Shape& shape) {
    std::fill_n(state.sum, rows * LANES, 0.0f);
    std::fill_n(state.out, rows * int64_t(shape.padded), 0.0f);
    std::fill_n(state.max, rows, LOWEST);
}

uint16_t round_to_bf16(float x) {
    uint32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    if ((bits & 0x7fffffff) > 0x7f800000) return uint16_t(bits >> 16 | 0x40);  // NaN
    return uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// Keys of one tile that an item's queries see, and which of its rows sees which.
struct Visible {
    int64_t offsets[TILE];
    int count;
};

class Walk {
   public:
    Walk(const AttentionCall& call, const Shape& shape, const Request& request, const Item& item, Scratch& scratch)
        : call_(call), shape_(shape), request_(request), item_(item), head_rows_(int(item.num_queries) * call.group),
          rows_(item.num_heads * head_rows_) {
        const int64_t tile_size = int64_t(TILE) * shape.padded;
        scratch.reset(state_size(rows_, shape) + Scratch::aligned(rows_ * int64_t(shape.padded)) + Scratch::aligned(2 * head_rows_) +
                      2 * tile_size + Scratch::aligned(shape.padded));
        state_ = state_at(scratch.take(state_size(rows_, shape)), rows_, shape);
        q_ = reinterpret_cast<uint16_t*>(scratch.take(rows_ * int64_t(shape.padded)));
        masks_ = reinterpret_cast<uint64_t*>(scratch.take(2 * head_rows_));
        packed_ = {scratch.take(tile_size), scratch.take(tile_size)};
        row_out_ = scratch.take(shape.padded);
    }

    void run() {
        load_queries();
        start(state_, rows_, shape_);
        see(item_.first_tile, visible_[0]);
        for (int head = 0; head < item_.num_heads; ++head) prefetch(key_tile(visible_[0], head), shape_);
        for (int tile = item_.first_tile; tile < item_.end_tile; ++tile) {
            const int current = (tile - item_.first_tile) & 1;
            const bool has_next = tile + 1 < item_.end_tile;
            if (has_next) see(tile + 1, visible_[1 - current]);
            fold(tile, visible_[current], has_next ? &visible_[1 - current] : nullptr);
        }
        if (!item_.is_part) finish();
    }

    // Folds all stored tiles of a request that was cut into parts, and finishes it.
    void run_stored() {
        start(state_, rows_, shape_);
        for (int tile = request_.first_tile; tile < request_.end_tile; ++tile) fold_state(state_, stored(tile), rows_, shape_);
        finish();
    }

   private:
    int64_t position(int64_t query) const { return request_.seq_len - request_.extend_len + query; }
    int64_t q_row(int head, int64_t query) const {
        return ((request_.first_token + query) * call_.num_kv_heads + item_.first_head + head) * call_.group;
    }
    State stored(int tile) const {
        return state_at(request_.partials + (tile - request_.first_tile) * state_size(rows_, shape_), rows_, shape_);
    }

    // Rows are ordered by head, query, query head.
    void load_queries() {
        uint16_t* to = q_;
        for (int head = 0; head < item_.num_heads; ++head)
            for (int64_t i = 0; i < item_.num_queries; ++i)
                for (int g = 0; g < call_.group; ++g, to += shape_.padded) {
                    const int64_t from = (q_row(head, item_.first_query + i) + g) * call_.head_dim;
                    std::fill(to + call_.head_dim, to + shape_.padded, uint16_t(0));
                    if (call_.q_is_bf16)
                        std::memcpy(to, static_cast<const uint16_t*>(call_.q) + from, call_.head_dim * sizeof(uint16_t));
                    else
                        std::transform(static_cast<const float*>(call_.q) + from, static_cast<const float*>(call_.q) + from + call_.head_dim,
                                       to, round_to_bf16);
                }
    }

    // Finds the keys of a tile. Keys that no row sees are never read: their slots may belong to others.
    void see(int tile, Visible& visible) const {
        const int64_t start = int64_t(tile) * TILE, slot_size = int64_t(call_.num_kv_heads) * call_.head_dim;
        const int64_t first_position = position(item_.first_query), end_position = position(item_.first_query + item_.num_queries);
        const int64_t first = call_.window ? std::max<int64_t>(0, first_position + 1 - call_.window - start) : 0;
        visible.count = int(std::min<int64_t>(TILE, end_position - start));
        for (int64_t j = 0; j < TILE; ++j)
            visible.offsets[j] = request_.slots[start + std::clamp<int64_t>(j, first, visible.count - 1)] * slot_size;
    }

    void set_masks(int tile) {
        const int64_t start = int64_t(tile) * TILE;
        for (int64_t i = 0; i < item_.num_queries; ++i) {
            const int64_t end = position(item_.first_query + i) + 1 - start, first = call_.window ? end - call_.window : 0;
            uint64_t mask = end >= TILE ? ~uint64_t(0) : end <= 0 ? 0 : (uint64_t(1) << end) - 1;
            if (first > 0) mask = first >= TILE ? 0 : mask & ~uint64_t(0) << first;
            std::fill_n(masks_ + i * call_.group, call_.group, mask);
        }
    }

    void fold(int tile, const Visible& visible, const Visible* next) {
        State state = state_;
        if (item_.is_part) {
            state = stored(tile);
            start(state, rows_, shape_);
        }
        set_masks(tile);
        int first = 0, end = head_rows_;
        while (!masks_[first]) ++first;
        while (!masks_[end - 1]) --end;
        for (int head = 0; head < item_.num_heads; ++head) {
            const int row = head * head_rows_ + first;
            const KeyTile keys = key_tile(visible, head), ahead = key_tile(next ? *next : visible, head);
            fold_tile(keys, next ? &ahead : nullptr,
                      {end - first, q_ + row * int64_t(shape_.padded), masks_ + first, state_from(state, row, shape_)}, shape_, packed_);
        }
    }

    KeyTile key_tile(const Visible& visible, int head) const {
        const int64_t at = int64_t(item_.first_head + head) * call_.head_dim;
        return {call_.k + at, call_.v + at, visible.offsets, visible.count};
    }

    void finish() {
        int row = 0;
        for (int head = 0; head < item_.num_heads; ++head)
            for (int64_t i = 0; i < item_.num_queries; ++i)
                for (int g = 0; g < call_.group; ++g, ++row) {
                    const int64_t to = (q_row(head, item_.first_query + i) + g) * call_.head_dim;
                    finish_row(state_, row, shape_, row_out_);
                    if (call_.out_is_bf16)
                        std::transform(row_out_, row_out_ + call_.head_dim, static_cast<uint16_t*>(call_.out) + to, round_to_bf16);
                    else
                        std::memcpy(static_cast<float*>(call_.out) + to, row_out_, call_.head_dim * sizeof(float));
                }
    }

    const AttentionCall& call_;
    const Shape& shape_;
    const Request& request_;
    const Item& item_;
    int head_rows_, rows_;
    State state_;
    uint16_t* q_;
    uint64_t* masks_;
    Packed packed_;
    float* row_out_;
    Visible visible_[2];
};

int first_tile(const AttentionCall& call, int64_t position) {
    return call.window ? int(std::max<int64_t>(0, position + 1 - call.window) / TILE) : 0;
}

std::vector<Request> read_requests(const AttentionCall& call) {
    std::vector<Request> requests(call.num_requests);
    int64_t token = 0;
    for (int b = 0; b < call.num_requests; ++b) {
        Request& r = requests[b];
        r.slots = call.slot_table + call.rows[b] * call.table_stride;
        r.seq_len = call.seq_lens[b];
        r.extend_len = call.extend_lens[b];
        r.first_token = token;
        r.first_tile = first_tile(call, r.seq_len - r.extend_len);
        r.end_tile = int((r.seq_len + TILE - 1) / TILE);
        token += r.extend_len;
    }
    return requests;
}

bool is_narrow(const AttentionCall& call, const Request& r) { return r.extend_len * call.group <= NARROW_ROWS; }

// How items are cut: as few as keep the threads busy.
struct Grain {
    int64_t part_tiles;
    int64_t queries;
};

Grain choose_grain(const AttentionCall& call, const std::vector<Request>& requests, int num_threads) {
    int64_t narrow_tiles = 0, wide_queries = 0;
    for (const Request& r : requests) {
        if (is_narrow(call, r)) narrow_tiles += r.end_tile - r.first_tile;
        else wide_queries += r.extend_len * call.num_kv_heads;
    }
    const int64_t most = std::max(1, MAX_ITEM_ROWS / call.group), least = std::min<int64_t>(MIN_ITEM_QUERIES, most);
    if (num_threads == 1) return {INT64_MAX, most};
    const int64_t num_items = num_threads * ITEMS_PER_THREAD;
    return {std::max<int64_t>(MIN_PART_TILES, narrow_tiles / num_items), std::clamp(wide_queries / num_items, least, most)};
}

void add_narrow(const AttentionCall& call, std::vector<Request>& requests, int b, int64_t part_tiles, std::vector<Item>& items) {
    Request& r = requests[b];
    const int num_tiles = r.end_tile - r.first_tile;
    r.unfinished = part_tiles >= num_tiles ? 1 : int((num_tiles + part_tiles / 2) / part_tiles);
    for (int part = 0; part < r.unfinished; ++part) {
        const int first = r.first_tile + num_tiles * part / r.unfinished, end = r.first_tile + num_tiles * (part + 1) / r.unfinished;
        const int64_t cost = int64_t(end - first) * call.num_kv_heads * (8 + r.extend_len * call.group);
        items.push_back({b, 0, call.num_kv_heads, 0, r.extend_len, first, end, r.unfinished > 1, cost});
    }
}

void add_wide(const AttentionCall& call, const Request& r, int b, int64_t queries, std::vector<Item>& items) {
    for (int64_t query = 0; query < r.extend_len; query += queries) {
        const int64_t count = std::min(queries, r.extend_len - query), position = r.seq_len - r.extend_len + query;
        const int first = first_tile(call, position), end = int((position + count + TILE - 1) / TILE);
        for (int head = 0; head < call.num_kv_heads; ++head)
            items.push_back({b, head, 1, query, count, first, end, false, (end - first) * (8 + count * call.group)});
    }
}

std::vector<Item> cut(const AttentionCall& call, std::vector<Request>& requests, int num_threads) {
    const Grain grain = choose_grain(call, requests, num_threads);
    std::vector<Item> items;
    for (int b = 0; b < call.num_requests; ++b) {
        if (is_narrow(call, requests[b])) add_narrow(call, requests, b, grain.part_tiles, items);
        else add_wide(call, requests[b], b, grain.queries, items);
    }
    std::stable_sort(items.begin(), items.end(), [](const Item& a, const Item& b) { return a.cost > b.cost; });
    return items;
}

int choose_threads(const AttentionCall& call, const std::vector<Request>& requests) {
    int64_t bytes = 0;
    for (const Request& r : requests)
        bytes += (r.end_tile - r.first_tile) * int64_t(TILE) * call.num_kv_heads * call.head_dim * 4 * std::max<int64_t>(1, r.extend_len / 8);
    return bytes < SERIAL_BYTES ? 1 : call.num_threads;
}

thread_local Scratch item_scratch, partial_scratch;

void store_parts(const AttentionCall& call, const Shape& shape, std::vector<Request>& requests) {
    const auto size = [&](const Request& r) {
        if (r.unfinished == 1) return int64_t(0);
        return (r.end_tile - r.first_tile) * state_size(int(r.extend_len) * call.group * call.num_kv_heads, shape);
    };
    int64_t total = 0;
    for (const Request& r : requests) total += size(r);
    partial_scratch.reset(total);
    for (Request& r : requests) r.partials = partial_scratch.take(size(r));
}

}  // namespace

void attend(const AttentionCall& call) {
    const Shape shape{call.head_dim, padded_dim(call.head_dim), float(call.scale * LOG2_E)};
    std::vector<Request> requests = read_requests(call);
    const int num_threads = choose_threads(call, requests);
    const std::vector<Item> items = cut(call, requests, num_threads);
    store_parts(call, shape, requests);
#pragma omp parallel for schedule(dynamic, 1) num_threads(num_threads)
    for (size_t i = 0; i < items.size(); ++i) {
        Request& request = requests[items[i].request];
        Walk walk(call, shape, request, items[i], item_scratch);
        walk.run();
        if (items[i].is_part && __atomic_sub_fetch(&request.unfinished, 1, __ATOMIC_ACQ_REL) == 0) walk.run_stored();
    }
}

}  // namespace KERNEL_LEVEL
