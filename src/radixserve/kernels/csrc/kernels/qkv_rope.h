// What happens to the heads of a layer between the projection and attention: the norm of q and k where a model has one, the rotation,
// and the storing of k and v into their slots. All in float; q, k and v are rounded once, to bf16.
#pragma once
#include <cstdint>

#include "cpu_level.h"
#include "norm.h"

struct QkvRope {
    const float* qkv;                  // [tokens, num_heads + 2 * num_kv_heads, head_dim]
    const float *cos, *sin;            // [positions, head_dim / 2]
    Norm q_norm, k_norm;               // of [head_dim]; weight is null where there is none
    const int64_t *positions, *slots;  // [tokens]
    bf16 *k_pool, *v_pool;             // [slots of the pool, num_kv_heads, head_dim]
    bf16* q;                           // [tokens, num_heads, head_dim]
    int64_t tokens, num_heads, num_kv_heads, head_dim;
};

DECLARE_KERNEL(void rope_and_store(const QkvRope& h, int64_t token))
DECLARE_KERNEL(void widen(const bf16* x, float* y, int64_t size))
