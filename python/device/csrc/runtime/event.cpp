#include "runtime/event.h"

#include <c10/util/Exception.h>

#include "runtime/stream.h"

namespace chorus {

namespace {

chorus_event handle(void* event) {
  return chorus_event(reinterpret_cast<uintptr_t>(event));
}

} // namespace

void record(void** event, const c10::Stream& stream, DeviceIndex index, bool timing) {
  TORCH_CHECK(
      index < 0 || index == stream.device_index(), "Event device ", int(index),
      " does not match recording stream's device ", int(stream.device_index()), ".");
  chorus_stream on = handle_of(stream);
  chorus_event e = handle(*event);
  if (e == 0) {
    check(lib.event_create(timing ? CHORUS_EVENT_TIMING : 0, &e));
    *event = reinterpret_cast<void*>(uintptr_t(e));
  }
  check(lib.event_record(e, on));
}

void wait(const c10::Stream& stream, void* event) {
  if (event)
    check(lib.stream_wait_event(handle_of(stream), handle(event)));
}

bool query(void* event) {
  return !event || ready(lib.event_query(handle(event)));
}

void synchronize(void* event) {
  if (!event)
    return;
  awaited(
      [](uint64_t event) { return lib.event_await(event, 0); },
      [](uint64_t event) { return lib.event_synchronize(event, 0); }, handle(event));
}

double elapsed(void* start, void* end) {
  TORCH_CHECK(start && end, "Both events must be recorded before calculating elapsed time.");
  double ms = 0;
  check(lib.event_elapsed(handle(start), handle(end), &ms));
  return ms;
}

void destroy(void* event) noexcept {
  if (event)
    lib.event_release(handle(event));
}

} // namespace chorus
