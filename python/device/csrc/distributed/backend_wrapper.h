// torchcomms' _BackendWrapper: a communicator as a backend of torch.distributed's process groups.
//
// Python can't subclass c10d::Backend, which has no constructor there, so this one is written in C++. It has nothing to
// do with devices: it calls the methods of a process group written in Python, chorus.torchcomms._wrapper.CommGroup.
#pragma once

#include <pybind11/pybind11.h>

namespace chorus {

// backend_wrapper returns the Python class; the first call makes it. torch.distributed must be loaded before.
pybind11::object backend_wrapper();

} // namespace chorus
