// The threads of a kernel: one team for the process, made when it is first needed.
//
// Functions in headers are static: each level must keep its own copy, or the linker gives one level's to all.
#pragma once
#include <cstdint>

int num_threads();
void set_num_threads(int n);

struct Range {
    int64_t begin, end;
};

// The part of 0 .. count - 1 that falls to one of several threads. Who computes an element never changes its value.
static inline Range share(int64_t count, int thread, int threads) { return {count * thread / threads, count * (thread + 1) / threads}; }

// Calls job(work, thread, threads) on every thread of a team of `threads`, the caller's among them, and waits for all. Callers from
// several threads take turns.
void run_on_team(int threads, void (*job)(const void* work, int thread, int threads), const void* work);

// Runs work(thread, threads) on every thread and waits for all. A single thread pays nothing.
template <class Work>
static inline void in_parallel(int threads, const Work& work) {
    if (threads <= 1) {
        work(0, 1);
        return;
    }
    const auto job = [](const void* w, int thread, int of) { (*static_cast<const Work*>(w))(thread, of); };
    run_on_team(threads, job, &work);
}

// Inside in_parallel: nobody goes on before all are here.
void wait_for_all(int threads);
