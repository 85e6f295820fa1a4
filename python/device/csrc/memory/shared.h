// Memory of devices that several processes share.
#pragma once

#include <functional>
#include <string>

#include <c10/core/Storage.h>

#include "runtime/runtime.h"

namespace chorus {

// Shared describes a storage to another process that opens it.
struct Shared {
  std::string handle; // of the driver's allocation that contains the storage
  int64_t offset;     // of the storage there, in bytes
};

// share describes a storage for other processes.
Shared share(const c10::Storage& storage);

// open_shared is a storage over memory that another process has described. When the storage is freed, and this
// process's work on the device is over, closed is called.
c10::Storage open_shared(DeviceIndex index, const Shared& shared, size_t bytes, std::function<void()> closed);

} // namespace chorus
