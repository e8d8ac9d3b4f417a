// How a step's attention is cut into items, which threads take one by one.
//
// A wide request (many rows a KV head) is cut by KV heads and by runs of its queries. A narrow one (a decode) is one item; if its
// keys are many and requests few, it is cut into parts over its tiles. Narrow requests whose slots begin alike are kept together
// where that pays, cut by KV heads instead: their common tiles are then read once for all of them. No cut changes a result.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "attention.h"

namespace KERNEL_LEVEL {
namespace {

constexpr int NARROW_ROWS = 8;               // at most as many rows a KV head
constexpr int MAX_ITEM_ROWS = 192;           // enough to pay for packing, few enough to stay in the L2 cache
constexpr int MIN_ITEM_QUERIES = 16;         // of a wide request, however many threads want work
constexpr int MIN_PART_TILES = 4;            // of a narrow request that is cut over tiles
constexpr int ITEMS_PER_THREAD = 4;          // so that threads end at about the same time
constexpr int FAMILY_ITEMS_PER_THREAD = 2;   // fewer, as each reads what its requests share
constexpr int64_t SERIAL_BYTES = 256 << 10;  // of keys and values: waking a thread costs as much as reading these

struct Request {
    const int32_t* slots;  // of its positions
    int64_t seq_len;
    int64_t extend_len;
    int64_t first_token;  // of the step
    int first_tile;       // that any of its queries sees
    int end_tile;
    int unfinished = 1;         // parts
    float* partials = nullptr;  // states of its tiles, where it has several parts

    int64_t position(int64_t query) const { return seq_len - extend_len + query; }
    int num_tiles() const { return end_tile - first_tile; }
};

// Queries of one request, and the tiles that they see.
struct Member {
    int request;
    int64_t first_query, num_queries;
    int first_tile, end_tile;
    int shared_tiles;  // with the next member of the item
};

struct Item {
    std::vector<Member> members;
    int first_head, num_heads;
    bool is_part;  // stores the states of its tiles
    int64_t cost;
};

class Items {
  public:
    Items(const AttentionCall& call) : call_(call) {
        read_requests();
        choose_grain();
        cut();
        std::stable_sort(items.begin(), items.end(), [](const Item& a, const Item& b) { return a.cost > b.cost; });
    }

    std::vector<Request> requests;
    std::vector<Item> items;
    int num_threads;

  private:
    int first_tile(int64_t position) const { return call_.window ? int(std::max<int64_t>(0, position + 1 - call_.window) / TILE) : 0; }

    bool is_narrow(const Request& r) const { return r.extend_len * call_.group <= NARROW_ROWS; }

    void read_requests() {
        requests.resize(call_.num_requests);
        int64_t token = 0;
        for (int b = 0; b < call_.num_requests; ++b) {
            Request& r = requests[b];
            r.slots = call_.slot_table + call_.rows[b] * call_.table_stride;
            r.seq_len = call_.seq_lens[b];
            r.extend_len = call_.extend_lens[b];
            r.first_token = token;
            r.first_tile = first_tile(r.position(0));
            r.end_tile = int((r.seq_len + TILE - 1) / TILE);
            token += r.extend_len;
        }
    }

    // As few cuts as keep the threads busy.
    void choose_grain() {
        int64_t narrow_tiles = 0, wide_queries = 0, tiles = 0;
        for (const Request& r : requests) {
            (is_narrow(r) ? narrow_tiles : wide_queries) += is_narrow(r) ? r.num_tiles() : r.extend_len * call_.num_kv_heads;
            tiles += r.num_tiles() * std::max<int64_t>(1, r.extend_len / NARROW_ROWS);
        }
        const int64_t bytes = tiles * TILE * call_.num_kv_heads * call_.head_dim * 4;
        num_threads = bytes < SERIAL_BYTES ? 1 : call_.num_threads;
        num_wanted_ = num_threads == 1 ? 1 : num_threads * ITEMS_PER_THREAD;
        part_tiles_ = num_threads == 1 ? INT32_MAX : std::max<int64_t>(MIN_PART_TILES, narrow_tiles / num_wanted_);
        const int64_t most = std::max(1, MAX_ITEM_ROWS / call_.group), least = std::min<int64_t>(MIN_ITEM_QUERIES, most);
        queries_ = num_threads == 1 ? most : std::clamp(wide_queries / num_wanted_, least, most);
    }

    void cut() {
        for (int i = 0; i < call_.num_requests;) {
            const int b = call_.order[i];
            const int end = end_of_family(i);
            if (!is_narrow(requests[b]))
                add_wide(b);
            else if (pays(i, end))
                add_family(i, end);
            else
                for (int j = i; j < end; ++j) add_narrow(call_.order[j]);
            i = end;
        }
    }

    // Tiles that order[i] and order[i + 1] share and both see.
    int common_tiles(int i) const {
        const Request &a = requests[call_.order[i]], &b = requests[call_.order[i + 1]];
        return std::max(0, call_.shared_tiles[i] - std::max(a.first_tile, b.first_tile));
    }

    // Requests order[i], order[i + 1], ... that are narrow and begin alike; at least one.
    int end_of_family(int i) const {
        int end = i + 1;
        while (end < call_.num_requests && is_narrow(requests[call_.order[i]]) && is_narrow(requests[call_.order[end]]) &&
               common_tiles(end - 1) > 0)
            ++end;
        return end;
    }

    // Whether a third of a family's visits to tiles can be saved: below, nothing is gained.
    bool pays(int i, int end) const {
        int saved = 0, tiles = 0;
        for (int j = i; j < end; ++j) {
            tiles += requests[call_.order[j]].num_tiles();
            if (j + 1 < end) saved += common_tiles(j);
        }
        return 3 * saved >= tiles;
    }

    Member whole(int b, int shared_tiles = 0) const {
        const Request& r = requests[b];
        return {b, 0, r.extend_len, r.first_tile, r.end_tile, shared_tiles};
    }

    // Items keep as many heads as the threads allow: a slot's heads lie side by side in memory.
    void add_family(int first, int end) {
        const int count = end - first, per_item = MAX_ITEM_ROWS / NARROW_ROWS, num_heads = call_.num_kv_heads;
        const int wanted = num_threads == 1 ? 1 : num_threads * FAMILY_ITEMS_PER_THREAD, num_cuts = std::min(num_heads, wanted);
        const int num_runs = std::clamp((wanted + num_cuts - 1) / num_cuts, (count + per_item - 1) / per_item, (count + 3) / 4);
        for (int run = 0; run < num_runs; ++run) {
            const int run_first = first + count * run / num_runs, run_end = first + count * (run + 1) / num_runs;
            Item item{{}, 0, 0, false, 0};
            for (int i = run_first; i < run_end; ++i) {
                item.members.push_back(whole(call_.order[i], i + 1 < run_end ? call_.shared_tiles[i] : 0));
                item.cost += 2 * item.members.back().end_tile * num_heads / num_cuts;
            }
            for (int cut = 0; cut < num_cuts; ++cut) {
                item.first_head = num_heads * cut / num_cuts;
                item.num_heads = num_heads * (cut + 1) / num_cuts - item.first_head;
                items.push_back(item);
            }
        }
    }

    void add_narrow(int b) {
        Request& r = requests[b];
        const int num_tiles = r.num_tiles();
        r.unfinished = part_tiles_ >= num_tiles ? 1 : int((num_tiles + part_tiles_ / 2) / part_tiles_);
        for (int part = 0; part < r.unfinished; ++part) {
            Member member = whole(b);
            member.first_tile = r.first_tile + num_tiles * part / r.unfinished;
            member.end_tile = r.first_tile + num_tiles * (part + 1) / r.unfinished;
            const int64_t tiles = member.end_tile - member.first_tile;
            const int64_t cost = tiles * call_.num_kv_heads * (8 + r.extend_len * call_.group);
            items.push_back({{member}, 0, call_.num_kv_heads, r.unfinished > 1, cost});
        }
    }

    void add_wide(int b) {
        const Request& r = requests[b];
        for (int64_t query = 0; query < r.extend_len; query += queries_) {
            const int64_t count = std::min(queries_, r.extend_len - query);
            const int first = first_tile(r.position(query)), end = int((r.position(query) + count + TILE - 1) / TILE);
            for (int head = 0; head < call_.num_kv_heads; ++head)
                items.push_back({{{b, query, count, first, end, 0}}, head, 1, false, (end - first) * (8 + count * call_.group)});
        }
    }

    const AttentionCall& call_;
    int num_wanted_;
    int64_t part_tiles_, queries_;
};

}  // namespace
}  // namespace KERNEL_LEVEL
