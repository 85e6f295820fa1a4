#include "memory/shared.h"

#include "memory/allocator.h"

namespace chorus {

namespace {

// Opened is memory of another process.
struct Opened {
  DeviceIndex index;
  void* piece;
  std::function<void()> closed;
};

void close(void* p) noexcept {
  auto* o = static_cast<Opened*>(p);
  chorus_device d = device(o->index).handle;
  {
    Unlocked unlocked;
    lib.device_await(d, 0); // for work that uses it; errors stay in their streams
  }
  lib.memory_close(d, o->piece);
  try {
    o->closed();
  } catch (...) { // the other process is gone
  }
  delete o;
}

} // namespace

Shared share(const c10::Storage& storage) {
  Shared s;
  char handle[256];
  int64_t n = 0;
  chorus_device d = device(storage.device().index()).handle;
  check(lib.memory_handle(d, storage.data(), handle, sizeof handle, &n, &s.offset));
  s.handle.assign(handle, size_t(n));
  return s;
}

c10::Storage open_shared(DeviceIndex index, const Shared& shared, size_t bytes, std::function<void()> closed) {
  chorus_device d = device(index).handle;
  void* piece = nullptr;
  check(lib.memory_open(d, shared.handle.data(), int64_t(shared.handle.size()), &piece));
  auto* opened = new Opened{index, piece, std::move(closed)};
  c10::DataPtr memory(static_cast<char*>(piece) + shared.offset, opened, &close, c10::Device(kType, index));
  return c10::Storage(
      c10::Storage::use_byte_size_t(), bytes, std::move(memory), device_allocator(), /*resizable=*/false);
}

} // namespace chorus
