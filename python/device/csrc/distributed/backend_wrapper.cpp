#include "distributed/backend_wrapper.h"

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <pybind11/chrono.h>
#include <pybind11/stl.h>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/jit/python/pybind_utils.h>
#include <torch/csrc/utils/pybind.h>

#include "runtime/version.h"

namespace chorus {

namespace {

namespace py = pybind11;
using std::chrono::milliseconds;
using Tensors = std::vector<at::Tensor>;
using Lists = std::vector<Tensors>;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;
using FuturePtr = c10::intrusive_ptr<c10::ivalue::Future>;

// Held is a Python object that C++ may release on any thread, and after the interpreter's end.
class Held {
 public:
  explicit Held(py::object object) : object_(std::move(object)) {}
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  ~Held() {
    if (!Py_IsInitialized()) {
      object_.release();
      return;
    }
    py::gil_scoped_acquire gil;
    object_ = py::object();
  }

  // call returns the result of a method.
  template <typename T, typename... Args>
  T call(const char* method, Args&&... args) const {
    py::gil_scoped_acquire gil;
    py::object result = object_.attr(method)(std::forward<Args>(args)...);
    if constexpr (!std::is_void_v<T>)
      return result.cast<T>();
  }

  // The caller holds the GIL.
  const py::object& get() const {
    return object_;
  }

 private:
  py::object object_;
};

// error_of is an operation's error; null if it didn't fail, or isn't over.
std::exception_ptr error_of(const Held& work) {
  py::gil_scoped_acquire gil;
  py::object error = work.get().attr("exception")();
  if (error.is_none())
    return nullptr;
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
  return std::make_exception_ptr(py::error_already_set());
}

// PythonWork is the handle of an operation under way, around its handle in Python.
class PythonWork final : public c10d::Work {
 public:
  PythonWork(py::object work, Tensors outputs)
      : work_(std::make_shared<Held>(std::move(work))), outputs_(std::move(outputs)) {}

  bool isCompleted() override {
    return work_->call<bool>("is_completed");
  }
  bool isSuccess() const override {
    return work_->call<bool>("is_success");
  }
  std::exception_ptr exception() const override {
    return error_of(*work_);
  }
  int sourceRank() const override {
    return work_->call<int>("source_rank");
  }
  Tensors result() override {
    work_->call<void>("wait");
    return outputs_;
  }
  void synchronize() override {
    work_->call<void>("synchronize");
  }
  bool wait(milliseconds timeout) override {
    return work_->call<bool>("wait", timeout);
  }
  void blockCurrentStream() CHORUS_LATER {
    work_->call<void>("block_current_stream");
  }
  // The future has the tensors, or the error, like those of backends in C++; Python's future holds a Python object.
  FuturePtr getFuture() override {
    return future("get_future")->then(
        [work = work_, outputs = outputs_](c10::ivalue::Future&) {
          if (std::exception_ptr error = error_of(*work))
            std::rethrow_exception(error);
          return c10::IValue(outputs);
        },
        c10::ListType::create(c10::TensorType::get()));
  }
  FuturePtr getFutureResult() override {
    return future("get_future_result");
  }

 private:
  FuturePtr future(const char* method) const {
    py::gil_scoped_acquire gil;
    return work_->get().attr(method)().cast<std::shared_ptr<torch::jit::PythonFutureWrapper>>()->fut;
  }

  std::shared_ptr<Held> work_;
  Tensors outputs_;
};

// DoneWork is the handle of an operation that is done, or enqueued on the current stream.
class DoneWork final : public c10d::Work {
 public:
  explicit DoneWork(Tensors outputs) : outputs_(std::move(outputs)) {}

  bool isCompleted() override {
    return true;
  }
  bool isSuccess() const override {
    return true;
  }
  Tensors result() override {
    return outputs_;
  }
  void synchronize() override {}
  bool wait(milliseconds) override {
    return true;
  }
  void blockCurrentStream() CHORUS_LATER {}
  FuturePtr getFuture() override {
    std::vector<c10::Device> devices;
    if (!outputs_.empty() && !outputs_[0].is_cpu())
      devices.push_back(outputs_[0].device());
    auto future = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()), devices);
    future->markCompleted(c10::IValue(outputs_));
    return future;
  }
  FuturePtr getFutureResult() override {
    auto future = c10::make_intrusive<c10::ivalue::Future>(c10::IntType::get());
    future->markCompleted(c10::IValue(static_cast<int64_t>(c10d::WorkResult::SUCCESS)));
    return future;
  }

 private:
  Tensors outputs_;
};

// given is a timeout for Python: None if there is none.
py::object given(milliseconds timeout) {
  return timeout == c10d::kUnsetTimeout ? py::none().cast<py::object>() : py::cast(timeout);
}

class BackendWrapper final : public c10d::Backend {
 public:
  // group is a CommGroup.
  explicit BackendWrapper(const py::object& group)
      : c10d::Backend(group.attr("rank")().cast<int>(), group.attr("size")().cast<int>()), group_(group) {}

  py::object comm() const {
    return group_.get().attr("get_comm")();
  }

  // ---- capabilities ----

  const std::string getBackendName() const override {
    return group_.call<std::string>("backend_name");
  }
  c10::intrusive_ptr<Options> getBackendOptions() CHORUS_LATER {
    return c10::make_intrusive<Options>(getBackendName(), group_.call<milliseconds>("get_timeout"));
  }
  bool supportsSplitting() const override {
    return true;
  }
  bool supportsCoalescing() const override {
    return true;
  }

  // ---- collectives ----

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) override {
    return run("broadcast", tensors, tensors, opts);
  }
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) override {
    return run("allreduce", tensors, tensors, opts);
  }
  WorkPtr allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& opts) override {
    return run("allreduce", tensors, tensors, opts);
  }
  WorkPtr allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& opts) override {
    return run("allreduce_coalesced", tensors, tensors, opts);
  }
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& opts) override {
    return run("reduce", tensors, tensors, opts);
  }
  WorkPtr allgather(Lists& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) override {
    return run("allgather", flat(outputs), outputs, inputs, opts);
  }
  WorkPtr allgather_coalesced(Lists& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) override {
    return run("allgather_coalesced", flat(outputs), outputs, inputs, opts);
  }
  WorkPtr allgather_into_tensor_coalesced(
      Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) override {
    return run("all_gather_single_coalesced", outputs, outputs, inputs, opts);
  }
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& opts) override {
    return run("all_gather_single", {output}, output, input, opts);
  }
  WorkPtr reduce_scatter(Tensors& outputs, Lists& inputs, const c10d::ReduceScatterOptions& opts) override {
    return run("reduce_scatter", outputs, outputs, inputs, opts);
  }
  WorkPtr reduce_scatter_tensor_coalesced(
      Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& opts) override {
    return run("reduce_scatter_single_coalesced", outputs, outputs, inputs, opts);
  }
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& opts) override {
    return run("reduce_scatter_single", {output}, output, input, opts);
  }
  WorkPtr alltoall_base(
      at::Tensor& output,
      at::Tensor& input,
      std::vector<int64_t>& output_splits,
      std::vector<int64_t>& input_splits,
      const c10d::AllToAllOptions& opts) override {
    return run("all_to_all_single", {output}, output, input, output_splits, input_splits, opts);
  }
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& opts) override {
    return run("alltoall", outputs, outputs, inputs, opts);
  }
  WorkPtr gather(Lists& outputs, Tensors& inputs, const c10d::GatherOptions& opts) override {
    return run("gather", flat(outputs), outputs, inputs, opts);
  }
  WorkPtr scatter(Tensors& outputs, Lists& inputs, const c10d::ScatterOptions& opts) override {
    return run("scatter", outputs, outputs, inputs, opts);
  }
  WorkPtr barrier(const c10d::BarrierOptions& opts) override {
    return run("barrier", {}, opts);
  }
  void monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks) override {
    py::gil_scoped_acquire gil;
    group_.get().attr("monitored_barrier")(given(opts.timeout), wait_all_ranks);
  }

  // ---- messages, and several operations as one ----

  WorkPtr send(Tensors& tensors, int rank, int tag) override {
    return run("send", tensors, tensors, rank, tag);
  }
  WorkPtr recv(Tensors& tensors, int rank, int tag) override {
    return run("recv", tensors, tensors, rank, tag);
  }
  WorkPtr recvAnysource(Tensors& tensors, int tag) override {
    return run("recv_anysource", tensors, tensors, tag);
  }
  void startCoalescing() override {
    group_.call<void>("begin_batch");
  }
  WorkPtr endCoalescing() override {
    return run("end_batch", {});
  }

  // ---- the backend itself ----

  // split returns the part of this rank, which is among ranks. The other ranks of this group call it, or split of the
  // communicator, with the ranks of their parts.
  c10::intrusive_ptr<c10d::Backend> split(
      const c10::intrusive_ptr<c10d::Store>&,
      const std::vector<int>& ranks,
      const c10::intrusive_ptr<Options>& opts) CHORUS_LATER {
    py::gil_scoped_acquire gil;
    py::object part = group_.get().attr("part")(ranks, opts->group_name, opts->timeout);
    if (part.is_none())
      return nullptr;
    return c10::make_intrusive<BackendWrapper>(part);
  }
  void setTimeout(milliseconds timeout) override {
    group_.call<void>("set_timeout", timeout);
  }
  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override {
    return group_.call<uint64_t>("_get_sequence_number_for_group");
  }
  c10d::ErrorType getError() CHORUS_LATER {
    return static_cast<c10d::ErrorType>(group_.call<int>("error_type"));
  }
  void abort() override {
    group_.call<void>("abort");
  }
  void shutdown() override {
    group_.call<void>("shutdown");
  }

 private:
  static Tensors flat(const Lists& lists) {
    Tensors all;
    for (const Tensors& tensors : lists)
      all.insert(all.end(), tensors.begin(), tensors.end());
    return all;
  }

  // run calls a method of the group, which fills outputs. It passes the method's exception on unchanged.
  template <typename... Args>
  WorkPtr run(const char* method, Tensors outputs, Args&&... args) {
    py::gil_scoped_acquire gil;
    py::object work = group_.get().attr(method)(std::forward<Args>(args)...);
    if (work.is_none())
      return c10::make_intrusive<DoneWork>(std::move(outputs));
    return c10::make_intrusive<PythonWork>(std::move(work), std::move(outputs));
  }

  Held group_;
};

} // namespace

py::object backend_wrapper() {
  constexpr const char* name = "_BackendWrapper";
  py::module_ m = py::module_::import("chorus_device._C");
  if (!py::hasattr(m, name)) {
    py::class_<BackendWrapper, c10::intrusive_ptr<BackendWrapper>, c10d::Backend>(
        m, name,
        "A communicator as a backend of a process group of torch.distributed, as _register_backend takes it.\n\n"
        "They share it: shutting the backend down finalizes it, and its hooks see the group's operations.")
        .def(py::init([](const py::object& comm) {
               py::module_ wrapper = py::module_::import("chorus.torchcomms._wrapper");
               return c10::make_intrusive<BackendWrapper>(wrapper.attr("CommGroup")(comm));
             }),
             py::arg("comm"))
        .def("get_comm", &BackendWrapper::comm, "The communicator.")
        .def("name", &BackendWrapper::getBackendName, "The communicator's backend.")
        .def_property_readonly("options", &BackendWrapper::getBackendOptions)
        .def("_set_default_timeout", &BackendWrapper::setTimeout, py::arg("timeout"));
  }
  return m.attr(name);
}

} // namespace chorus
