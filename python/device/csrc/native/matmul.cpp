// Products of matrices and vectors.
#include "native/kernels.h"

#include <ATen/ops/empty.h>

#include "native/checks.h"
#include "native/scaled.h"

namespace chorus {

namespace {

// Matrix is a tensor with a dimension of 1 for each that a vector lacks.
struct Matrix {
  at::DimVector sizes, strides;

  Matrix(const at::Tensor& t, bool row, bool column) : sizes(t.sizes()), strides(t.strides()) {
    if (row) {
      sizes.insert(sizes.begin(), 1);
      strides.insert(strides.begin(), 0);
    }
    if (column) {
      sizes.push_back(1);
      strides.push_back(0);
    }
  }
};

// Form says what an operator's arguments are.
enum class Product {
  kPlain, // a, b
  kSum,   // c, a, b, beta, alpha
};

// check_deterministic alerts if the user wants the same bits each time, and products of the device may have others.
void check_deterministic(DeviceIndex index) {
  if (!at::globalContext().deterministicAlgorithms())
    return;
  chorus_kernel_info info{};
  info.size = sizeof info;
  check(lib.kernel_get(device(index).handle, &info));
  if (info.varies)
    alert_varying_products();
}

// factor_of is alpha or beta as a number of the type that's computed in. For integers it loses its fraction, as on the
// CPU. False: no kernel takes it.
bool factor_of(const at::Scalar& scalar, c10::ScalarType compute, chorus_number& number) {
  if (!scalar.isFloatingPoint() || !c10::isIntegralType(compute, /*includeBool=*/true))
    return number_of(scalar, compute, number);
  double whole = std::trunc(scalar.toDouble());
  return std::fabs(whole) < 128 && (whole >= 0 || compute != at::kByte) && number_of(int64_t(whole), compute, number);
}

class Matmul final : public Native {
 public:
  // dims are the dimensions of a and b: 3, 2, or 1 for a vector.
  Matmul(Product form, int a, int b, const c10::OperatorHandle& op)
      : form_(form),
        a_(a),
        b_(b),
        where_(op.schema()),
        beta_(where_.named("beta")),
        alpha_(where_.named("alpha")),
        gelu_(where_.named("use_gelu")) {}

  bool run(NativeCall& call) const override {
    int first = form_ == Product::kSum;
    const at::Tensor &a = call.arguments[first].toTensor(), &b = call.arguments[first + 1].toTensor();
    c10::ScalarType type = a.scalar_type();
    if (a.is_cpu() || b.is_cpu() || a.dim() != a_ || b.dim() != b_ || b.scalar_type() != type || type == at::kBool ||
        !dtype_of(type))
      return false;
    bool gelu = gelu_ >= 0 && call.arguments[gelu_].toBool();
    if (gelu_ >= 0 && (a.is_complex() || (gelu && !a.is_floating_point())))
      return false;
    Matrix of_a(a, a_ == 1, false), of_b(b, false, b_ == 1);
    size_t dims = of_a.sizes.size();
    if (of_b.sizes.size() != dims || of_a.sizes[dims - 1] != of_b.sizes[dims - 2] ||
        (dims == 3 && of_a.sizes[0] != of_b.sizes[0]))
      return false;
    at::DimVector sizes(of_a.sizes);
    sizes[dims - 1] = of_b.sizes[dims - 1];
    at::Tensor out;
    if (where_.outs.empty())
      out = at::empty({}, a.options());
    else
      out = call.arguments[where_.outs[0]].toTensor();
    if (!given_result(out) || out.scalar_type() != type || !apart(out, a) || !apart(out, b))
      return false;
    Matrix of_out(out, a_ == 1, b_ == 1);
    if (of_out.sizes != sizes)
      return false;
    static const int32_t activations[] = {kernels::Matmul::number("relu"), kernels::Matmul::number("gelu")};
    chorus_number alpha{}, beta{};
    alpha.is_integer = beta.is_integer = 1;
    alpha.integer = 1;
    at::Tensor c;
    std::optional<Matrix> of_c;
    if (form_ == Product::kSum) {
      c = call.arguments[0].toTensor();
      c10::ScalarType compute = computed_in(type);
      if (c.is_cpu() || c.scalar_type() != type || c.dim() > out.dim() || overlap(c, out) ||
          !factor_of(call.arguments[alpha_].toScalar(), compute, alpha) ||
          !factor_of(call.arguments[beta_].toScalar(), compute, beta))
        return false;
      for (int64_t k = 1; k <= c.dim(); k++)
        if (c.size(-k) != 1 && c.size(-k) != out.size(-k))
          return false;
      of_c.emplace(c, false, b_ == 1);
    }
    check_deterministic(call.index);
    bool zero = beta.is_integer ? beta.integer == 0 : beta.real == 0 && beta.imag == 0;
    kernels::Matmul kernel{
        .op = gelu_ < 0 ? 0 : activations[gelu], .out = Output(out, of_out.sizes, of_out.strides),
        .a = Input(a, of_a.sizes, of_a.strides), .b = Input(b, of_b.sizes, of_b.strides), .alpha = alpha, .beta = beta,
        .atomics = !at::globalContext().deterministicAlgorithms()}; // whose order varies
    if (!zero)
      kernel.c = Input(c, of_c->sizes, of_c->strides);
    if (out.numel() > 0 && !kernel.run(call.index))
      return false;
    call.results.push_back(std::move(out));
    return true;
  }

 private:
  const Product form_;
  const int a_, b_;
  const FormArguments where_;
  const int beta_, alpha_, gelu_;
};

} // namespace

void alert_varying_products() {
  std::string text =
      "Deterministic behavior was enabled with either `torch.use_deterministic_algorithms(True)` or "
      "`at::Context::setDeterministicAlgorithms(true)`, but this operation is not deterministic because it uses CuBLAS "
      "and you have CUDA >= 10.2. To enable deterministic behavior in this case, you must set an environment variable "
      "before running your PyTorch application: CUBLAS_WORKSPACE_CONFIG=:4096:8 or CUBLAS_WORKSPACE_CONFIG=:16:8. For "
      "more information, go to https://docs.nvidia.com/cuda/cublas/index.html#results-reproducibility";
  TORCH_CHECK(at::globalContext().deterministicAlgorithmsWarnOnly(), text);
  TORCH_WARN(text);
}

void add_matmul() {
  auto product = [](const char* name, Product form, int a, int b) {
    if (auto op = schema_of(name))
      add_native(*op, std::make_unique<Matmul>(form, a, b, *op));
  };
  product("mm.out", Product::kPlain, 2, 2);
  product("bmm.out", Product::kPlain, 3, 3);
  product("dot", Product::kPlain, 1, 1);
  product("addmm.out", Product::kSum, 2, 2);
  product("_addmm_activation.out", Product::kSum, 2, 2);
  product("baddbmm.out", Product::kSum, 3, 3);
  product("addmv.out", Product::kSum, 2, 1);
  add_scaled_matmul();
}

} // namespace chorus
