#include "aten/deferred.h"

#include <unordered_set>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/native/Copy.h>
#include <ATen/ops/clone_ops.h>
#include <ATen/ops/copy_native.h>
#include <ATen/ops/empty.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/Exceptions.h>

#include "aten/boxed.h"
#include "aten/sparse.h"
#include "aten/tensor_aliases.h"
#include "memory/cpu_allocator.h"
#include "runtime/generator.h"
#include "runtime/settings.h"

namespace chorus {

namespace {

// Layout is the sizes and strides of a tensor. The CPU's padding changes the strides of a given result, which the
// device's tensor must keep: restore copies the elements back into the old layout.
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

// CollectedWarnings collects warnings.
struct CollectedWarnings final : c10::WarningHandler {
  std::vector<c10::Warning> all;

  void process(const c10::Warning& warning) override {
    all.push_back(warning);
  }
};

// NewWarnings passes on warnings that weren't issued before.
struct NewWarnings final : c10::WarningHandler {
  const std::vector<std::string>& issued;

  explicit NewWarnings(const std::vector<std::string>& issued) : issued(issued) {}

  void process(const c10::Warning& warning) override {
    if (std::find(issued.begin(), issued.end(), warning.msg()) == issued.end())
      c10::WarningHandler::process(warning);
  }
};

// Task is an enqueued operator, with CPU tensors over the memory of its arguments and results. A graph runs it many
// times.
struct Task {
  c10::OperatorHandle op;
  std::string name;
  bool keeps; // its kernel may keep tensors beyond the call, so that they're lent, and its results copied
  DeviceIndex index;
  chorus_stream stream;
  torch::jit::Stack arguments;
  std::vector<std::string> issued; // warnings that the caller has got already
  std::vector<at::Tensor> results; // undefined: an argument, or nothing
  c10::SmallVector<Reserved, 4> memory;
  Settings settings; // of the caller

  void run() {
    Inside inside(index, stream);
    Reserving reserving(memory);
    Loans loans;
    run(loans);
    loans.over();
  }

  void run(Loans& loans) {
    torch::jit::Stack stack;
    for (const c10::IValue& v : arguments)
      stack.push_back(keeps ? map_tensors(v, [&](const at::Tensor& t) { return loans.lend(t); }) : v);
    Applied applied(settings);
    NewWarnings fresh(issued);
    c10::WarningUtils::WarningHandlerGuard guard(&fresh);
    at::AutoDispatchBelowADInplaceOrView below;
    c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    std::vector<Layout> given; // of the arguments that it writes to
    for (size_t i = 0; i < arguments.size(); i++)
      if (const c10::AliasInfo* alias = op.schema().arguments()[i].alias_info(); alias && alias->isWrite())
        each_tensor(stack[i], [&](const at::Tensor& t) {
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

  // place copies results that aren't at their reserved memory.
  void place(std::vector<at::Tensor>& got) {
    std::vector<size_t> misplaced;
    for (size_t i = 0; i < got.size(); i++) {
      if (!results[i].defined() || !got[i].defined())
        continue;
      TORCH_CHECK(
          got[i].sizes() == results[i].sizes() && got[i].dtype() == results[i].dtype(), name, " returned ",
          got[i].dtype(), " of sizes ", got[i].sizes(), ", and its Meta kernel ", results[i].dtype(), " of sizes ",
          results[i].sizes());
      if (got[i].data_ptr() != results[i].data_ptr() || got[i].strides() != results[i].strides())
        misplaced.push_back(i);
    }
    for (size_t i : misplaced)
      if (misplaced.size() > 1 || taken(got[i])) // it may be in another one's memory, or in its own with other strides
        got[i] = at::_ops::clone::redispatch(c10::DispatchKeySet(c10::DispatchKey::CPU), got[i], std::nullopt);
    for (size_t i : misplaced)
      at::native::copy_(results[i], got[i]);
  }

  // taken says whether a tensor's memory is that of a result.
  bool taken(const at::Tensor& t) const {
    const char* at = static_cast<const char*>(t.storage().data());
    for (const Reserved& r : memory)
      if (at >= r.view && at < static_cast<const char*>(r.view) + r.bytes)
        return true;
    return false;
  }
};

chorus_status run_task(void* user, void* const*, chorus_reply* reply) {
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

void release_task(void* user) {
  delete static_cast<Task*>(user);
}

// python_error_text clears this thread's Python exception, and returns its text. It rethrows one that isn't the
// kernel's, such as KeyboardInterrupt. The caller holds the GIL.
std::string python_error_text() {
  if (!PyErr_ExceptionMatches(PyExc_Exception))
    throw python_error();
  pybind11::error_already_set error; // takes the exception
  return pybind11::str(error.value());
}

// infer_outputs runs the Meta kernel instead of the operator. It returns the error of the kernel, or "". The kernel's
// warnings are issued, and added to issued, only if it succeeds; otherwise the CPU's kernel issues them.
std::string infer_outputs(const c10::OperatorHandle& op, torch::jit::Stack& stack, std::vector<std::string>& issued) {
  CollectedWarnings collected;
  try {
    c10::WarningUtils::WarningHandlerGuard guard(&collected);
    at::AutoDispatchBelowADInplaceOrView below;
    c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::Meta), &stack);
  } catch (const c10::Error& e) {
    return e.what_without_backtrace();
  } catch (python_error& e) {
    pybind11::gil_scoped_acquire lock;
    e.restore();
    return python_error_text();
  } catch (pybind11::error_already_set& e) {
    pybind11::gil_scoped_acquire lock;
    e.restore();
    return python_error_text();
  } catch (const std::exception& e) {
    return e.what();
  }
  for (const c10::Warning& warning : collected.all) {
    issued.push_back(warning.msg());
    c10::warn(warning);
  }
  for (const c10::IValue& v : stack) {
    bool all = true;
    each_tensor(v, [&](const at::Tensor& t) { all = all && (!t.defined() || t.is_meta()); });
    if (!all)
      return "its Meta kernel, or fake, returns tensors that aren't Meta tensors";
  }
  return "";
}

// Operators whose Meta kernels return other shapes or types than the CPU's.
const std::unordered_set<std::string> inferred_wrongly = {"aten::_embedding_bag", "aten::_embedding_bag_forward_only"};

// Operators whose Meta kernels return other strides than the CPU's: for any arguments, or for those that aren't
// contiguous.
const std::unordered_set<std::string> other_strides = {
    "aten::_fft_c2c", "aten::_fft_c2r", "aten::_fft_r2c", "aten::_linalg_eigh", "aten::_linalg_slogdet",
    "aten::cholesky_inverse", "aten::linalg_eig", "aten::linalg_householder_product", "aten::linalg_ldl_factor_ex",
    "aten::linalg_ldl_solve", "aten::linalg_lu_factor_ex", "aten::linalg_lu_solve", "aten::linalg_qr",
    "aten::nonzero_static", "aten::ormqr", "aten::triangular_solve"};
const std::unordered_set<std::string> other_strides_unless_contiguous = {
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

// may_conjugate says whether an operator's kernel may set the conjugate bit of its result, which Meta kernels don't.
bool may_conjugate(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments) {
  const std::string& name = op.operator_name().name;
  return (name == "aten::linalg_lu_solve" || name == "aten::_linalg_solve_ex") && arguments[0].toTensor().is_complex();
}

// strides_may_differ says whether an operator's results may have other strides than its Meta kernel's. Elementwise
// operators set the strides of a result that they resize.
bool strides_may_differ(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments) {
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
  if (!contiguous && other_strides_unless_contiguous.count(name))
    return true;
  return !given && ((!contiguous && resizes) || other_strides.count(name));
}

// correct changes a Meta kernel's results into those of the CPU's kernel: the statistics of a normalization have the
// weights' type, and those of a batch are empty without training.
void correct(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments, torch::jit::Stack& results) {
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

// keep copies a tensor of the host, which the program may change before the stream runs the operator.
at::Tensor keep(const at::Tensor& t) {
  at::Tensor copy = at::_ops::clone::redispatch(c10::DispatchKeySet(c10::DispatchKey::CPU), t, std::nullopt);
  if (t.unsafeGetTensorImpl()->is_wrapped_number()) // a Python number, whose type has less weight in promotion
    copy.unsafeGetTensorImpl()->set_wrapped_number(true);
  return copy;
}

bool is_own(const at::Tensor& t) {
  return t.defined() && t.device().type() == kType;
}

bool is_wrapped(const at::Tensor& number) {
  return number.unsafeGetTensorImpl()->is_wrapped_number();
}

// meta_number is a Meta tensor for a number in a tensor of the host, of the same type and kind for type promotion.
at::Tensor meta_number(const at::Tensor& number) {
  at::Tensor made = at::empty({}, number.options().device(c10::kMeta));
  c10::TensorImpl* to = made.unsafeGetTensorImpl();
  to->set_wrapped_number(is_wrapped(number));
  to->_set_conj(number.is_conj());
  to->_set_neg(number.is_neg());
  return made;
}

// MetaRun is the result of an operator's Meta kernel, with Meta tensors instead of its arguments.
struct MetaRun {
  TensorAliases meta;
  torch::jit::Stack stack; // arguments, and then results
  std::vector<std::string> issued;
  std::string refused;

  // Meta kernels in Python need Python numbers unchanged. Meta kernels in C++ don't take one as the first tensor, so
  // the first tensor is also tried as a Meta tensor.
  MetaRun(const c10::OperatorHandle& op, DeviceIndex index, c10::ArrayRef<c10::IValue> arguments, bool first_as_meta)
      : meta(index, c10::DeviceType::Meta) {
    bool first = true;
    for (const c10::IValue& v : arguments) {
      if (v.isDevice() && v.toDevice().type() == kType)
        stack.push_back(c10::Device(c10::DeviceType::Meta));
      else if (v.isGenerator())
        stack.push_back(c10::IValue());
      else
        stack.push_back(map_tensors(v, [&](const at::Tensor& t) {
          bool is_first = std::exchange(first, false);
          if (is_own(t))
            return meta.host(t);
          bool number = t.defined() && t.is_cpu() && t.dim() == 0;
          return number && (!is_wrapped(t) || (is_first && first_as_meta)) ? meta_number(t) : t;
        }));
    }
    refused = infer_outputs(op, stack, issued);
  }
};

// begins_with_number says whether the first tensor is a Python number.
bool begins_with_number(c10::ArrayRef<c10::IValue> arguments) {
  for (const c10::IValue& v : arguments)
    if (v.isTensor())
      return v.toTensor().defined() && v.toTensor().is_cpu() && is_wrapped(v.toTensor());
  return false;
}

bool depends_on_data(const c10::OperatorHandle& op) {
  if (inferred_wrongly.count(op.operator_name().name))
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

// writes_to_host says whether an operator writes to a tensor that isn't the device's.
bool writes_to_host(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments) {
  bool does = false;
  for (size_t i = 0; i < arguments.size(); i++)
    if (const c10::AliasInfo* alias = op.schema().arguments()[i].alias_info(); alias && alias->isWrite())
      each_tensor(arguments[i], [&](const at::Tensor& t) { does = does || (t.defined() && !is_own(t)); });
  return does;
}

} // namespace

std::string defer(
    const c10::OperatorHandle& op, const std::string& name, DeviceIndex index, chorus_stream stream,
    torch::jit::Stack* stack, c10::ArrayRef<int> generators) {
  size_t n = op.schema().arguments().size();
  auto arguments = torch::jit::last(*stack, n);
  if (depends_on_data(op))
    return "the host needs its result, or the result's shape, which depends on computed values";
  if (writes_to_host(op, arguments))
    return "it writes to a tensor of the host";
  if (may_conjugate(op, arguments))
    return "its kernel sets the conjugate bit of its result";
  if (strides_may_differ(op, arguments) && !capturing(stream))
    return "its Meta kernel returns other strides than its results have";
  std::optional<MetaRun> meta_run(std::in_place, op, index, arguments, true);
  if (!meta_run->refused.empty() && begins_with_number(arguments))
    meta_run.emplace(op, index, arguments, false);
  if (!meta_run->refused.empty())
    return meta_run->refused;
  for (const c10::IValue& v : meta_run->stack)
    each_tensor(v, [&](const at::Tensor& t) {
      if (t.defined() && is_sparse(t))
        meta_run->refused = "its result is sparse";
    });
  if (!meta_run->refused.empty())
    return meta_run->refused;
  TensorAliases &meta = meta_run->meta, host(index);
  torch::jit::Stack &inferred = meta_run->stack, kept;
  correct(op, arguments, inferred);
  for (const c10::IValue& v : arguments) {
    if (v.isDevice() && v.toDevice().type() == kType)
      kept.push_back(c10::Device(c10::DeviceType::CPU));
    else if (v.isGenerator())
      kept.push_back(v.toGenerator().device().type() == kType ? host_generator(v.toGenerator()) : v.toGenerator());
    else
      kept.push_back(map_tensors(v, [&](const at::Tensor& t) {
        return is_own(t) ? host.host(t) : t.defined() ? keep(t) : t;
      }));
  }
  for (int i : generators)
    if (kept[i].isNone())
      kept[i] = host_generator(default_generator(index));
  size_t arguments_met = meta.tensors().size();
  // Given results keep their strides, as on the CPU; some Meta kernels change them to those of new results.
  for (const TensorAliases::Pair& p : meta.tensors())
    if (p.host.sizes() == p.device.sizes() && p.host.strides() != p.device.strides())
      p.host.unsafeGetTensorImpl()->set_sizes_and_strides(p.device.sizes(), p.device.strides());
  meta.settle();
  // The CPU tensors over storages that settle has resized must follow.
  for (size_t i = 0; i < arguments_met && i < host.tensors().size(); i++) {
    const TensorAliases::Pair& p = host.tensors()[i];
    if (p.host.sizes() != p.device.sizes() || p.host.storage().nbytes() != p.device.storage().nbytes()) {
      TensorAliases anew(index);
      c10::TensorImpl* to = p.host.unsafeGetTensorImpl();
      at::Tensor now = anew.host(p.device);
      to->set_storage_keep_dtype(now.storage());
      to->set_sizes_and_strides(now.sizes(), now.strides(), now.storage_offset());
    }
  }
  bool keeps = !is_aten(op.operator_name());
  auto task = std::make_unique<Task>(
      Task{op, name, keeps, index, stream, std::move(kept), std::move(meta_run->issued), {}, {}, {}});
  c10::SmallVector<c10::IValue, 4> results;
  for (const c10::IValue& v : inferred) {
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
  for (const TensorAliases::Shared& s : host.storages())
    if (s.device.nbytes() > 0)
      spans.push_back({const_cast<void*>(s.device.data()), int64_t(s.device.nbytes())});
  for (const TensorAliases::Shared& s : meta.storages())
    if (s.made && s.device.nbytes() > 0 && !task->keeps)
      task->memory.push_back(
          {view_of(s.device.unsafeGetStorageImpl()->_mutable_data_ptr_no_checks(), s.device.nbytes()),
           s.device.nbytes(), false});
  check(lib.stream_task(
      stream, name.c_str(), spans.data(), int32_t(spans.size()), &run_task, &release_task, task.get()));
  task.release();
  torch::jit::drop(*stack, n);
  for (c10::IValue& v : results)
    stack->push_back(std::move(v));
  return "";
}

} // namespace chorus
