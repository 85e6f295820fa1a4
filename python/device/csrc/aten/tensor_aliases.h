// CPU and Meta tensors that stand for device tensors in PyTorch's kernels, and back.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include "memory/block.h"

namespace chorus {

// TensorAliases makes the tensors on which one operator works instead of device tensors: CPU tensors over the same
// memory, at the engine's addresses, or Meta tensors, which have none. Tensors that share a storage share one here,
// too.
//
// A sparse tensor is replaced by one whose parts are replaced.
//
// If the process can't access the device's memory, CPU tensors have memory of the host. Then fetch copies the elements
// into it, and settle copies back the elements of tensors that were passed to wrote, on the current stream.
//
// CPU tensors don't own the device's memory: a kernel that may keep them has it as a loan, until the Loans are over.
class TensorAliases {
 public:
  explicit TensorAliases(DeviceIndex index, c10::DeviceType kind = c10::DeviceType::CPU);

  // host is the tensor that stands for a device tensor; the same one at each call.
  at::Tensor host(const at::Tensor& tensor);

  // device is the device tensor for a CPU or Meta tensor: the one that was passed to host, or a new one. A new one
  // takes the memory of a CPU tensor, copied only if it isn't the device's, and gets new memory for a Meta tensor.
  // Tensors of other kinds are returned unchanged.
  at::Tensor device(const at::Tensor& tensor);

  // fetch copies the tensors' elements to the host, after host was called for all of them.
  void fetch();

  // wrote records that the operator writes to a device tensor.
  void wrote(const at::Tensor& tensor);

  // settle gives the device tensors the new sizes, memory, and conjugate and negative bits of the tensors that stand for
  // them.
  void settle();

  struct Pair {
    at::Tensor device, host;
  };
  struct Shared {
    c10::Storage device, host;
    void* data; // the host storage's, at first
    bool made;  // whether the TensorAliases made the device storage
  };

  // tensors and storages are all that were passed to host or made by device, in this order.
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
  void settle(Pair& sparse);

  friend class Loans;

  DeviceIndex index_;
  c10::DeviceType kind_;
  bool staged_;
  c10::SmallVector<Pair, 6> tensors_;
  c10::SmallVector<Shared, 6> storages_;
  c10::SmallVector<Pair, 2> sparse_;
  c10::SmallVector<size_t, 2> written_; // positions of tensors
};

// Loans are the borrowed storages of one call of a kernel. When the call is over, those that the kernel has kept, or a
// tensor in which it has kept, get memory of their own with a copy.
class Loans {
 public:
  Loans() = default;
  explicit Loans(TensorAliases& aliases) : aliases_(&aliases) {}
  ~Loans();
  Loans(const Loans&) = delete;
  Loans& operator=(const Loans&) = delete;

  // lend is a tensor like a CPU tensor over borrowed memory, which it isn't, in a storage of this call's. Tensors that
  // own their memory are returned unchanged.
  at::Tensor lend(const at::Tensor& tensor);

  // over ends the call. The caller has dropped its own references, and still has the stream's turn. The destructor does
  // the same if the call has failed.
  void over();

 private:
  struct Loan {
    c10::Storage from, to;
  };
  TensorAliases* aliases_ = nullptr; // whose storages are lent
  c10::SmallVector<Loan, 4> lent_;
};

} // namespace chorus
