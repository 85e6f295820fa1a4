// Memory of devices that several processes have.
#pragma once

#include <functional>
#include <string>

#include <c10/core/Storage.h>

#include "runtime.h"

namespace chorus {

// Shared is what another process needs to have a storage as well.
struct Shared {
  std::string handle; // of the piece of the driver's memory that the storage lies in
  int64_t offset;     // of the storage there
};

// share describes a storage for other processes.
Shared share(const c10::Storage& storage);

// open_shared is a storage over memory that another process has described. When nobody has it any more, and this
// process's work on the device is over, closed is called.
c10::Storage open_shared(DeviceIndex index, const Shared& shared, size_t bytes, std::function<void()> closed);

} // namespace chorus
