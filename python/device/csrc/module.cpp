// The Python module chorus_device._C.
#include <array>
#include <complex>
#include <variant>

#include <pybind11/complex.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/Generator.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include "aten/examples.h"
#include "aten/fallback.h"
#include "distributed/backend_wrapper.h"
#include "memory/alloc_sites.h"
#include "memory/allocator.h"
#include "memory/cpu_allocator.h"
#include "memory/host_allocator.h"
#include "memory/mapped.h"
#include "memory/shared.h"
#include "memory/staging.h"
#include "memory/stats.h"
#include "native/jiterator.h"
#include "native/native.h"
#include "native/source.h"
#include "runtime/autograd_shutdown.h"
#include "runtime/exit.h"
#include "runtime/generator.h"
#include "runtime/graph.h"
#include "runtime/guard.h"
#include "runtime/hooks.h"
#include "runtime/launch.h"
#include "runtime/profiler.h"
#include "runtime/stream.h"

namespace chorus {

namespace {

namespace py = pybind11;
using Pool = std::array<uint64_t, 2>; // a memory pool's id

// start registers a type of device with PyTorch.
void start(
    const std::string& path, const std::string& name, const std::vector<std::string>& drivers, uint64_t main_thread) {
  plug(path, name, drivers, main_thread);
  wrap_cpu_allocator();
  c10::SetAllocator(kType, device_allocator());
  host_allocator();
  register_guard();
  register_hooks();
  register_autograd_fallback();
  register_graph();
  register_profiler();
}

// recover waits for a stream's work, clears the stream's error, and returns its text.
std::string recover(int64_t id, DeviceIndex index) {
  chorus_stream stream = handle_of(c10::Stream(c10::Stream::UNSAFE, c10::Device(kType, index), id));
  return lib.stream_recover(stream, 0) == CHORUS_OK ? "" : lib.last_error()->message;
}

// arguments_of are a kernel's, as Python gives them.
std::vector<Argument> arguments_of(const py::args& given) {
  std::vector<Argument> arguments;
  arguments.reserve(given.size());
  for (py::handle a : given) {
    if (THPVariable_Check(a.ptr()))
      arguments.emplace_back(THPVariable_Unpack(a.ptr()));
    else if (py::isinstance<py::float_>(a))
      arguments.emplace_back(a.cast<double>());
    else
      arguments.emplace_back(a.cast<int64_t>());
  }
  return arguments;
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
  m.def("compile_by", &compile_by);
  m.def("register_examples", &register_examples);
  m.def("backend_wrapper", &backend_wrapper);
  m.def("device_count", &count);
  m.def("driver", &driver);
  m.def("set_sync_debug", [](int mode) { set_sync_debug(SyncDebug(mode)); });
  m.def("sync_debug", [] { return int(sync_debug()); });
  m.def("seed_later", &seed_later);
  m.def("current_device", &current);
  m.def("set_device", [](int64_t index) { set_current(in_range(index)); });
  m.def("exchange_device", [](int64_t index) { return exchange_current(in_range(index)); });
  m.def("init", [] { device(current()); });
  m.def("is_initialized", &initialized);
  m.def("exit_without_drivers", &exit_without_drivers);
  m.def("drain_autograd", &drain_autograd, py::call_guard<py::gil_scoped_release>());
  m.def("is_loaded", &loaded);
  m.def("default_generator", &generator_of);
  m.def("memory_stats", [](DeviceIndex index) { return figures(in_range(index)); });
  m.def("host_memory_stats", &host_figures);
  m.def("reset_host_memory_stats", [](bool peaks) {
    at::HostAllocator* allocator = at::getHostAllocator(kType);
    peaks ? allocator->reset_peak_stats() : allocator->reset_accumulated_stats();
  });
  m.def("peer_capable", [](DeviceIndex index, DeviceIndex peer) {
    int32_t capable = 0;
    check(lib.device_peer_capable(device(index).handle, device(peer).handle, &capable));
    return capable != 0;
  });
  m.def("set_memory_fraction", [](DeviceIndex index, double f) {
    check(lib.device_set_fraction(device(index).handle, f));
  });
  m.def("record_alloc_sites", &record_alloc_sites);
  m.def("record_memory_history", [](DeviceIndex index, int64_t n) {
    check(lib.device_record_history(device(index).handle, n));
  });
  m.def("memory_snapshot", [](DeviceIndex index, const std::string& path) {
    check(lib.device_snapshot(device(index).handle, path.c_str()));
  });
  m.def("new_pool", [] {
    Pool pool;
    need_library();
    check(lib.pool_new(pool.data()));
    return pool;
  });
  m.def("begin_pool", [](DeviceIndex i, const Pool& pool) { check(lib.pool_begin(device(i).handle, pool.data())); });
  m.def("end_pool", [](DeviceIndex i, const Pool& pool) { check(lib.pool_end(device(i).handle, pool.data())); });
  m.def("release_pool", [](DeviceIndex i, const Pool& pool) {
    check(lib.pool_release(device(i).handle, pool.data()));
  });
  m.def("memory_info", &memory_info);
  m.def("staged_bytes", [](DeviceIndex index) { return staged(in_range(index)); });
  m.def("stream_handle", [](DeviceIndex index, int64_t id) {
    return handle_of(c10::Stream(c10::Stream::UNSAFE, c10::Device(kType, index), id));
  });
  m.def("adopt_stream", [](DeviceIndex index, uint64_t native) {
    return adopted_stream(in_range(index), native).id();
  });
  m.def("abandon_stream", [](DeviceIndex index, int64_t id) {
    abandon(c10::Stream(c10::Stream::UNSAFE, c10::Device(kType, index), id));
  });
  m.def("is_capturing", [](DeviceIndex index) { return capturing(current_handle(index)); });
  m.def("block", &block);
  m.def("fallbacks", &met);
  m.def("fallback_counts", &calls);
  m.def("operator_calls", [] {
    std::map<std::string, std::pair<int64_t, int64_t>> all;
    for (const OperatorCalls& o : operator_calls())
      all[o.name] = {o.by_kernels, o.by_host};
    return all;
  });
  m.def("native_operators", &native_names);
  m.def("absent_operators", &absent_names);
  using Number = std::variant<bool, int64_t, double, std::complex<double>>;
  m.def("jitted", [](const std::string& text, int64_t results, const std::vector<at::Tensor>& tensors,
                     const std::vector<Number>& numbers) {
    py::gil_scoped_release release;
    std::vector<at::Scalar> scalars;
    for (const Number& n : numbers)
      if (auto z = std::get_if<std::complex<double>>(&n))
        scalars.emplace_back(c10::complex<double>(*z));
      else
        std::visit([&](auto v) { if constexpr (std::is_arithmetic_v<decltype(v)>) scalars.emplace_back(v); }, n);
    return jitted(text, results, tensors, scalars);
  });
  m.def("kernel_counts", [](DeviceIndex index) {
    chorus_kernel_info k{};
    k.size = sizeof k;
    check(lib.kernel_get(device(index).handle, &k));
    return std::map<std::string, int64_t>{
        {"compiled", k.compiled}, {"from_disk", k.from_disk}, {"refused", k.refused}, {"launched", k.launched},
        {"multiplied", k.multiplied}, {"transformed", k.transformed}, {"solved", k.solved}};
  });
  m.def("blas_handle", [](DeviceIndex index) {
    void* handle = nullptr;
    check(lib.blas_handle(current_handle(in_range(index)), &handle));
    return reinterpret_cast<uintptr_t>(handle);
  });
  m.def("tune_set", [](bool enabled, bool tuning, int milliseconds, int iterations) {
    check(lib.tune_set(enabled, tuning, milliseconds, iterations));
  });
  m.def("tune_add", [](const std::string& line) { check(lib.tune_add(line.c_str())); });
  m.def("tune_results", [] {
    const char* text = nullptr;
    check(lib.tune_results(&text));
    return std::string(text);
  });
  m.def("fft_plans", [](DeviceIndex index) {
    chorus_fft_info t{};
    t.size = sizeof t;
    check(lib.fft_get(device(in_range(index)).handle, &t));
    return std::make_tuple(t.plans, t.most_plans);
  });
  m.def("keep_fft_plans", [](DeviceIndex index, int64_t most) {
    check(lib.fft_plans(device(in_range(index)).handle, most));
  });
  m.def("use_philox", &use_philox);
  m.def("recover", &recover);
  m.def("start_profile", [] {
    need_library();
    check(lib.profile_start(driver().c_str()));
  });
  m.def("write_profile", [](const std::string& path) { check(lib.profile_write(driver().c_str(), path.c_str())); });
  m.def("launch", [](uintptr_t kernel, const std::string& title, uint64_t constant, const py::args& given) {
    std::vector<Argument> arguments = arguments_of(given);
    py::gil_scoped_release unlocked;
    launch(kernel, title, arguments, constant);
  });
  m.def("add_source", &add_source);
  m.def("run_source", [](int32_t source, const std::string& title, int64_t units, bool rows, bool checked,
                         const py::args& given) {
    std::vector<Argument> arguments = arguments_of(given);
    py::gil_scoped_release unlocked;
    run_source(source, title, units, rows, checked, arguments);
  });
  m.def("share_storage", [](const at::Storage& storage) {
    Shared s = share(storage);
    return py::make_tuple(py::bytes(s.handle), s.offset);
  });
  m.def("open_storage", [](DeviceIndex index, py::bytes handle, int64_t offset, size_t bytes, py::function closed) {
    auto kept = std::make_shared<py::function>(std::move(closed));
    return open_shared(in_range(index), {std::string(handle), offset}, bytes, [kept]() mutable {
      if (!Py_IsInitialized()) {
        (void)new std::shared_ptr<py::function>(std::move(kept)); // leaked: Python has ended
        return;
      }
      py::gil_scoped_acquire lock;
      (*kept)();
      kept.reset();
    });
  });
  m.def("map_cpu_memory", &map_cpu_memory);
}

} // namespace chorus
