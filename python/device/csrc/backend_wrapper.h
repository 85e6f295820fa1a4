// torchcomms' _BackendWrapper: a communicator as a backend of torch.distributed's process groups.
//
// PyTorch gives Python no constructor of c10d::Backend, so that this one is written here. It has no part in devices: it
// calls the methods of a process group that is written in Python, chorus.torchcomms._wrapper.CommGroup.
#pragma once

#include <pybind11/pybind11.h>

namespace chorus {

// backend_wrapper gives the Python class, which it makes at its first call. torch.distributed is loaded before.
pybind11::object backend_wrapper();

} // namespace chorus
