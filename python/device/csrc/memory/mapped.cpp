#include "memory/mapped.h"

#include <pthread.h>

#include <bit>
#include <vector>

#include <c10/util/Exception.h>

#include "memory/address_map.h"
#include "runtime/runtime.h"

namespace chorus {

namespace {

// From this size on the library reduces mapped memory in place; smaller tensors travel in slots.
constexpr size_t kLeast = 4096;
// From this size on the library's own cache is as good: its call costs less than touching the memory.
constexpr size_t kLarge = 1 << 20;
// One for each power of two between them, both included.
constexpr int kClasses = std::bit_width(kLarge) - std::bit_width(kLeast) + 1;
constexpr uint8_t kUncached = kClasses;
constexpr size_t kKept = 8 << 20; // bytes that a class keeps

// Cache is freed mapped memory, by its class, and the classes of the memory in use.
class Cache {
 public:
  void* take(size_t n) {
    uint8_t c = n >= kLarge ? kUncached : uint8_t(std::bit_width(n - 1) - std::bit_width(kLeast - 1));
    void* p = nullptr;
    if (c != kUncached) {
      std::lock_guard<std::mutex> lock(mutex_);
      if (!free_[c].empty()) {
        p = free_[c].back();
        free_[c].pop_back();
      }
    }
    if (p == nullptr && lib.alloc(c == kUncached ? n : kLeast << c, 0, &p) != CHORUS_OK)
      return nullptr;
    used_.add(p, c);
    return p;
  }

  bool give(void* p) {
    std::optional<uint8_t> c = used_.take(p);
    if (!c)
      return false;
    if (forked_)
      return true; // it's the parent's
    if (*c != kUncached) {
      std::lock_guard<std::mutex> lock(mutex_);
      if (free_[*c].size() < kKept / (kLeast << *c)) {
        free_[*c].push_back(p);
        return true;
      }
    }
    lib.free(p);
    return true;
  }

  bool forked() const {
    return forked_;
  }

  void before_fork() {
    mutex_.lock();
    used_.lock();
  }

  void after_fork(bool child) {
    forked_ = forked_ || child;
    used_.unlock();
    mutex_.unlock();
  }

 private:
  std::mutex mutex_;
  std::vector<void*> free_[kClasses];
  AddressMap<uint8_t> used_;
  std::atomic<bool> forked_{false};
};

Cache& cache() {
  static auto* c = new Cache; // CPU tensors may be freed at the very end of the process
  return *c;
}

std::atomic<bool> wanted{false};

} // namespace

void map_cpu_memory(bool on) {
  if (!on) {
    wanted = false;
    return;
  }
  TORCH_CHECK(!cache().forked(), "a child made by fork can't have memory that peers map; start it by 'spawn'");
  need_library();
  static std::once_flag once;
  std::call_once(once, [] {
    pthread_atfork(
        [] { cache().before_fork(); }, [] { cache().after_fork(false); },
        [] {
          wanted = false; // the library doesn't work in a child made by fork
          cache().after_fork(true);
        });
  });
  wanted = true;
}

void* take_mapped(size_t n) noexcept {
  return n < kLeast || !wanted.load(std::memory_order_relaxed) ? nullptr : cache().take(n);
}

bool give_mapped(void* p) noexcept {
  return cache().give(p);
}

} // namespace chorus
