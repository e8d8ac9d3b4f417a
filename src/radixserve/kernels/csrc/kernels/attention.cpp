// Attention over the pool: walks an item's keys tile by tile, left to right, and lets threads take items.
#include "attention.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

#include "attention_items.h"
#include "bf16.h"
#include "threads.h"

#ifdef __AVX512F__
#include "attention_tile_avx512.h"
#else
#include "attention_tile_portable.h"
#endif

namespace KERNEL_LEVEL {
namespace {

constexpr double LOG2_E = 1.4426950408889634;

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
        if (!memory_) throw std::bad_alloc();
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

thread_local Scratch item_scratch, partial_scratch;

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

// Members [first, end) of an item meet a tile, whose slots are the same for all of them.
struct Stop {
    int tile;
    int first, end;
    int64_t offsets[TILE];  // of its keys in the pool; what nobody sees is never read, as its slot may belong to others
    int count;              // keys from here on are seen by nobody
};

// The computation of one item. Rows are ordered by KV head, member, query, query head.
class ItemRunner {
  public:
    ItemRunner(const AttentionCall& call, const Shape& shape, const std::vector<Request>& requests, const Item& item)
        : call_(call), shape_(shape), requests_(requests), item_(item) {
        for (const Member& member : item.members) head_rows_ += int(member.num_queries) * call.group;
        rows_ = item.num_heads * head_rows_;
    }

    // Asks for the first tile, so that it comes while the thread works at another item.
    void announce() const {
        Stop stop;
        if (first_stop(stop)) prefetch(key_tile(stop, 0), shape_);
    }

    void run() {
        reserve();
        load_queries();
        start(state_, rows_, shape_);
        Stop stops[2];
        int current = 0;
        bool more = first_stop(stops[0]);
        while (more) {
            more = next_stop(stops[current], stops[1 - current]);
            fold(stops[current], more ? &stops[1 - current] : nullptr);
            current = 1 - current;
        }
        if (!item_.is_part) finish();
    }

    // Folds all stored tiles of a request that was cut into parts, and finishes it.
    void run_stored() {
        start(state_, rows_, shape_);
        const Request& request = requests_[item_.members[0].request];
        for (int tile = request.first_tile; tile < request.end_tile; ++tile) fold_state(state_, stored(tile), rows_, shape_);
        finish();
    }

  private:
    void reserve() {
        const int64_t tile_size = int64_t(TILE) * shape_.padded, q_size = rows_ * int64_t(shape_.padded);
        item_scratch.reset(state_size(rows_, shape_) + q_size + Scratch::aligned(2 * head_rows_) + 2 * tile_size + shape_.padded);
        state_ = state_at(item_scratch.take(state_size(rows_, shape_)), rows_, shape_);
        q_ = reinterpret_cast<uint16_t*>(item_scratch.take(q_size));
        masks_ = reinterpret_cast<uint64_t*>(item_scratch.take(2 * head_rows_));
        packed_ = {item_scratch.take(tile_size), item_scratch.take(tile_size)};
        row_out_ = item_scratch.take(shape_.padded);
    }

    const Request& request(int member) const { return requests_[item_.members[member].request]; }

    State stored(int tile) const {
        return state_at(request(0).partials + (tile - request(0).first_tile) * state_size(rows_, shape_), rows_, shape_);
    }

    // Calls visit(row, index of its first element in q and out) for all rows, in order.
    template <class Visit>
    void each_row(const Visit& visit) const {
        int row = 0;
        for (int head = item_.first_head; head < item_.first_head + item_.num_heads; ++head)
            for (const Member& member : item_.members)
                for (int64_t i = 0; i < member.num_queries; ++i) {
                    const int64_t token = requests_[member.request].first_token + member.first_query + i;
                    for (int g = 0; g < call_.group; ++g, ++row)
                        visit(row, ((token * call_.num_kv_heads + head) * call_.group + g) * call_.head_dim);
                }
    }

    void load_queries() const {
        each_row([&](int row, int64_t from) {
            uint16_t* to = q_ + row * int64_t(shape_.padded);
            std::fill(to + call_.head_dim, to + shape_.padded, uint16_t(0));
            if (call_.q_is_bf16) {
                std::memcpy(to, static_cast<const uint16_t*>(call_.q) + from, call_.head_dim * sizeof(uint16_t));
            } else {
                const float* q = static_cast<const float*>(call_.q) + from;
                std::transform(q, q + call_.head_dim, to, round_to_bf16);
            }
        });
    }

    bool first_stop(Stop& stop) const {
        int tile = INT32_MAX;
        for (const Member& member : item_.members) tile = std::min(tile, member.first_tile);
        return find_stop(tile, 0, stop);
    }

    bool next_stop(const Stop& stop, Stop& next) const { return find_stop(stop.tile, stop.end, next); }

    // The first stop at `tile`, from member `first` on, or at a later tile. Members that share a tile are neighbours.
    bool find_stop(int tile, int first, Stop& stop) const {
        const int count = int(item_.members.size());
        int end_tile = 0;
        for (const Member& member : item_.members) end_tile = std::max(end_tile, member.end_tile);
        for (; tile < end_tile; ++tile, first = 0) {
            while (first < count && !meets(first, tile)) ++first;
            if (first == count) continue;
            int end = first + 1;
            while (end < count && item_.members[end - 1].shared_tiles > tile && meets(end, tile)) ++end;
            stop.tile = tile, stop.first = first, stop.end = end;
            locate_keys(stop);
            return true;
        }
        return false;
    }

    bool meets(int member, int tile) const { return item_.members[member].first_tile <= tile && tile < item_.members[member].end_tile; }

    void locate_keys(Stop& stop) const {
        const int64_t start = int64_t(stop.tile) * TILE, slot_size = int64_t(call_.num_kv_heads) * call_.head_dim;
        int64_t first = TILE, end = 0;
        for (int m = stop.first; m < stop.end; ++m) {
            const Member& member = item_.members[m];
            const int64_t oldest = request(m).position(member.first_query);
            first = std::min(first, call_.window ? std::max<int64_t>(0, oldest + 1 - call_.window - start) : 0);
            end = std::max(end, std::min<int64_t>(TILE, oldest + member.num_queries - start));
        }
        stop.count = int(end);
        const int32_t* slots = request(stop.first).slots + start;
        for (int64_t j = 0; j < TILE; ++j) stop.offsets[j] = slots[std::clamp(j, first, end - 1)] * slot_size;
    }

    // Which keys of the stop's tile each row of a head sees. Returns the first of these rows in the head, and their number.
    int set_masks(const Stop& stop, int& first_row) {
        const int64_t start = int64_t(stop.tile) * TILE;
        first_row = 0;
        for (int m = 0; m < stop.first; ++m) first_row += int(item_.members[m].num_queries) * call_.group;
        uint64_t* to = masks_;
        for (int m = stop.first; m < stop.end; ++m)
            for (int64_t i = 0; i < item_.members[m].num_queries; ++i, to += call_.group) {
                const int64_t end = request(m).position(item_.members[m].first_query + i) + 1 - start;
                const int64_t first = call_.window ? end - call_.window : 0;
                uint64_t mask = end >= TILE ? ~uint64_t(0) : end <= 0 ? 0 : (uint64_t(1) << end) - 1;
                if (first > 0) mask = first >= TILE ? 0 : mask & ~uint64_t(0) << first;
                std::fill_n(to, call_.group, mask);
            }
        return int(to - masks_);
    }

    void fold(const Stop& stop, const Stop* next) {
        State state = state_;
        if (item_.is_part) {
            state = stored(stop.tile);
            start(state, rows_, shape_);
        }
        int first_row, end = set_masks(stop, first_row), first = 0;
        while (!masks_[first]) ++first;
        while (!masks_[end - 1]) --end;
        for (int head = 0; head < item_.num_heads; ++head) {
            const int row = head * head_rows_ + first_row + first;
            const bool same_stop = head + 1 < item_.num_heads;
            const KeyTile keys = key_tile(stop, head);
            const KeyTile ahead = same_stop ? key_tile(stop, head + 1) : key_tile(next ? *next : stop, 0);
            const Rows rows{end - first, q_ + row * int64_t(shape_.padded), masks_ + first, state_from(state, row, shape_)};
            fold_tile(keys, same_stop || next ? &ahead : nullptr, rows, shape_, packed_);
        }
    }

    KeyTile key_tile(const Stop& stop, int head) const {
        const int64_t at = int64_t(item_.first_head + head) * call_.head_dim;
        return {call_.k + at, call_.v + at, stop.offsets, stop.count};
    }

    void finish() const {
        each_row([&](int row, int64_t to) {
            finish_row(state_, row, shape_, row_out_);
            if (call_.out_is_bf16)
                std::transform(row_out_, row_out_ + call_.head_dim, static_cast<uint16_t*>(call_.out) + to, round_to_bf16);
            else
                std::memcpy(static_cast<float*>(call_.out) + to, row_out_, call_.head_dim * sizeof(float));
        });
    }

    const AttentionCall& call_;
    const Shape& shape_;
    const std::vector<Request>& requests_;
    const Item& item_;
    int head_rows_ = 0, rows_;
    State state_;
    uint16_t* q_;
    uint64_t* masks_;
    Packed packed_;
    float* row_out_;
};

// Room for the states of tiles of requests that are cut into parts.
void make_partials(const AttentionCall& call, const Shape& shape, std::vector<Request>& requests) {
    const auto size = [&](const Request& r) {
        return r.unfinished == 1 ? 0 : r.num_tiles() * state_size(int(r.extend_len) * call.group * call.num_kv_heads, shape);
    };
    int64_t total = 0;
    for (const Request& r : requests) total += size(r);
    partial_scratch.reset(total);
    for (Request& r : requests) r.partials = partial_scratch.take(size(r));
}

}  // namespace

void attend(const AttentionCall& call) {
    const Shape shape{call.head_dim, padded_dim(call.head_dim), float(call.scale * LOG2_E)};
    Items cut(call);
    make_partials(call, shape, cut.requests);
    const int count = int(cut.items.size());
    std::atomic<int> next{0};
    in_parallel(cut.num_threads, [&](int, int threads) {
        for (int i; (i = next.fetch_add(1, std::memory_order_relaxed)) < count;) {
            const Item& item = cut.items[i];
            ItemRunner walk(call, shape, cut.requests, item);
            if (i < threads) walk.announce();
            if (i + threads < count) ItemRunner(call, shape, cut.requests, cut.items[i + threads]).announce();
            walk.run();
            if (!item.is_part) continue;
            int& unfinished = cut.requests[item.members[0].request].unfinished;
            if (__atomic_sub_fetch(&unfinished, 1, __ATOMIC_ACQ_REL) == 0) walk.run_stored();
        }
    });
}

}  // namespace KERNEL_LEVEL
