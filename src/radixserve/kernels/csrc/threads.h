// The threads of a kernel: those of the OpenMP runtime that torch has loaded.
//
// Functions in headers are static: each level must keep its own copy, or the linker gives one level's to all.
#pragma once
#include <omp.h>

#include <cstdint>

int num_threads();
void set_num_threads(int n);

struct Range {
    int64_t begin, end;
};

// The part of 0 .. count - 1 that falls to one of several threads. Who computes an element never changes its value.
static inline Range share(int64_t count, int thread, int threads) { return {count * thread / threads, count * (thread + 1) / threads}; }

// Runs work(thread, threads) on every thread and waits for all. A single thread pays nothing.
template <class Work>
static inline void in_parallel(int threads, const Work& work) {
    if (threads <= 1) {
        work(0, 1);
        return;
    }
#pragma omp parallel num_threads(threads)
    work(omp_get_thread_num(), omp_get_num_threads());
}

// Inside in_parallel: nobody goes on before all are here.
static inline void wait_for_all(int threads) {
    if (threads > 1) {
#pragma omp barrier
    }
}
