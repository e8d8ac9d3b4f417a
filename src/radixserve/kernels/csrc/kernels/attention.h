// Attention over the KV pool.
#pragma once
#include <cstdint>

#include "cpu_level.h"

constexpr int TILE = 64;  // keys that are attended together; the first one's position is a multiple of it
constexpr int64_t MAX_HEAD_DIM = 256;

// One layer of one step. Request b computes the last extend_lens[b] of its seq_lens[b] tokens; those tokens of all requests lie one
// after another in q and out. The key of position p of request b lies in slot slot_table[rows[b] * table_stride + p].
struct AttentionCall {
    const void* q;  // [T, num_kv_heads * group, head_dim], bf16 or float
    void* out;      // the same shape, bf16 or float
    bool q_is_bf16;
    bool out_is_bf16;
    const uint16_t* k;  // [slots, num_kv_heads, head_dim], bf16: one layer of the pool
    const uint16_t* v;
    const int32_t* slot_table;
    int64_t table_stride;
    int num_requests;
    const int64_t* rows;  // [num_requests] each
    const int64_t* seq_lens;
    const int64_t* extend_lens;
    const int* order;         // the requests, so that those with equal slots come together
    const int* shared_tiles;  // [num_requests]: whole tiles, from the first on, whose slots order[i] and order[i + 1] share
    int num_kv_heads;
    int group;  // query heads that share a KV head
    int head_dim;
    float scale;      // of the scores
    int64_t window;   // a token sees itself and the window - 1 tokens before it; 0: all before it
    int num_threads;  // at most; the result doesn't depend on it
};

DECLARE_KERNEL(void attend(const AttentionCall& call))
