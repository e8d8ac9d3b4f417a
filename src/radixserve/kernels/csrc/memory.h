// Memory of weights, and of threads.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

// Memory on huge pages where it fills a quarter of one and the system gives them on request: weights are read in order, once a step.
class HugeMemory {
  public:
    explicit HugeMemory(size_t bytes);  // throws std::bad_alloc
    void* data() const { return data_.get(); }

  private:
    std::unique_ptr<void, decltype(&std::free)> data_{nullptr, &std::free};
};

// Memory of one thread that stays between calls: fresh memory costs page faults.
template <class T>
static inline T* scratch(std::vector<T>& memory, int64_t size) {
    if (static_cast<int64_t>(memory.size()) < size) memory.resize(size);
    return memory.data();
}
