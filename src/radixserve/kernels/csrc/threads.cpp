// A team of threads that computes in turns of some microseconds, about a hundred a step.
//
// A thread that sleeps takes longer to wake than many a turn lasts, and on a virtual machine a core that falls idle takes longer
// still. One that spins while it waits answers at once; but beside a program that wants its core it uses up its share of it, and
// then is kept off for a whole time slice while its mates wait. So a thread spins for a moment and then sleeps; and where that
// loses more time to such waits than it can win, nobody spins for a while.
#include "threads.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
using Nanoseconds = std::chrono::nanoseconds;

constexpr int SPINS = 2000;  // some tens of microseconds: longer than what lies between two calls of a layer
constexpr auto WINDOW = std::chrono::milliseconds(50);
constexpr int MOST_LOST = 2;  // half of a window
constexpr auto REST = std::chrono::milliseconds(500);

void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("isb");
#endif
}

// A count that one thread raises and others wait for.
class alignas(64) Bell {
  public:
    uint32_t count() const { return count_.load(std::memory_order_acquire); }

    void ring() {
        count_.fetch_add(1);
        if (sleepers_.load() == 0) return;
        {
            std::lock_guard hold(mutex_);
        }  // who was about to sleep sleeps now, and is woken
        rung_.notify_all();
    }

    // Whether the count is no longer `seen`, asked at most `times`.
    bool spin(uint32_t seen, int times) const {
        for (int i = 0; i < times; ++i) {
            if (count() != seen) return true;
            pause();
        }
        return false;
    }

    // Returns when the count is no longer `seen`.
    void sleep(uint32_t seen) {
        std::unique_lock hold(mutex_);
        sleepers_.fetch_add(1);
        rung_.wait(hold, [&] { return count_.load() != seen; });
        sleepers_.fetch_sub(1);
    }

  private:
    std::atomic<uint32_t> count_{0};
    std::atomic<int> sleepers_{0};
    std::mutex mutex_;
    std::condition_variable rung_;
};

class Team {
  public:
    void run(int threads, void (*job)(const void*, int, int), const void* work) {
        std::lock_guard turn(turn_);
        while (int(starts_.size()) < threads - 1) hire();
        if (const auto now = Clock::now(); now - window_begin_ > WINDOW) judge(now);
        job_ = job, work_ = work, threads_ = threads;
        for (int i = 0; i < threads - 1; ++i) starts_[i]->ring();
        job(work, 0, threads);
        wait_for_all(threads);
    }

    void wait_for_all(int threads) {
        const uint32_t seen = all_here_.count();
        if (here_.fetch_add(1) + 1 == threads) {
            here_.store(0, std::memory_order_relaxed);
            all_here_.ring();
            return;
        }
        if (all_here_.spin(seen, spins())) return;
        const auto begin = Clock::now();
        all_here_.sleep(seen);
        lost_.fetch_add(Nanoseconds(Clock::now() - begin).count() / (threads - 1), std::memory_order_relaxed);
    }

  private:
    int spins() const { return spins_.load(std::memory_order_relaxed); }

    // Decides whether threads spin until the next window.
    void judge(Clock::time_point now) {
        const Nanoseconds lost(lost_.exchange(0, std::memory_order_relaxed));
        if (spins() && lost * MOST_LOST > now - window_begin_) rest_end_ = now + REST;
        spins_.store(now < rest_end_ ? 0 : SPINS, std::memory_order_relaxed);
        window_begin_ = now;
    }

    void hire() {
        starts_.push_back(std::make_unique<Bell>());
        std::thread(&Team::serve, this, int(starts_.size()), starts_.back().get()).detach();
    }

    void serve(int thread, Bell* start) {
        for (uint32_t turns = 0;; ++turns) {
            if (!start->spin(turns, spins())) start->sleep(turns);
            job_(work_, thread, threads_);
            wait_for_all(threads_);
        }
    }

    std::mutex turn_;
    std::vector<std::unique_ptr<Bell>> starts_;  // of each thread but the caller's
    void (*job_)(const void*, int, int);
    const void* work_;
    int threads_;
    alignas(64) std::atomic<int> here_{0};
    Bell all_here_;
    std::atomic<int64_t> lost_{0};  // nanoseconds of this window in which a thread slept until the others came
    std::atomic<int> spins_{SPINS};
    Clock::time_point window_begin_, rest_end_;
};

// Never destroyed: its threads wait for it until the process ends. A forked process has none of them and makes its own.
Team* team = new Team;
const int on_fork = pthread_atfork(nullptr, nullptr, [] { team = new Team; });

int threads_set = 0;

}  // namespace

int num_threads() { return threads_set ? threads_set : std::max(int(std::thread::hardware_concurrency()), 1); }

void set_num_threads(int n) {
    if (n < 1) throw std::invalid_argument("n is " + std::to_string(n) + ": must be at least 1");
    threads_set = n;
}

void run_on_team(int threads, void (*job)(const void*, int, int), const void* work) { team->run(threads, job, work); }

void wait_for_all(int threads) {
    if (threads > 1) team->wait_for_all(threads);
}
