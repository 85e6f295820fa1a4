// Tensors that stand for device tensors in kernels of PyTorch's, and back.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include "block.h"

namespace chorus {

// Mirror is what one operator works on instead of device tensors: CPU tensors over the same memory, as the engine sees
// it, or Meta tensors, which have none. Tensors that share a storage share one here, too.
//
// Where the process can't touch the device's memory, CPU tensors have memory of the host's: fetch copies what they
// reach into it, and settle copies back what wrote was told of. Whoever does that has entered the stream.
class Mirror {
 public:
  explicit Mirror(DeviceIndex index, c10::DeviceType kind = c10::DeviceType::CPU);

  // host is what stands for a device tensor; the same one each time.
  at::Tensor host(const at::Tensor& tensor);

  // device is the device tensor that one of the kind stands for: one that host was asked for, or a new one. Its memory
  // is that of a CPU tensor, copied only if it isn't the device's, and new for a Meta tensor. Others are returned as
  // they are.
  at::Tensor device(const at::Tensor& tensor);

  // fetch gets the tensors' elements, once all are met.
  void fetch();

  // wrote says that the operator writes to what stands for a device tensor.
  void wrote(const at::Tensor& tensor);

  // settle gives the device tensors the sizes and the memory that what stands for them was given.
  void settle();

  struct Pair {
    at::Tensor device, host;
  };
  struct Shared {
    c10::Storage device, host;
    void* data; // of the host's at first
    bool made;  // here
  };

  // tensors and storages are all that were met, in this order.
  const c10::SmallVector<Pair, 6>& tensors() const {
    return tensors_;
  }
  const c10::SmallVector<Shared, 6>& storages() const {
    return storages_;
  }

 private:
  c10::Storage host(const c10::Storage& storage);
  c10::Storage device(const c10::Storage& storage);
  c10::DataPtr adopt(const c10::Storage& host);
  void settle(Shared& storage);

  DeviceIndex index_;
  c10::DeviceType kind_;
  bool staged_;
  c10::SmallVector<Pair, 6> tensors_;
  c10::SmallVector<Shared, 6> storages_;
  c10::SmallVector<size_t, 2> written_; // positions of tensors
};

} // namespace chorus
