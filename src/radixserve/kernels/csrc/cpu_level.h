// Levels of instruction sets that the kernels are compiled for, and the one that this process uses.
#pragma once

enum class Level { portable, avx2, avx512, avx512_bf16 };

// The best level that this CPU and operating system run; what `choose_level` set, if it was called.
Level level();
const char* level_name(Level);
// Lowers the level, for tests. Returns false and changes nothing when the CPU lacks it.
bool choose_level(Level);

// Calls `function` of the namespace of the current level. Kernel sources wrap their code in `namespace KERNEL_LEVEL`.
#ifdef HAVE_X86_LEVELS
#define AT_LEVEL(function, ...)                                         \
    (level() == Level::avx512_bf16 ? avx512_bf16::function(__VA_ARGS__) \
     : level() == Level::avx512    ? avx512::function(__VA_ARGS__)      \
     : level() == Level::avx2      ? avx2::function(__VA_ARGS__)        \
                                   : portable::function(__VA_ARGS__))
#else
#define AT_LEVEL(function, ...) portable::function(__VA_ARGS__)
#endif

// Declares a kernel in the namespace of every level: DECLARE_KERNEL(void scale(float* x, int64_t n))
#define DECLARE_KERNEL(...) \
    namespace portable {    \
    __VA_ARGS__;            \
    }                       \
    namespace avx2 {        \
    __VA_ARGS__;            \
    }                       \
    namespace avx512 {      \
    __VA_ARGS__;            \
    }                       \
    namespace avx512_bf16 { \
    __VA_ARGS__;            \
    }
