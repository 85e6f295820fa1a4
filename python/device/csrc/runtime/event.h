// Events. PyTorch keeps an event as a pointer, NULL until it's recorded; here the pointer is the library's handle.
#pragma once

#include <c10/core/Stream.h>

#include "runtime/runtime.h"

namespace chorus {

void record(void** event, const c10::Stream& stream, DeviceIndex index, bool timing);
void wait(const c10::Stream& stream, void* event);
bool query(void* event);
void synchronize(void* event);
double elapsed(void* start, void* end); // milliseconds
void destroy(void* event) noexcept;

} // namespace chorus
