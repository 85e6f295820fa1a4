#include "native/native.h"

#include <mutex>
#include <set>
#include <unordered_map>

#include <torch/library.h>

#include "aten/boxed.h"
#include "aten/fallback.h"
#include "native/copy.h"
#include "native/draws.h"
#include "native/index_errors.h"
#include "runtime/stream.h"

namespace chorus {

namespace {

using NativeTable = std::unordered_map<c10::OperatorName, std::unique_ptr<Native>>;

NativeTable& native_table() {
  static auto* all = new NativeTable;
  return *all;
}

// sparse_table has the operators on sparse tensors.
NativeTable& sparse_table() {
  static auto* all = new NativeTable;
  return *all;
}

// Overloads of each operator of PyTorch's, by its name without one.
const std::unordered_map<std::string, std::vector<c10::OperatorName>>& overloads() {
  static auto* all = [] {
    auto* by_name = new std::unordered_map<std::string, std::vector<c10::OperatorName>>;
    for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames())
      if (name.name.rfind("aten::", 0) == 0)
        (*by_name)[name.name].push_back(name);
    return by_name;
  }();
  return *all;
}

// Names that schema_of hasn't found.
std::mutex absent_mutex;
std::set<std::string> absent;

std::atomic<bool> natives_ready{false};
std::atomic<int64_t> refused_kernels{0};

// The registrations last as long as the process.
torch::Library& native_registrations() {
  static auto* m = new torch::Library(
      torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  return *m;
}

// same_arguments says whether an operator has the same arguments as a functional one, results left out.
bool same_arguments(const c10::FunctionSchema& functional, const c10::FunctionSchema& other) {
  const auto &a = functional.arguments(), &b = other.arguments();
  size_t k = 0;
  for (const c10::Argument& argument : b) {
    if (argument.is_out())
      continue;
    if (k == a.size() || a[k].name() != argument.name() || *a[k].type() != *argument.type())
      return false;
    k++;
  }
  return k == a.size();
}

// resolve makes arguments whose tensors are conjugated or negated in memory. It returns false if one of these would be
// written to.
bool resolve(
    const c10::FunctionSchema& schema, c10::ArrayRef<c10::IValue> arguments,
    c10::SmallVector<c10::IValue, 8>& resolved) {
  for (size_t i = 0; i < arguments.size(); i++) {
    const c10::AliasInfo* alias = schema.arguments()[i].alias_info();
    bool fits = true;
    resolved.push_back(map_tensors(arguments[i], [&](const at::Tensor& t) {
      if (!t.defined() || (!t.is_conj() && !t.is_neg()))
        return t;
      fits = fits && alias == nullptr;
      return t.resolve_conj().resolve_neg();
    }));
    if (!fits)
      return false;
  }
  return true;
}

// say_refused warns once of a kernel that the driver's compiler refuses.
void say_refused(DeviceIndex index) {
  chorus_kernel_info info{};
  info.size = sizeof info;
  std::string why = lib.last_error()->message;
  if (lib.kernel_get(device(index).handle, &info) != CHORUS_OK || info.refused <= refused_kernels)
    return;
  if (refused_kernels.exchange(info.refused) == 0)
    TORCH_WARN(
        "the compiler of ", c10::Device(kType, index), " refuses a kernel; PyTorch's CPU kernels compute such "
        "operators. ", why);
}

// finish waits for what the current stream has been given.
void finish(DeviceIndex index) {
  chorus_stream stream = current_handle(index);
  if (capturing(stream))
    return;
  await(stream);
  check_indexes(index, stream, /*of_call=*/true);
}

} // namespace

const Native* native_of(const c10::OperatorName& name) {
  if (natives_ready)
    if (auto found = native_table().find(name); found != native_table().end())
      return found->second.get();
  return draw_of(name);
}

const Native* sparse_native_of(const c10::OperatorName& name) {
  if (!natives_ready)
    return nullptr;
  auto found = sparse_table().find(name);
  return found == sparse_table().end() ? nullptr : found->second.get();
}

bool has_natives() {
  return natives_ready;
}

std::vector<std::string> native_names() {
  std::vector<std::string> names;
  if (natives_ready) {
    for (auto& entry : native_table())
      names.push_back(c10::toString(entry.first));
    for (const c10::OperatorName& name : draw_names())
      names.push_back(c10::toString(name));
  }
  return names;
}

void open_native(chorus_device device) {
  chorus_kernel_info info{};
  info.size = sizeof info;
  if (lib.kernel_get(device, &info) != CHORUS_OK || info.off)
    return;
  static std::once_flag once;
  std::call_once(once, [device] {
    add_elementwise_operators();
    add_reductions();
    add_rows();
    add_matmul();
    add_copies();
    add_indexed();
    add_images();
    add_network();
    add_ordered();
    add_lists();
    add_composed();
    add_transforms();
    add_sparse();
    add_lu_unpack();
    if (lib.solve_get(device, 0) == CHORUS_OK) // else the CPU's kernels are as those of any operator without one
      add_linear_algebra();
    natives_ready = true;
    for (auto& entry : native_table()) {
      auto op = c10::Dispatcher::singleton().findSchemaOrThrow(
          entry.first.name.c_str(), entry.first.overload_name.c_str());
      TORCH_INTERNAL_ASSERT(
          !op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd) ||
              op.hasKernelForDispatchKey(c10::DispatchKey::Autograd),
          entry.first,
          " has no backward pass of its own, which a kernel of the device would take away");
      if (!op.hasKernelForDispatchKey(c10::DispatchKey::PrivateUse1))
        native_registrations().impl(
            c10::toString(entry.first).c_str(), torch::CppFunction::makeFromBoxedFunction<&fallback>());
    }
  });
}

// takes_indexes says whether an operator's lists are indexes, which may be the host's: they are copied.
static bool takes_indexes(const c10::OperatorHandle& op) {
  const std::string& name = op.operator_name().name;
  return name == "aten::index" || name == "aten::_index_put_impl_";
}

bool run_native(const Native& native, const c10::OperatorHandle& op, torch::jit::Stack* stack, bool sparse) {
  size_t n = op.schema().arguments().size();
  auto arguments = torch::jit::last(*stack, n);
  DeviceIndex index = -1;
  bool fits = true, lazy = false;
  for (const c10::IValue& v : arguments) {
    auto see = [&](const at::Tensor& t) {
      if (!t.defined())
        return;
      c10::Device d = t.device();
      if (d.type() == kType) {
        fits = fits && (index < 0 || index == d.index());
        index = d.index();
      } else {
        fits = fits && d.is_cpu() && (t.dim() == 0 || (v.isList() && takes_indexes(op)));
      }
      fits = fits && (sparse || t.layout() == c10::Layout::Strided) && !t._is_zerotensor();
      lazy = lazy || t.is_conj() || t.is_neg();
    };
    if (v.isTensor())
      see(v.toTensor());
    else if (v.isList())
      each_tensor(v, see);
    else if (v.isDevice() && v.toDevice().type() == kType)
      index = index_of(v.toDevice());
  }
  if (!fits || index < 0)
    return false;
  Current scope(index);
  c10::SmallVector<c10::IValue, 8> resolved;
  if (__builtin_expect(lazy, 0)) {
    if (!resolve(op.schema(), arguments, resolved))
      return false;
    arguments = resolved;
  }
  NativeCall call{op.operator_name(), index, arguments, {}, {}, {}};
  if (!native.run(call))
    return false;
  if (__builtin_expect(device(index).blocking, 0))
    finish(index);
  torch::jit::drop(*stack, n);
  for (at::Tensor& t : call.results)
    stack->emplace_back(std::move(t));
  if (call.list)
    stack->emplace_back(std::move(*call.list));
  if (call.truth)
    stack->emplace_back(*call.truth);
  return true;
}

FormArguments::FormArguments(const c10::FunctionSchema& schema) : schema_(schema) {
  for (size_t i = 0; i < schema.arguments().size(); i++) {
    const c10::Argument& a = schema.arguments()[i];
    c10::TypePtr type = a.type();
    if (auto optional = type->cast<c10::OptionalType>())
      type = optional->getElementType();
    bool writes = a.alias_info() && a.alias_info()->isWrite();
    switch (type->kind()) {
      case c10::TypeKind::TensorType:
        if (a.is_out()) {
          outs.push_back(int(i));
          break;
        }
        in_place = in_place || writes;
        tensors.push_back(int(i));
        break;
      case c10::TypeKind::NumberType:
      case c10::TypeKind::FloatType:
      case c10::TypeKind::IntType:
      case c10::TypeKind::BoolType:
        numbers.push_back(int(i));
        break;
      default:
        break;
    }
  }
}

int FormArguments::named(const char* name) const {
  for (size_t i = 0; i < schema_.arguments().size(); i++)
    if (schema_.arguments()[i].name() == name)
      return int(i);
  return -1;
}

std::optional<c10::OperatorHandle> schema_of(const std::string& name) {
  size_t dot = name.find('.');
  std::string overload = dot == std::string::npos ? "" : name.substr(dot + 1);
  auto op = c10::Dispatcher::singleton().findSchema({"aten::" + name.substr(0, dot), overload});
  if (!op) {
    std::lock_guard lock(absent_mutex);
    absent.insert(name);
  }
  return op;
}

std::set<std::string> absent_names() {
  std::lock_guard lock(absent_mutex);
  return absent;
}

void forms_of(const std::string& name, const std::function<void(const c10::OperatorHandle&)>& f) {
  auto functional = schema_of(name);
  if (!functional)
    return;
  f(*functional);
  std::string base = functional->operator_name().name;
  for (const std::string& of : {base, base + "_"}) {
    auto found = overloads().find(of);
    if (found == overloads().end())
      continue;
    for (const c10::OperatorName& other : found->second) {
      if (other == functional->operator_name())
        continue;
      auto op = c10::Dispatcher::singleton().findSchema(other);
      if (op && same_arguments(functional->schema(), op->schema()))
        f(*op);
    }
  }
}

void add_native(const std::optional<c10::OperatorHandle>& op, std::unique_ptr<Native> native) {
  if (!op)
    return;
  bool added = native_table().emplace(op->operator_name(), std::move(native)).second;
  TORCH_INTERNAL_ASSERT(added, op->operator_name(), " has two kernels");
}

void add_sparse_native(const std::optional<c10::OperatorHandle>& op, std::unique_ptr<Native> native) {
  if (op)
    sparse_table().emplace(op->operator_name(), std::move(native));
}

int32_t kernel_op(int32_t kind, const char* name) {
  int32_t op = 0;
  check(lib.kernel_find(kind, name, &op));
  return op;
}

int32_t dtype_of(c10::ScalarType type) {
  switch (type) {
    case c10::ScalarType::Bool:
      return CHORUS_BOOL;
    case c10::ScalarType::Byte:
      return CHORUS_UINT8;
    case c10::ScalarType::Char:
      return CHORUS_INT8;
    case c10::ScalarType::Short:
      return CHORUS_INT16;
    case c10::ScalarType::Int:
      return CHORUS_INT32;
    case c10::ScalarType::Long:
      return CHORUS_INT64;
    case c10::ScalarType::Half:
      return CHORUS_FLOAT16;
    case c10::ScalarType::BFloat16:
      return CHORUS_BFLOAT16;
    case c10::ScalarType::Float:
      return CHORUS_FLOAT32;
    case c10::ScalarType::Double:
      return CHORUS_FLOAT64;
    case c10::ScalarType::ComplexFloat:
      return CHORUS_COMPLEX64;
    case c10::ScalarType::ComplexDouble:
      return CHORUS_COMPLEX128;
    default:
      return 0;
  }
}

c10::ScalarType computed_in(c10::ScalarType type) {
  return type == c10::ScalarType::Half || type == c10::ScalarType::BFloat16 ? c10::ScalarType::Float : type;
}

bool number_of(const at::Scalar& scalar, c10::ScalarType compute, chorus_number& number) {
  number = {};
  if (scalar.isSymbolic())
    return false;
  if (scalar.isComplex()) {
    auto z = scalar.toComplexDouble();
    number.real = z.real();
    number.imag = z.imag();
    return c10::isComplexType(compute);
  }
  if (scalar.isFloatingPoint()) {
    number.real = scalar.toDouble();
    return !c10::isIntegralType(compute, /*includeBool=*/true);
  }
  if (!scalar.isBoolean() && !scalar.isIntegral(false))
    return false;
  number.is_integer = 1;
  number.integer = scalar.isBoolean() ? scalar.toBool() : scalar.to<int64_t>();
  if (compute == c10::ScalarType::Bool)
    number.integer = number.integer != 0;
  return true;
}

bool Kernel::run(DeviceIndex index) {
  kernel_.outs = outs_.data();
  kernel_.n_outs = int32_t(outs_.size());
  kernel_.ins = ins_.data();
  kernel_.n_ins = int32_t(ins_.size());
  kernel_.numbers = numbers_.data();
  kernel_.n_numbers = int32_t(numbers_.size());
  kernel_.integers = integers_.data();
  kernel_.n_integers = int32_t(integers_.size());
  chorus_status status = lib.kernel_run(current_handle(index), &kernel_);
  if (__builtin_expect(status == CHORUS_UNSUPPORTED, 0)) {
    say_refused(index);
    return false;
  }
  check(status);
  return true;
}

} // namespace chorus
