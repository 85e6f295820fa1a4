// The Python module torch_accinte._C.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/Generator.h>

#include "allocator.h"
#include "cpu_allocator.h"
#include "custom.h"
#include "fallback.h"
#include "generator.h"
#include "guard.h"
#include "hooks.h"
#include "host_allocator.h"
#include "mapped.h"
#include "stats.h"
#include "stream.h"

namespace chorus {

namespace {

namespace py = pybind11;

// start makes a type of device PyTorch's.
void start(const std::string& path, const std::string& name, const std::string& driver) {
  plug(path, name, driver);
  wrap_cpu_allocator();
  c10::SetAllocator(kType, device_allocator());
  host_allocator();
  register_guard();
  register_hooks();
  register_custom(name);
}

py::object generator_of(DeviceIndex index) {
  return py::reinterpret_steal<py::object>(THPGenerator_initDefaultGenerator(default_generator(index)));
}

} // namespace

PYBIND11_MODULE(_C, m) {
  py::register_exception_translator([](std::exception_ptr p) {
    try {
      if (p)
        std::rethrow_exception(p);
    } catch (...) {
      torch::translate_exception_to_python(std::current_exception());
    }
  });
  m.def("start", &start);
  m.def("device_count", &count);
  m.def("current_device", &current);
  m.def("set_device", [](int64_t index) { set_current(in_range(index)); });
  m.def("exchange_device", [](int64_t index) { return exchange_current(in_range(index)); });
  m.def("init", [] { device(current()); });
  m.def("is_initialized", &initialized);
  m.def("is_loaded", &loaded);
  m.def("default_generator", &generator_of);
  m.def("memory_stats", [](DeviceIndex index) { return figures(in_range(index)); });
  m.def("block", &block);
  m.def("map_cpu_memory", &map_cpu_memory);
}

} // namespace chorus
