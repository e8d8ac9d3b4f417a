#include "memory.h"

#include <sys/mman.h>

#include <new>

HugeMemory::HugeMemory(size_t bytes) {
    constexpr size_t HUGE_PAGE = 2 << 20, LINE = 64;
    const size_t unit = bytes < HUGE_PAGE / 4 ? LINE : HUGE_PAGE;  // an adapter's small weights would waste most of a page each
    bytes = (bytes + unit - 1) / unit * unit;
    data_.reset(std::aligned_alloc(unit, bytes));
    if (!data_) throw std::bad_alloc();
#ifdef MADV_HUGEPAGE
    if (unit == HUGE_PAGE) madvise(data_.get(), bytes, MADV_HUGEPAGE);
#endif
}
