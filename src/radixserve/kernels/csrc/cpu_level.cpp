#include "cpu_level.h"

#include <initializer_list>

static bool cpu_has(Level level) {
#ifdef HAVE_X86_LEVELS
    __builtin_cpu_init();
    if (level == Level::avx512_bf16)
        return cpu_has(Level::avx512) && __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vnni");
    if (level == Level::avx512)
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
               __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("fma");
    if (level == Level::avx2) return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#endif
    return level == Level::portable;
}

static Level best() {
    for (Level level : {Level::avx512_bf16, Level::avx512, Level::avx2})
        if (cpu_has(level)) return level;
    return Level::portable;
}

static Level current = best();

Level level() { return current; }

const char* level_name(Level level) {
    switch (level) {
        case Level::avx512_bf16:
            return "avx512_bf16";
        case Level::avx512:
            return "avx512";
        case Level::avx2:
            return "avx2";
        default:
            return "portable";
    }
}

bool choose_level(Level level) {
    if (!cpu_has(level)) return false;
    current = level;
    return true;
}
