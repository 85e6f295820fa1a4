// AddressMap maps addresses of memory to values. Every CPU tensor's memory is looked up when it's freed, so the range
// of all addresses rejects most of them first.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <unordered_map>

namespace chorus {

template <typename T>
class AddressMap {
 public:
  void add(void* at, T what) {
    widen(lowest_, uintptr_t(at), [](uintptr_t a, uintptr_t b) { return a < b; });
    widen(highest_, uintptr_t(at), [](uintptr_t a, uintptr_t b) { return a > b; });
    Part& p = part(at);
    std::lock_guard<std::mutex> lock(p.mutex);
    p.known[at] = what;
  }

  std::optional<T> find(void* at) {
    return look(at, false);
  }

  std::optional<T> take(void* at) {
    return look(at, true);
  }

  // lock and unlock are for a fork: no other thread is in the middle of something then.
  void lock() {
    for (Part& p : parts_)
      p.mutex.lock();
  }

  void unlock() {
    for (Part& p : parts_)
      p.mutex.unlock();
  }

 private:
  struct Part {
    std::mutex mutex;
    std::unordered_map<void*, T> known;
  };

  template <typename Better>
  static void widen(std::atomic<uintptr_t>& bound, uintptr_t at, Better better) {
    uintptr_t was = bound.load(std::memory_order_relaxed);
    while (better(at, was) && !bound.compare_exchange_weak(was, at, std::memory_order_relaxed)) {
    }
  }

  Part& part(void* at) {
    return parts_[uintptr_t(at) >> 9 & (parts_.size() - 1)];
  }

  std::optional<T> look(void* at, bool take) {
    uintptr_t a = uintptr_t(at);
    if (a < lowest_.load(std::memory_order_relaxed) || a > highest_.load(std::memory_order_relaxed))
      return std::nullopt;
    Part& p = part(at);
    std::lock_guard<std::mutex> lock(p.mutex);
    auto found = p.known.find(at);
    if (found == p.known.end())
      return std::nullopt;
    T what = found->second;
    if (take)
      p.known.erase(found);
    return what;
  }

  std::atomic<uintptr_t> lowest_{UINTPTR_MAX}, highest_{0};
  std::array<Part, 16> parts_;
};

} // namespace chorus
