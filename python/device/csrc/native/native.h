// Operators that kernels of the device compute: those of package kernel, by chorus_kernel_run. They are there on
// devices whose driver compiles kernels. On others every operator without a kernel of its own is the fallback's.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <type_traits>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include "runtime/runtime.h"

namespace chorus {

// NativeCall is a call of an operator, whose tensors are the device's, or scalars of the CPU.
struct NativeCall {
  const c10::OperatorName& op;
  DeviceIndex index;
  c10::ArrayRef<c10::IValue> arguments;
  c10::SmallVector<at::Tensor, 3> results; // what the operator returns
  std::optional<c10::List<at::Tensor>> list; // likewise, of an operator that returns a list
  std::optional<bool> truth;                 // likewise, of one that returns a bool
};

// Native computes an operator, in one of its forms, by kernels.
class Native {
 public:
  virtual ~Native() = default;

  // run enqueues the operator's kernels and sets the results. It returns false, and has changed no elements, if the
  // kernels don't cover these arguments.
  virtual bool run(NativeCall& call) const = 0;
};

// native_of is what computes an operator of this name and overload, else NULL.
const Native* native_of(const c10::OperatorName& name);

// sparse_native_of is what computes an operator with sparse tensors among its arguments.
const Native* sparse_native_of(const c10::OperatorName& name);

// open_native makes native_of know the operators, if the device's driver compiles kernels. It's called for each device
// that is opened.
void open_native(chorus_device device);

// run_native computes an operator and replaces its arguments on the stack by its results, if the kernels cover them.
// sparse: its tensors may be so.
bool run_native(const Native& native, const c10::OperatorHandle& op, torch::jit::Stack* stack, bool sparse = false);

// native_names are the names of all operators that kernels compute.
std::vector<std::string> native_names();

// ---- for the families of operators ----

// FormArguments are where the arguments of an operator stand, by its schema.
struct FormArguments {
  explicit FormArguments(const c10::FunctionSchema& schema);

  c10::SmallVector<int, 4> tensors; // that are read
  c10::SmallVector<int, 4> numbers; // of type Scalar, float, int or bool, optional ones too
  c10::SmallVector<int, 3> outs;    // given results
  bool in_place = false;            // the first tensor is the result as well

  // named is the position of an argument, -1 if there's none.
  int named(const char* name) const;

 private:
  const c10::FunctionSchema& schema_;
};

// forms_of calls f for a functional operator, "add.Tensor", and for the forms of the same arguments that write in place
// or to given results, if there are such.
void forms_of(const std::string& name, const std::function<void(const c10::OperatorHandle&)>& f);

// schema_of is the operator of a name with its overload, "add.out". A version of PyTorch may lack it: then absent_names
// has the name.
std::optional<c10::OperatorHandle> schema_of(const std::string& name);
std::set<std::string> absent_names();

// An operator that isn't there has no kernel.
void add_native(const std::optional<c10::OperatorHandle>& op, std::unique_ptr<Native> native);
void add_sparse_native(const std::optional<c10::OperatorHandle>& op, std::unique_ptr<Native> native);

void add_elementwise_operators();
void add_reductions();
void add_rows();
void add_matmul();

// alert_varying_products is PyTorch's error, or its warning, of products whose bits vary where the user wants the same
// ones.
void alert_varying_products();

void add_copies();
void add_indexed();
void add_images();
void add_network();
void add_ordered();
void add_lists();
void add_composed();
void add_transforms();
void add_linear_algebra();
void add_sparse();
void add_lu_unpack();

// kernel_op is the number of an operation; see chorus_kernel_find.
int32_t kernel_op(int32_t kind, const char* name);

// dtype_of is a type of elements as the library's, 0 for one without kernels.
int32_t dtype_of(c10::ScalarType type);

// computed_in is the type that kernels compute in for elements of a type.
c10::ScalarType computed_in(c10::ScalarType type);

// number_of is a number for kernels that compute in a type; false for one that the type doesn't have.
bool number_of(const at::Scalar& scalar, c10::ScalarType compute, chorus_number& number);

// real_number is a number of kernels that has no imaginary part.
inline chorus_number real_number(double x) {
  chorus_number n{};
  n.real = x;
  return n;
}

// Output is a result of a kernel: a tensor with its own sizes and strides, or with given ones. These must stay until
// the kernel is enqueued.
struct Output : chorus_operand {
  Output(const at::Tensor& t) : Output(t, t.sizes(), t.strides()) {}
  Output(const at::Tensor& t, at::IntArrayRef sizes, at::IntArrayRef strides)
      : Output(t.mutable_data_ptr(), t.scalar_type(), sizes, strides) {}
  Output(void* memory, c10::ScalarType type, at::IntArrayRef sizes, at::IntArrayRef strides)
      : chorus_operand{memory, sizes.data(), strides.data(), nullptr, int32_t(sizes.size()), dtype_of(type)} {}

 protected:
  Output() : chorus_operand{} {}
};

// Input is one that is read: likewise, or a number that stands for each element, and stays as well.
struct Input : chorus_operand {
  Input(const at::Tensor& t) : Input(t, t.sizes(), t.strides()) {}
  Input(const at::Tensor& t, at::IntArrayRef sizes, at::IntArrayRef strides)
      : Input(t.const_data_ptr(), t.scalar_type(), sizes, strides) {}
  Input(const void* memory, c10::ScalarType type, at::IntArrayRef sizes, at::IntArrayRef strides)
      : chorus_operand{
            const_cast<void*>(memory), sizes.data(), strides.data(), nullptr, int32_t(sizes.size()), dtype_of(type)} {}
  Input(const chorus_number& number, c10::ScalarType type)
      : chorus_operand{nullptr, nullptr, nullptr, &number, 0, dtype_of(type)} {}

 protected:
  Input() : chorus_operand{} {}
};

// OrNone is an operand that may be left out: one of an undefined tensor is.
template <typename Operand>
struct OrNone : Operand {
  OrNone() {}
  OrNone(const Operand& o) : Operand(o) {}
  OrNone(const at::Tensor& t) {
    if (t.defined())
      static_cast<Operand&>(*this) = Operand(t);
  }
  OrNone(const at::Tensor& t, at::IntArrayRef sizes, at::IntArrayRef strides) {
    if (t.defined())
      static_cast<Operand&>(*this) = Operand(t, sizes, strides);
  }
};
using OutputOrNone = OrNone<Output>;
using InputOrNone = OrNone<Input>;

// IndexInput is an input of places along a dimension of this size and stride.
struct IndexInput : Input {
  int64_t size, stride;
  bool negative; // places may count from the end
};

// Kernel is a chorus_kernel in the making. kernels.h has a struct for each operation, which knows the order.
class Kernel {
 public:
  Kernel(int32_t kind, int32_t op) {
    kernel_.size = sizeof kernel_;
    kernel_.kind = kind;
    kernel_.op = op;
  }

  void compute(c10::ScalarType type) {
    kernel_.compute = dtype_of(type);
  }
  void bad(void* word) {
    kernel_.bad = word;
  }

  // These take single ones and lists.
  template <typename... T>
  void outs(const T&... all) {
    (add<chorus_operand>(outs_, all), ...);
  }
  template <typename... T>
  void ins(const T&... all) {
    (add<chorus_operand>(ins_, all), ...);
  }
  template <typename... T>
  void numbers(const T&... all) {
    (add<chorus_number>(numbers_, all), ...);
  }
  template <typename... T>
  void integers(const T&... all) {
    (add<int64_t>(integers_, all), ...);
  }

  // run enqueues the kernel on the device's current stream. It returns false if there's none for these operands.
  bool run(DeviceIndex index);

 private:
  template <typename Element, typename List, typename T>
  static void add(List& list, const T& x) {
    if constexpr (std::is_same_v<T, double>)
      list.push_back(real_number(x));
    else if constexpr (std::is_convertible_v<T, Element>)
      list.push_back(x);
    else
      for (const auto& each : x)
        add<Element>(list, each);
  }

  chorus_kernel kernel_{};
  c10::SmallVector<chorus_operand, 3> outs_;
  c10::SmallVector<chorus_operand, 4> ins_;
  c10::SmallVector<chorus_number, 4> numbers_;
  c10::SmallVector<int64_t, 16> integers_;
};

} // namespace chorus
