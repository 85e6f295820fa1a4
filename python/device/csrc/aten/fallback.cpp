#include "aten/fallback.h"

#include <atomic>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>
#include <unordered_set>

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/hash.h>
#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>
#include <torch/library.h>

#include "aten/boxed.h"
#include "aten/deferred.h"
#include "aten/tensor_aliases.h"
#include "memory/alloc_sites.h"
#include "memory/cpu_allocator.h"
#include "native/copy.h"
#include "native/draws.h"
#include "native/native.h"
#include "runtime/generator.h"

namespace chorus {

namespace {

// KnownTypes are combinations of types for which the CPU's kernel of an operator has computed results.
class KnownTypes {
 public:
  bool has(uint64_t types) const {
    if (last_ == types)
      return true;
    std::shared_lock<std::shared_mutex> lock(mutex_);
    return all_.count(types) > 0;
  }
  void add(uint64_t types) {
    if (has(types))
      return;
    std::unique_lock<std::shared_mutex> lock(mutex_);
    all_.insert(types);
    last_ = types;
  }

 private:
  mutable std::shared_mutex mutex_;
  std::unordered_set<uint64_t> all_;
  std::atomic<uint64_t> last_{0};
};

// Operator has the fallback's facts about an operator, computed once.
struct Operator {
  c10::OperatorName of;
  std::string name; // for traces and errors
  bool blocked = false;
  bool missing = false;                // the CPU has no kernel either
  bool host_tensors = false;           // CPU tensors may be among its arguments
  bool host_indexes = false;           // they may be its indexes
  bool at_once = false;                // its results have no Meta kernel: they're nested, quantized or sparse
  bool views = false;                  // it touches no memory: it returns views, or changes sizes and strides
  c10::SmallVector<int, 2> generators; // positions of its generators
  c10::SmallVector<int, 2> written;    // positions of the arguments that it writes to
  const Native* native = nullptr;      // the device's kernels for it
  const Native* sparse = nullptr;      // for it with sparse tensors
  bool asks = false;                   // its kernel asks whether its arguments have gradients, and returns less if not
  bool draws = false;                  // they are of CUDA's random numbers
  int dtype = -1;                      // position of the type of its results
  mutable KnownTypes known;            // on devices with kernels
  mutable std::atomic<int64_t> calls{0}; // of the fallback
  mutable std::atomic<int64_t> told{0};  // of them, by met
  mutable std::atomic<int64_t> by_kernels{0}; // calls that they have computed

  explicit Operator(c10::OperatorName of) : of(std::move(of)) {}
};

std::shared_mutex operators_mutex;
std::unordered_map<const void*, std::unique_ptr<Operator>>& operators() {
  static auto* all = new std::unordered_map<const void*, std::unique_ptr<Operator>>;
  return *all;
}
std::unordered_set<std::string>& blocked() {
  static auto* all = new std::unordered_set<std::string>;
  return *all;
}

// Operators whose lists of indices may be tensors of the host, as on other devices, while other arguments may not.
const std::unordered_set<std::string> takes_host_indexes = {
    "aten::index",        "aten::index_put",       "aten::index_put_", "aten::_index_put_impl_",
    "aten::_unsafe_index", "aten::_unsafe_index_put"};

// Operators of which all arguments may be: lengths and the like.
const std::unordered_set<std::string> takes_host_tensors = {
    "aten::tensor_split",
    "aten::_pack_padded_sequence",
    "aten::_pad_packed_sequence",
    "aten::_cudnn_rnn",
    "aten::copy_",
    "aten::fill_",
    "aten::_copy_from",
    "aten::_copy_from_and_resize",
    "aten::set_data",
    "aten::_foreach_copy_",
    "aten::repeat_interleave",
    "aten::_nested_from_padded",
    "aten::_nested_view_from_buffer",
    "aten::_nested_view_from_buffer_copy",
};

// kernels_of is the CPU's dispatch key for tensors of this kind: plain, quantized, nested or sparse.
c10::DispatchKey kernels_of(c10::DispatchKeySet keys) {
  switch (keys.highestPriorityTypeId()) {
    case c10::DispatchKey::QuantizedPrivateUse1:
      return c10::DispatchKey::QuantizedCPU;
    case c10::DispatchKey::NestedTensorPrivateUse1:
      return c10::DispatchKey::NestedTensorCPU;
    case c10::DispatchKey::SparsePrivateUse1:
      return c10::DispatchKey::SparseCPU;
    case c10::DispatchKey::SparseCsrPrivateUse1:
      return c10::DispatchKey::SparseCsrCPU;
    default:
      return c10::DispatchKey::CPU;
  }
}

// only_views is true of PyTorch's own operators only: another one that returns a view may read its tensors.
bool only_views(const c10::OperatorHandle& op) {
  if (!is_aten(op.operator_name()))
    return false;
  if (op.hasTag(at::Tag::inplace_view))
    return op.operator_name().name != "aten::resize_" && op.operator_name().name != "aten::resize_as_";
  bool views = !op.schema().returns().empty();
  for (const c10::Argument& r : op.schema().returns())
    views = views && r.alias_info() && !r.alias_info()->isWrite();
  return views;
}

const Operator& operator_of(const c10::OperatorHandle& op) {
  const void* key = &op.schema();
  {
    std::shared_lock<std::shared_mutex> lock(operators_mutex);
    auto found = operators().find(key);
    if (found != operators().end() && found->second->of == op.operator_name())
      return *found->second;
  }
  device(current()); // so that native_of knows
  auto made = std::make_unique<Operator>(op.operator_name());
  made->native = native_of(op.operator_name());
  made->sparse = sparse_native_of(op.operator_name());
  made->draws = made->native && made->native == draw_of(op.operator_name());
  made->name = c10::toString(op.operator_name());
  made->host_indexes = takes_host_indexes.count(op.operator_name().name) > 0;
  made->host_tensors = takes_host_tensors.count(op.operator_name().name) > 0;
  const auto& arguments = op.schema().arguments();
  for (size_t i = 0; i < arguments.size(); i++) {
    c10::TypePtr type = arguments[i].type();
    if (auto optional = type->cast<c10::OptionalType>())
      type = optional->getElementType();
    if (type->kind() == c10::TypeKind::GeneratorType)
      made->generators.push_back(int(i));
    if (arguments[i].alias_info() && arguments[i].alias_info()->isWrite())
      made->written.push_back(int(i));
    if (arguments[i].name() == "dtype")
      made->dtype = int(i);
  }
  if (op.operator_name().name == "aten::native_batch_norm")
    made->written = {3, 4}; // running statistics, which the schema doesn't mark as written
  else if (op.operator_name().name == "aten::batch_norm_update_stats")
    made->written = {1, 2};
  made->at_once = made->name.rfind("aten::quantize_", 0) == 0 || made->name.rfind("aten::_nested_", 0) == 0;
  made->views = only_views(op);
  made->asks = made->name == "aten::_sparse_mm_reduce_impl";
  made->missing = !op.hasComputedKernelForDispatchKey(c10::DispatchKey::CPU);
  std::unique_lock<std::shared_mutex> lock(operators_mutex);
  made->blocked = blocked().count(made->name) > 0;
  auto& slot = operators()[key];
  if (!slot || slot->of != made->of) {
    (void)slot.release(); // a removed operator's; leaked, as other threads may still read it
    slot = std::move(made);
  }
  return *slot;
}

// Found is the device of an operator's arguments.
class Found {
 public:
  // host_too says whether the tensor may be the host's.
  void see(const at::Tensor& tensor, bool host_too) {
    if (!tensor.defined())
      return;
    c10::Device d = tensor.device();
    if (d.type() == kType) {
      TORCH_CHECK(
          index_ < 0 || index_ == d.index(),
          "Expected all tensors to be on the same device, but found at least two devices, ", c10::Device(kType, index_),
          " and ", d, "!");
      index_ = d.index();
    } else if (d.is_cpu()) {
      on_host_ = true;
      host_ = host_ || (tensor.dim() > 0 && !host_too);
    }
  }

  void mean(c10::Device d) {
    if (d.type() == kType)
      meant_ = index_of(d);
  }

  // on_host says whether some tensors are the host's, and alone whether all are.
  bool on_host() const {
    return on_host_;
  }
  bool alone() const {
    return on_host_ && index_ < 0;
  }

  DeviceIndex index() const {
    TORCH_CHECK(
        !host_ || index_ < 0, "Expected all tensors to be on the same device, but found at least two devices, ",
        c10::Device(kType, index_), " and cpu!");
    return index_ >= 0 ? index_ : meant_ >= 0 ? meant_ : current();
  }

 private:
  DeviceIndex index_ = -1, meant_ = -1;
  bool host_ = false; // with dimensions
  bool on_host_ = false;
};

// types_of is a number for the types of an operator's tensors, numbers and results. It isn't 0.
uint64_t types_of(const Operator& op, c10::ArrayRef<c10::IValue> arguments) {
  size_t types = 1;
  for (const c10::IValue& v : arguments) {
    types = c10::hash_combine(types, v.isNone() ? 1 : v.isBool() ? 2 : v.isInt() ? 3 : v.isDouble() ? 4 : 5);
    each_tensor(v, [&](const at::Tensor& t) {
      types = c10::hash_combine(types, t.defined() ? 8 + size_t(t.scalar_type()) : 6);
    });
  }
  if (op.dtype >= 0 && arguments[op.dtype].isInt())
    types = c10::hash_combine(types, size_t(arguments[op.dtype].toInt()));
  return types ? types : 1;
}

// written_on_host says whether an operator writes to a tensor of the host.
bool written_on_host(const Operator& op, c10::ArrayRef<c10::IValue> arguments) {
  bool is = false;
  for (int i : op.written)
    each_tensor(arguments[i], [&](const at::Tensor& t) { is = is || (t.defined() && t.is_cpu()); });
  return is;
}

// host_too says whether a tensor in an argument may be the host's, as on other devices: an index, for example, or the
// one value that a mask selects places for.
bool host_too(
    const Operator& op, c10::ArrayRef<c10::IValue> arguments, const c10::IValue& argument, const at::Tensor& t) {
  if (!op.host_indexes || argument.isList())
    return op.host_tensors || op.host_indexes;
  bool masks = false;
  each_tensor(arguments[1], [&](const at::Tensor& index) {
    masks = masks || (index.defined() && (index.scalar_type() == at::kBool || index.scalar_type() == at::kByte));
  });
  return masks && arguments.size() > 2 && &argument == &arguments[2] && t.defined() && t.numel() == 1;
}

c10::IValue to_host(TensorAliases& aliases, const c10::IValue& value) {
  if (value.isDevice() && value.toDevice().type() == kType)
    return c10::Device(c10::DeviceType::CPU);
  if (value.isGenerator() && value.toGenerator().device().type() == kType)
    return host_generator(value.toGenerator());
  return map_tensors(
      value, [&](const at::Tensor& t) { return t.defined() && t.device().type() == kType ? aliases.host(t) : t; });
}

} // namespace

void block(const std::string& name, bool refuse) {
  std::unique_lock<std::shared_mutex> lock(operators_mutex);
  if (refuse)
    blocked().insert(name);
  else
    blocked().erase(name);
  for (auto& entry : operators())
    if (entry.second->name == name)
      entry.second->blocked = refuse;
}

std::vector<std::string> met() {
  std::shared_lock<std::shared_mutex> lock(operators_mutex);
  std::vector<std::string> names;
  for (auto& entry : operators()) {
    int64_t n = entry.second->calls;
    if (entry.second->told.exchange(n) != n)
      names.push_back(entry.second->name);
  }
  return names;
}

std::unordered_map<std::string, int64_t> calls() {
  std::shared_lock<std::shared_mutex> lock(operators_mutex);
  std::unordered_map<std::string, int64_t> counts;
  for (auto& entry : operators())
    if (int64_t n = entry.second->calls; n > 0 && !entry.second->views)
      counts[entry.second->name] += n;
  return counts;
}

std::vector<OperatorCalls> operator_calls() {
  std::shared_lock<std::shared_mutex> lock(operators_mutex);
  std::vector<OperatorCalls> all;
  for (auto& entry : operators())
    if (!entry.second->views)
      all.push_back({entry.second->name, entry.second->by_kernels, entry.second->calls});
  return all;
}

void fallback(const c10::OperatorHandle& handle, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const Operator& op = operator_of(handle);
  c10::DispatchKey kernels = kernels_of(keys);
  bool plain = kernels == c10::DispatchKey::CPU;
  const char* kind = plain                             ? ""
      : kernels == c10::DispatchKey::QuantizedCPU    ? "quantized tensors of "
      : kernels == c10::DispatchKey::NestedTensorCPU ? "nested tensors of "
                                                     : "sparse tensors of ";
  bool refused = op.native && !op.blocked && plain && (!op.draws || uses_philox()); // by the device's kernels
  if (refused && run_native(*op.native, handle, stack)) {
    op.by_kernels.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  bool missing = plain ? op.missing : !handle.hasComputedKernelForDispatchKey(kernels);
  bool sparse = kernels == c10::DispatchKey::SparseCPU || kernels == c10::DispatchKey::SparseCsrCPU;
  if (sparse && op.sparse && !op.blocked && run_native(*op.sparse, handle, stack, sparse)) {
    op.by_kernels.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  TORCH_CHECK_NOT_IMPLEMENTED(
      !op.blocked && !missing, "Operator '", op.name, "' is not implemented for ", kind, "device ", name(), ".",
      plain ? " Could not run '" + op.name + "' with arguments from the '" + name() + "' backend." : ""); // PyTorch's
  op.calls.fetch_add(1, std::memory_order_relaxed);
  size_t n = handle.schema().arguments().size();
  auto arguments = torch::jit::last(*stack, n);
  Found found;
  for (const c10::IValue& v : arguments) {
    if (v.isDevice())
      found.mean(v.toDevice());
    else
      each_tensor(v, [&](const at::Tensor& t) { found.see(t, host_too(op, arguments, v, t)); });
  }
  DeviceIndex index = found.index();
  AllocSites sites;
  chorus_stream stream = current_handle(index);
  Current scope(index);
  bool drawn_here = false; // it draws from a CPU generator: then the caller draws, in the order of its program
  for (int i : op.generators) {
    const at::Generator& generator = arguments[i].isNone() ? default_generator(index) : arguments[i].toGenerator();
    if (generator.device().type() != kType) {
      drawn_here = true;
      continue;
    }
    TORCH_CHECK(
        !found.alone() && !(found.on_host() && written_on_host(op, arguments)),
        "Expected a 'cpu' device type for generator but found '", generator.device().type(), "'");
    TORCH_CHECK(
        generator.device().index() == index, "Expected a '", c10::Device(kType, index),
        "' generator device but found '", generator.device(), "'");
    draws(generator, stream);
  }
  bool touchable = device(index).views;
  // A device with kernels has the error of a type that the CPU has no kernel for at once, also on a busy stream.
  uint64_t types = plain && !op.views && has_natives() && touchable ? types_of(op, arguments) : 0;
  bool entered = !op.views && touchable && try_enter(stream, op.name.c_str());
  std::optional<Drained> drained;
  if (!op.views && !touchable) {
    drained.emplace(
        stream, op.name.c_str(),
        "the host computes it, as " + name() + " has no kernel for it and no memory that this process can touch");
  } else if (!op.views && !entered) {
    std::string why; // why it can't be deferred
    if (device(index).blocking && !capturing(stream))
      why = "CHORUS_DEVICE_BLOCKING is set";
    else if (drawn_here)
      why = "it draws from a generator of the CPU's: give it one of " + name() + "'s";
    else if (!plain || op.at_once)
      why = "its tensors are quantized, nested or sparse";
    else if (refused && !capturing(stream)) // deferred, the error of bad arguments would be the stream's
      why = name() + "'s kernels don't take its arguments, and PyTorch's CPU kernel may refuse them";
    else if (types && !op.known.has(types) && !capturing(stream) && sync_debug() == SyncDebug::none)
      why = "it's the first one with such types, which PyTorch's CPU kernel may refuse";
    else if (why = defer(handle, op.name, index, stream, stack, op.generators); why.empty())
      return;
    enter(stream, op.name.c_str(), why);
    entered = true;
  }
  Turn turn(entered ? stream : 0);
  TensorAliases aliases(index);
  Loans loans(aliases);
  torch::jit::Stack host;
  host.reserve(n + 1);
  for (const c10::IValue& v : arguments)
    host.push_back(to_host(aliases, v));
  for (int i : op.generators)
    if (host[i].isNone())
      host[i] = host_generator(default_generator(index));
  for (size_t i = 0; op.asks && i < n; i++)
    if (host[i].isTensor() && host[i].toTensor().defined() && arguments[i].toTensor().requires_grad())
      host[i].toTensor().unsafeGetTensorImpl()->set_requires_grad(true);
  std::optional<Inside> inside; // not for views, which don't wait for the stream: freed memory may still be in use
  if (entered) {
    inside.emplace(index, stream);
  } else if (!op.views) {
    aliases.fetch();
    for (int i : op.written)
      each_tensor(arguments[i], [&](const at::Tensor& t) { aliases.wrote(t); });
  }
  at::AutoDispatchBelowADInplaceOrView below;
  c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  handle.redispatchBoxed(c10::DispatchKeySet(kernels), &host);
  if (types)
    op.known.add(types);
  aliases.settle();
  auto given = [&](const at::Tensor& t) { // a tensor of the host that the operator has written to
    bool is = false;
    for (int i : op.written)
      each_tensor(arguments[i], [&](const at::Tensor& a) { is = is || a.is_same(t); });
    return is;
  };
  for (c10::IValue& v : host)
    v = map_tensors(
        v, [&](const at::Tensor& t) { return found.on_host() && given(t) ? t : aliases.device(t); });
  torch::jit::drop(*stack, n);
  for (c10::IValue& v : host)
    stack->push_back(std::move(v));
  inside.reset();
  loans.over();
}

void register_autograd_fallback() {
  if (c10::Dispatcher::singleton().hasBackendFallbackForDispatchKey(c10::DispatchKey::AutogradPrivateUse1))
    return;
  auto others = new torch::Library(
      torch::Library::IMPL, "_", c10::DispatchKey::AutogradPrivateUse1, __FILE__, __LINE__);
  others->fallback(torch::autograd::basicAutogradNotImplementedFallback());
}

torch::jit::Stack call_cpu(const c10::OperatorHandle& op, torch::jit::Stack arguments) {
  fallback(op, {}, &arguments);
  return arguments;
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
}

// Operators for which the CPU has a kernel, while PyTorch composes them of others for devices without one.
TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  for (const char* name : {"native_layer_norm", "native_group_norm", "addr", "addr.out", "_stack", "_stack.out",
                           "any.dims", "any.dims_out", "all.dims", "all.dims_out", "mse_loss", "mish_backward",
                           "native_channel_shuffle", "linalg__powsum", "conj_physical_", "pixel_shuffle",
                           "pixel_unshuffle", "smooth_l1_loss", "kaiser_window", "kaiser_window.periodic",
                           "kaiser_window.beta"})
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&fallback>());
}

} // namespace chorus
