#include "deferred.h"

#include <unordered_set>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/native/Copy.h>
#include <ATen/ops/clone_ops.h>
#include <ATen/ops/copy_native.h>
#include <ATen/ops/empty.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/Exceptions.h>

#include "boxed.h"
#include "cpu_allocator.h"
#include "generator.h"
#include "mirror.h"

namespace chorus {

namespace {

// Layout is how a tensor lies in memory. The CPU's padding lays what it's given to write to as it lays its results, and
// the device's tensor knows nothing of that.
struct Layout {
  at::Tensor tensor;
  at::DimVector sizes, strides;

  void restore() {
    if (tensor.strides() == at::IntArrayRef(strides) || tensor.sizes() != at::IntArrayRef(sizes))
      return;
    at::Tensor written = at::_ops::clone::redispatch(c10::DispatchKeySet(c10::DispatchKey::CPU), tensor, std::nullopt);
    tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
    at::native::copy_(tensor, written);
  }
};

// Task is an operator that is enqueued, with CPU tensors over the memory of its arguments and of what it returns. A
// graph runs it often.
struct Task {
  c10::OperatorHandle op;
  std::string name;
  DeviceIndex index;
  chorus_stream stream;
  torch::jit::Stack arguments;
  std::vector<at::Tensor> results; // undefined: an argument, or nothing
  c10::SmallVector<Reserved, 4> memory;

  void run() {
    torch::jit::Stack stack = arguments;
    Inside inside(index, stream);
    Reserving reserving(memory);
    at::AutoDispatchBelowADInplaceOrView below;
    c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    std::vector<Layout> given; // of what it writes to
    for (size_t i = 0; i < arguments.size(); i++)
      if (const c10::AliasInfo* alias = op.schema().arguments()[i].alias_info(); alias && alias->isWrite())
        each_tensor(arguments[i], [&](const at::Tensor& t) {
          if (t.defined())
            given.push_back({t, at::DimVector(t.sizes()), at::DimVector(t.strides())});
        });
    op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack);
    for (Layout& layout : given)
      layout.restore();
    std::vector<at::Tensor> got;
    for (const c10::IValue& v : stack)
      each_tensor(v, [&](const at::Tensor& t) { got.push_back(t); });
    TORCH_CHECK(
        got.size() == results.size(), name, " returned ", got.size(), " tensors, and its Meta kernel ", results.size());
    place(got);
  }

  // place copies what didn't come to lie where it has to be.
  void place(std::vector<at::Tensor>& got) {
    std::vector<size_t> astray;
    for (size_t i = 0; i < got.size(); i++) {
      if (!results[i].defined() || !got[i].defined())
        continue;
      TORCH_CHECK(
          got[i].sizes() == results[i].sizes() && got[i].dtype() == results[i].dtype(), name, " returned ",
          got[i].dtype(), " of sizes ", got[i].sizes(), ", and its Meta kernel ", results[i].dtype(), " of sizes ",
          results[i].sizes());
      if (got[i].data_ptr() != results[i].data_ptr() || got[i].strides() != results[i].strides())
        astray.push_back(i);
    }
    for (size_t i : astray)
      if (astray.size() > 1 || taken(got[i])) // one may lie in the other's place, or in its own with other strides
        got[i] = at::_ops::clone::redispatch(c10::DispatchKeySet(c10::DispatchKey::CPU), got[i], std::nullopt);
    for (size_t i : astray)
      at::native::copy_(results[i], got[i]);
  }

  // taken says whether a tensor lies in memory of the results'.
  bool taken(const at::Tensor& t) const {
    const char* at = static_cast<const char*>(t.storage().data());
    for (const Reserved& r : memory)
      if (at >= r.view && at < static_cast<const char*>(r.view) + r.bytes)
        return true;
    return false;
  }
};

chorus_status run(void* user, void* const*, chorus_reply* reply) {
  Task* task = static_cast<Task*>(user);
  try {
    task->run();
    return CHORUS_OK;
  } catch (const c10::Error& e) {
    lib.reply_error(reply, e.what_without_backtrace());
  } catch (const std::exception& e) {
    lib.reply_error(reply, e.what());
  } catch (...) {
    lib.reply_error(reply, "an exception of an unknown kind");
  }
  return CHORUS_INTERNAL;
}

void over(void* user) {
  delete static_cast<Task*>(user);
}

// unimplemented says whether Python's error is that something isn't implemented, and forgets it then.
bool unimplemented(const python_error& error) {
  pybind11::gil_scoped_acquire lock;
  if (error.type)
    return PyErr_GivenExceptionMatches(error.type, PyExc_NotImplementedError);
  bool is = PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_NotImplementedError);
  if (is)
    PyErr_Clear();
  return is;
}

// foretell runs the Meta kernel in the place of the operator. It returns false if there is none, or if it's one in Python
// that refuses.
bool foretell(const c10::OperatorHandle& op, Mirror& meta, torch::jit::Stack& stack) {
  at::AutoDispatchBelowADInplaceOrView below;
  c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  try {
    op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::Meta), &stack);
  } catch (const c10::NotImplementedError&) {
    return false;
  } catch (const python_error& e) {
    if (unimplemented(e))
      return false;
    throw;
  } catch (pybind11::error_already_set& e) {
    pybind11::gil_scoped_acquire lock;
    if (e.matches(PyExc_NotImplementedError))
      return false;
    throw;
  }
  return true;
}

// Operators whose Meta kernels foretell what the CPU's don't return.
const std::unordered_set<std::string> foretold_wrongly = {"aten::_embedding_bag", "aten::_embedding_bag_forward_only"};

// Operators whose Meta kernels have other strides than the CPU's: of any arguments, or of such as aren't contiguous.
const std::unordered_set<std::string> laid_out_otherwise = {
    "aten::_fft_c2c", "aten::_fft_c2r", "aten::_fft_r2c", "aten::_linalg_eigh", "aten::_linalg_slogdet",
    "aten::cholesky_inverse", "aten::linalg_eig", "aten::linalg_householder_product", "aten::linalg_ldl_factor_ex",
    "aten::linalg_ldl_solve", "aten::linalg_lu_factor_ex", "aten::linalg_lu_solve", "aten::linalg_qr", "aten::ormqr",
    "aten::triangular_solve"};
const std::unordered_set<std::string> laid_out_otherwise_at_times = {
    "aten::_batch_norm_with_update", "aten::_native_batch_norm_legit", "aten::angle", "aten::batch_norm_backward",
    "aten::binary_cross_entropy", "aten::binary_cross_entropy_backward", "aten::channel_shuffle", "aten::convolution",
    "aten::convolution_backward", "aten::floor_divide", "aten::glu_backward", "aten::hardswish_backward",
    "aten::hardtanh_backward", "aten::log_sigmoid_forward", "aten::max_unpool2d", "aten::max_unpool3d",
    "aten::mse_loss_backward", "aten::native_batch_norm", "aten::native_batch_norm_backward",
    "aten::native_dropout_backward", "aten::native_group_norm", "aten::native_layer_norm_backward",
    "aten::nll_loss2d_forward", "aten::normal", "aten::pixel_shuffle", "aten::pixel_unshuffle",
    "aten::reflection_pad2d", "aten::reflection_pad2d_backward", "aten::reflection_pad3d",
    "aten::reflection_pad3d_backward", "aten::replication_pad2d", "aten::replication_pad2d_backward",
    "aten::replication_pad3d", "aten::replication_pad3d_backward", "aten::roll"};

// lays_out_otherwise says whether what an operator returns may have other strides than its Meta kernel says. Those of
// elements give them to a result that they resize.
bool lays_out_otherwise(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments) {
  bool contiguous = true, resizes = false, given = false;
  for (size_t i = 0; i < arguments.size(); i++) {
    if (!arguments[i].isTensor() || !arguments[i].toTensor().defined())
      continue;
    const at::Tensor& t = arguments[i].toTensor();
    contiguous = contiguous && t.is_contiguous();
    const c10::AliasInfo* alias = op.schema().arguments()[i].alias_info();
    if (alias && alias->isWrite())
      (t.numel() > 0 ? given : resizes) = true;
  }
  const std::string& name = op.operator_name().name;
  if (!contiguous && laid_out_otherwise_at_times.count(name))
    return true;
  return !given && ((!contiguous && resizes) || laid_out_otherwise.count(name));
}

// correct makes a Meta kernel's results what the CPU's kernel returns: the statistics of a normalization are of the
// weights' type, and those of a batch are empty without training.
void correct(const c10::OperatorHandle& op, const torch::jit::Stack& arguments, torch::jit::Stack& results) {
  static const std::unordered_set<std::string> normalizes = {
      "aten::native_batch_norm", "aten::_native_batch_norm_legit", "aten::_batch_norm_with_update",
      "aten::native_layer_norm", "aten::native_group_norm"};
  if (!normalizes.count(op.operator_name().name) || results.size() < 3)
    return;
  c10::ScalarType type = arguments[0].toTensor().scalar_type();
  bool training = true;
  for (size_t i = 1; i < arguments.size(); i++) {
    if (arguments[i].isTensor() && arguments[i].toTensor().defined())
      type = arguments[i].toTensor().scalar_type();
    else if (arguments[i].isBool())
      training = arguments[i].toBool();
  }
  for (int i : {1, 2}) {
    at::Tensor statistic = results[i].toTensor();
    results[i] = at::empty(training ? statistic.sizes() : at::IntArrayRef{0}, statistic.options().dtype(type));
  }
}

// keep is a copy of a tensor of the host's, which may be changed before the stream gets there.
at::Tensor keep(const at::Tensor& t) {
  at::Tensor copy = at::_ops::clone::redispatch(c10::DispatchKeySet(c10::DispatchKey::CPU), t, std::nullopt);
  if (t.unsafeGetTensorImpl()->is_wrapped_number()) // one of Python's, whose type matters less than a tensor's
    copy.unsafeGetTensorImpl()->set_wrapped_number(true);
  return copy;
}

bool depends_on_data(const c10::OperatorHandle& op) {
  if (foretold_wrongly.count(op.operator_name().name))
    return true;
  for (at::Tag tag : op.getTags())
    if (tag == at::Tag::data_dependent_output || tag == at::Tag::dynamic_output_shape)
      return true;
  for (const c10::Argument& r : op.schema().returns()) {
    c10::TypePtr type = r.type();
    if (type->kind() == c10::TypeKind::ListType)
      type = type->castRaw<c10::ListType>()->getElementType();
    if (type->kind() != c10::TypeKind::TensorType)
      return true;
  }
  return false;
}

} // namespace

bool defer(
    const c10::OperatorHandle& op, const std::string& name, DeviceIndex index, chorus_stream stream,
    torch::jit::Stack* stack, c10::ArrayRef<int> generators) {
  size_t n = op.schema().arguments().size();
  auto arguments = torch::jit::last(*stack, n);
  if (depends_on_data(op) || (lays_out_otherwise(op, arguments) && !capturing(stream)))
    return false;
  Mirror meta(index, c10::DeviceType::Meta), host(index);
  torch::jit::Stack foretold, kept;
  auto is_own = [](const at::Tensor& t) { return t.defined() && t.device().type() == kType; };
  for (const c10::IValue& v : arguments) {
    if (v.isDevice() && v.toDevice().type() == kType) {
      foretold.push_back(c10::Device(c10::DeviceType::Meta));
      kept.push_back(c10::Device(c10::DeviceType::CPU));
    } else if (v.isGenerator()) {
      foretold.push_back(c10::IValue());
      kept.push_back(v.toGenerator().device().type() == kType ? host_generator(v.toGenerator()) : v.toGenerator());
    } else {
      foretold.push_back(map_tensors(v, [&](const at::Tensor& t) { return is_own(t) ? meta.host(t) : t; }));
      kept.push_back(map_tensors(v, [&](const at::Tensor& t) {
        return is_own(t) ? host.host(t) : t.defined() ? keep(t) : t;
      }));
    }
  }
  for (int i : generators)
    if (kept[i].isNone())
      kept[i] = host_generator(default_generator(index));
  if (!foretell(op, meta, foretold))
    return false;
  correct(op, kept, foretold);
  size_t arguments_met = meta.tensors().size();
  // What it's given to write to stays as it lies, as the CPU has it; some of Meta's lay it as they would their own.
  for (const Mirror::Pair& p : meta.tensors())
    if (p.host.sizes() == p.device.sizes() && p.host.strides() != p.device.strides())
      p.host.unsafeGetTensorImpl()->set_sizes_and_strides(p.device.sizes(), p.device.strides());
  meta.settle();
  // What settle has resized, the CPU tensors over it have to follow.
  for (size_t i = 0; i < arguments_met && i < host.tensors().size(); i++) {
    const Mirror::Pair& p = host.tensors()[i];
    if (p.host.sizes() != p.device.sizes() || p.host.storage().nbytes() != p.device.storage().nbytes()) {
      Mirror anew(index);
      c10::TensorImpl* to = p.host.unsafeGetTensorImpl();
      at::Tensor now = anew.host(p.device);
      to->set_storage_keep_dtype(now.storage());
      to->set_sizes_and_strides(now.sizes(), now.strides(), now.storage_offset());
    }
  }
  auto task = std::make_unique<Task>(Task{op, name, index, stream, std::move(kept), {}, {}});
  c10::SmallVector<c10::IValue, 4> results;
  for (const c10::IValue& v : foretold) {
    results.push_back(map_tensors(v, [&](const at::Tensor& t) {
      at::Tensor made = meta.device(t);
      bool argument = false;
      for (size_t i = 0; i < arguments_met; i++)
        argument = argument || meta.tensors()[i].host.is_same(t);
      task->results.push_back(made.defined() && is_own(made) && !argument ? host.host(made) : at::Tensor());
      return made;
    }));
  }
  std::vector<chorus_span> spans;
  for (const Mirror::Shared& s : host.storages())
    if (s.device.nbytes() > 0)
      spans.push_back({const_cast<void*>(s.device.data()), int64_t(s.device.nbytes())});
  for (const Mirror::Shared& s : meta.storages())
    if (s.made && s.device.nbytes() > 0)
      task->memory.push_back(
          {view_of(s.device.unsafeGetStorageImpl()->_mutable_data_ptr_no_checks(), s.device.nbytes()),
           s.device.nbytes(), false});
  check(lib.stream_task(stream, name.c_str(), spans.data(), int32_t(spans.size()), &run, &over, task.get()));
  task.release();
  torch::jit::drop(*stack, n);
  for (c10::IValue& v : results)
    stack->push_back(std::move(v));
  return true;
}

} // namespace chorus
