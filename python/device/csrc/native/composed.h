// Operators that are made of others.
#pragma once

#include "native/checks.h"
#include "native/copy.h"
#include "native/native.h"

namespace chorus {

// Composed is an operator that a function computes by others. The function returns false, and has changed nothing, for
// what it doesn't cover: then the CPU's kernel has the result, or the error.
class Composed final : public Native {
 public:
  using Function = bool (*)(NativeCall&);

  explicit Composed(Function f) : f_(f) {}

  bool run(NativeCall& call) const override {
    return f_(call);
  }

 private:
  const Function f_;
};

inline void add_composed(const char* name, Composed::Function f) {
  add_native(schema_of(name), std::make_unique<Composed>(f));
}

void add_encoder();
void add_margins();
void add_weights();

// there says whether a tensor is the device's, of a type that kernels have.
inline bool there(const at::Tensor& t) {
  return t.defined() && !t.is_cpu() && dtype_of(t.scalar_type()) != 0;
}

// settle makes a result the operator's: the given one, or a new one.
inline bool settle(NativeCall& call, at::Tensor result, const c10::IValue* given = nullptr) {
  if (!given) {
    call.results.push_back(std::move(result));
    return true;
  }
  const at::Tensor& out = given->toTensor();
  if (!given_result(out) || out.scalar_type() != result.scalar_type())
    return false;
  if (out.sizes() != result.sizes()) {
    if (out.numel() > 0)
      return false;
    out.resize_(result.sizes());
  }
  if (!copy_native(call.index, result, out))
    return false;
  call.results.push_back(out);
  return true;
}

} // namespace chorus
