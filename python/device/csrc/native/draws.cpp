// Random numbers of CUDA's: the distributions, by PyTorch's own functions, whose stubs fill the device's memory. In the
// other mode, in which numbers are the CPU's, the fallback computes them.
#include "native/draws.h"

#include <cmath>
#include <functional>
#include <unordered_map>

#include <ATen/native/TensorFactories.h>
#include <ATen/native/TensorIterator.h>
#include <ATen/native/UnaryOps.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/bernoulli_native.h>
#include <ATen/ops/cauchy_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/exponential_native.h>
#include <ATen/ops/geometric_native.h>
#include <ATen/ops/log_normal_native.h>
#include <ATen/ops/multinomial_native.h>
#include <ATen/ops/normal_native.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/random_native.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/uniform_native.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include "native/copy.h"
#include "native/kernels.h"
#include "runtime/generator.h"

namespace chorus {

namespace {

using at::Tensor;
using MaybeGenerator = std::optional<at::Generator>;

// Kinds of numbers: those of chorus_random.
enum DrawKind {
  kUniform,
  kNormal,
  kLogNormal,
  kExponential,
  kCauchy,
  kGeometric,
  kBernoulli,
  kBernoulliEach,
  kIntegers,
  kWhole,
};

chorus_random request_of(DrawKind kind, double a = 0, double b = 0) {
  chorus_random r{};
  r.kind = kind;
  r.a = a;
  r.b = b;
  return r;
}

// fill_drawn draws a tensor's elements. As on CUDA they are in the order of their addresses.
void fill_drawn(const at::TensorBase& given, chorus_random r, const MaybeGenerator& generator) {
  Tensor self(given);
  r.dtype = dtype_of(self.scalar_type());
  if (self.is_non_overlapping_and_dense())
    return draw(self, r, generator);
  Tensor dense = at::empty_like(self);
  draw(dense, r, generator);
  self.copy_(dense);
}

void fill_drawn(at::TensorIteratorBase& iter, chorus_random r, const MaybeGenerator& generator) {
  fill_drawn(iter.tensor(0), r, generator);
}

void draw_uniform(at::TensorIteratorBase& iter, double from, double to, MaybeGenerator g) {
  fill_drawn(iter, request_of(kUniform, from, to), g);
}

void draw_normal(const at::TensorBase& self, double mean, double std, MaybeGenerator g) {
  fill_drawn(self, request_of(kNormal, mean, std), g);
}

void draw_log_normal(at::TensorIteratorBase& iter, double mean, double std, MaybeGenerator g) {
  fill_drawn(iter, request_of(kLogNormal, mean, std), g);
}

void draw_exponential(at::TensorIteratorBase& iter, double rate, MaybeGenerator g) {
  fill_drawn(iter, request_of(kExponential, rate), g);
}

void draw_cauchy(at::TensorIteratorBase& iter, double median, double sigma, MaybeGenerator g) {
  fill_drawn(iter, request_of(kCauchy, median, sigma), g);
}

void draw_geometric(at::TensorIteratorBase& iter, double p, MaybeGenerator g) {
  fill_drawn(iter, request_of(kGeometric, p), g);
}

void draw_bernoulli(const at::TensorBase& self, double p, MaybeGenerator g) {
  fill_drawn(self, request_of(kBernoulli, p), g);
}

void draw_bernoulli_each(const at::TensorBase& given, const at::TensorBase& probabilities, MaybeGenerator g) {
  if (probabilities.is_cpu() && probabilities.dim() == 0 && given.numel() > 0) {
    double p_in = Tensor(probabilities).item<double>();
    TORCH_CHECK(p_in >= 0 && p_in <= 1); // the name and so the text are those of the CPU's error
  }
  Tensor self(given), dense = self.is_non_overlapping_and_dense() ? self : at::empty_like(self);
  c10::ScalarType type = self.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  Tensor p = at::empty_like(dense, dense.options().dtype(type)); // in the same order
  p.copy_(Tensor(probabilities).expand_as(self));
  chorus_random r = request_of(kBernoulliEach);
  r.dtype = dtype_of(self.scalar_type());
  r.probabilities = p.const_data_ptr();
  r.probabilities_dtype = dtype_of(type);
  draw(dense, r, g);
  if (!dense.is_same(self))
    self.copy_(dense);
}

void draw_integers(at::TensorIteratorBase& iter, uint64_t range, int64_t base, MaybeGenerator g) {
  chorus_random r = request_of(kIntegers);
  r.first = base;
  r.last = int64_t(uint64_t(base) + range - 1);
  fill_drawn(iter, r, g);
}

void draw_all_integers(at::TensorIteratorBase& iter, MaybeGenerator g) {
  chorus_random r = request_of(kIntegers);
  r.first = std::numeric_limits<int64_t>::min();
  r.last = std::numeric_limits<int64_t>::max();
  fill_drawn(iter, r, g);
}

void draw_whole(at::TensorIteratorBase& iter, MaybeGenerator g) {
  fill_drawn(iter, request_of(kWhole), g);
}

// draw_with_replacement draws categories. CUDA's kernel gives each sample a thread, in blocks of 128 for a
// distribution, whose first uniform number is looked up in the sums of probabilities.
void draw_with_replacement(Tensor& result, const Tensor& self, int64_t samples, MaybeGenerator g) {
  constexpr int64_t block = 128;
  Tensor weights = self.dim() == 1 ? self.unsqueeze(0) : self;
  int64_t categories = weights.size(1);
  weights = weights.div(weights.sum(1, true));
  Tensor sums = weights.cumsum(1);
  int64_t threads = (samples + block - 1) / block * block;
  Tensor u = at::empty({weights.size(0), threads}, self.options().dtype(at::kFloat)).uniform_(0, 1, g);
  u = u.narrow(1, 0, samples);
  u = u.masked_fill(u.eq(0), 1).to(self.scalar_type()); // of (0, 1]
  Tensor found = at::searchsorted(sums, u.contiguous()).clamp_max(categories - 1);
  // The last category up to there with a probability.
  Tensor places = at::arange(categories, found.options()).expand_as(weights);
  Tensor possible = std::get<0>(at::where(weights.gt(0), places, at::zeros_like(places)).cummax(1));
  result.copy_(possible.gather(1, found).view_as(result));
}

// permute is torch.randperm(n), as CUDA's kernel makes it: the order of random keys of so few bits that equal ones are
// rare, whose elements are then shuffled. It needs kernels.
bool permute(int64_t n, const MaybeGenerator& g, Tensor& out) {
  if (!has_natives() || n < 0)
    return false;
  at::native::check_supported_max_int_with_precision(n, out);
  out.resize_({n});
  double of = double(n), threshold = std::log(0.9) * 12;
  int bits = std::min(64, int(std::ceil(std::log2(of - (6 * of * of + 1) / threshold))));
  if (n == 0)
    return true;
  bool narrow = bits <= 32;
  Tensor keys = at::empty({n}, out.options().dtype(narrow ? at::kInt : at::kLong));
  if (narrow)
    keys.random_(std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max(), g);
  else
    keys.random_(std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max(), g);
  if (bits < (narrow ? 32 : 64))
    keys.bitwise_and_(int64_t((uint64_t(1) << bits) - 1));
  auto [sorted, places] = keys.sort(std::optional<bool>(true), 0, /*descending=*/false);
  DeviceIndex index = out.device().index();
  chorus_draw at = take_numbers(g, index, uint64_t(n));
  kernels::Shuffle kernel{
      .data = places, .keys = sorted, .state = state_of(at), .seed = int64_t(at.seed), .offset = int64_t(at.offset)};
  if (!kernel.run(index))
    return false;
  out.copy_(places);
  return true;
}

// rrelu is rrelu_with_noise in training, whose noise is the slope of negative elements, and 1 for others.
Tensor rrelu(c10::ArrayRef<c10::IValue> a, const MaybeGenerator& g, const std::optional<Tensor>& out) {
  Tensor self = a[0].toTensor(), noise = a[1].toTensor();
  double lower = a[2].toScalar().toDouble(), upper = a[3].toScalar().toDouble();
  if (!a[4].toBool() || self.sizes() != noise.sizes() || self.scalar_type() != noise.scalar_type() || lower > upper ||
      !std::isfinite(lower) || !std::isfinite(upper))
    return Tensor();
  Tensor u = at::empty_like(self, at::MemoryFormat::Contiguous).uniform_(0, 1, g);
  u = u.masked_fill_(u.eq(0), 1).mul_(upper - lower).add_(lower); // of (0, 1]
  noise.copy_(at::where(self.le(0), u, at::ones_like(u)));
  if (!out.has_value())
    return self.mul(noise);
  if (!out->is_same(self))
    out->resize_(self.sizes());
  return out->copy_(self.mul(noise));
}

// Numbers are what types of elements a distribution fills by CUDA's rules. The fallback has others, and their errors.
enum class Numbers { floating, floating_or_complex, real, all };

bool has_numbers(Numbers numbers, c10::ScalarType type) {
  if (!dtype_of(type))
    return false;
  switch (numbers) {
    case Numbers::floating:
      return c10::isFloatingType(type);
    case Numbers::floating_or_complex:
      return c10::isFloatingType(type) || c10::isComplexType(type);
    case Numbers::real:
      return !c10::isComplexType(type) && type != at::kBool;
    default:
      return !c10::isComplexType(type);
  }
}

// Draw is an operator that draws from a generator of the device.
class Draw final : public Native {
 public:
  using Run = std::function<Tensor(c10::ArrayRef<c10::IValue>, const MaybeGenerator&)>;

  Draw(const c10::OperatorHandle& op, Numbers numbers, Run run)
      : generator_(FormArguments(op.schema()).named("generator")), numbers_(numbers), run_(std::move(run)) {
    for (size_t i = 0; i < op.schema().arguments().size(); i++)
      if (const c10::AliasInfo* alias = op.schema().arguments()[i].alias_info(); alias && alias->isWrite())
        written_ = int(i);
  }

  bool run(NativeCall& call) const override {
    const auto& a = call.arguments;
    MaybeGenerator generator = a[generator_].toOptional<at::Generator>();
    if ((generator.has_value() && generator->device().type() != kType) ||
        (written_ >= 0 && a[written_].toTensor().device().type() != kType))
      return false;
    for (const c10::IValue& v : a)
      if (v.isTensor() && v.toTensor().defined() && !has_numbers(numbers_, v.toTensor().scalar_type()))
        return false;
    Tensor result = run_(a, generator);
    if (!result.defined())
      return false;
    call.results.push_back(std::move(result));
    return true;
  }

 private:
  const int generator_;
  int written_ = -1;
  const Numbers numbers_;
  const Run run_;
};

using DrawTable = std::unordered_map<c10::OperatorName, std::unique_ptr<Native>>;

DrawTable make_draws() {
  DrawTable table;
  auto add = [&](const char* name, Numbers numbers, Draw::Run run) {
    if (auto op = schema_of(name))
      table.emplace(op->operator_name(), std::make_unique<Draw>(*op, numbers, std::move(run)));
  };
  namespace native = at::native;
  using Arguments = c10::ArrayRef<c10::IValue>;
  add("uniform_", Numbers::floating_or_complex, [](Arguments a, const MaybeGenerator& g) {
    Tensor self = a[0].toTensor();
    return native::uniform_(self, a[1].toDouble(), a[2].toDouble(), g);
  });
  add("normal_", Numbers::floating_or_complex, [](Arguments a, const MaybeGenerator& g) {
    Tensor self = a[0].toTensor();
    return native::normal_(self, a[1].toDouble(), a[2].toDouble(), g);
  });
  add("log_normal_", Numbers::floating, [](Arguments a, const MaybeGenerator& g) {
    Tensor self = a[0].toTensor();
    return native::log_normal_(self, a[1].toDouble(), a[2].toDouble(), g);
  });
  add("exponential_", Numbers::floating, [](Arguments a, const MaybeGenerator& g) {
    Tensor self = a[0].toTensor();
    return native::exponential_(self, a[1].toDouble(), g);
  });
  add("cauchy_", Numbers::floating, [](Arguments a, const MaybeGenerator& g) {
    Tensor self = a[0].toTensor();
    return native::cauchy_(self, a[1].toDouble(), a[2].toDouble(), g);
  });
  add("geometric_", Numbers::real, [](Arguments a, const MaybeGenerator& g) {
    Tensor self = a[0].toTensor();
    return native::geometric_(self, a[1].toDouble(), g);
  });
  add("bernoulli_.float", Numbers::all, [](Arguments a, const MaybeGenerator& g) {
    Tensor self = a[0].toTensor();
    return native::bernoulli_(self, a[1].toDouble(), g);
  });
  add("bernoulli_.Tensor", Numbers::all, [](Arguments a, const MaybeGenerator& g) {
    Tensor self = a[0].toTensor();
    return a[1].toTensor().is_floating_point() ? native::bernoulli_(self, a[1].toTensor(), g) : Tensor();
  });
  add("bernoulli.out", Numbers::all, [](Arguments a, const MaybeGenerator& g) {
    Tensor out = a[2].toTensor();
    return a[0].toTensor().is_floating_point() ? native::bernoulli_out(a[0].toTensor(), g, out) : Tensor();
  });
  add("random_", Numbers::all, [](Arguments a, const MaybeGenerator& g) {
    Tensor self = a[0].toTensor();
    return native::random_(self, g);
  });
  add("random_.to", Numbers::all, [](Arguments a, const MaybeGenerator& g) {
    Tensor self = a[0].toTensor();
    return native::random_(self, a[1].toInt(), g);
  });
  add("random_.from", Numbers::all, [](Arguments a, const MaybeGenerator& g) {
    Tensor self = a[0].toTensor();
    return native::random_(self, a[1].toInt(), a[2].toOptional<int64_t>(), g);
  });
  add("normal.Tensor_float", Numbers::floating_or_complex, [](Arguments a, const MaybeGenerator& g) {
    return native::normal(a[0].toTensor(), a[1].toDouble(), g);
  });
  add("normal.float_Tensor", Numbers::floating_or_complex, [](Arguments a, const MaybeGenerator& g) {
    return native::normal(a[0].toDouble(), a[1].toTensor(), g);
  });
  add("normal.Tensor_Tensor", Numbers::floating_or_complex, [](Arguments a, const MaybeGenerator& g) {
    return native::normal(a[0].toTensor(), a[1].toTensor(), g);
  });
  add("normal.Tensor_float_out", Numbers::floating_or_complex, [](Arguments a, const MaybeGenerator& g) {
    Tensor out = a[3].toTensor();
    return native::normal_out(a[0].toTensor(), a[1].toDouble(), g, out);
  });
  add("normal.float_Tensor_out", Numbers::floating_or_complex, [](Arguments a, const MaybeGenerator& g) {
    Tensor out = a[3].toTensor();
    return native::normal_out(a[0].toDouble(), a[1].toTensor(), g, out);
  });
  add("normal.Tensor_Tensor_out", Numbers::floating_or_complex, [](Arguments a, const MaybeGenerator& g) {
    Tensor out = a[3].toTensor();
    return native::normal_out(a[0].toTensor(), a[1].toTensor(), g, out);
  });
  add("randperm.generator_out", Numbers::real, [](Arguments a, const MaybeGenerator& g) {
    Tensor out = a[2].toTensor();
    return permute(a[0].toInt(), g, out) ? out : Tensor();
  });
  add("rrelu_with_noise", Numbers::floating, [](Arguments a, const MaybeGenerator& g) {
    return rrelu(a, g, std::nullopt);
  });
  add("rrelu_with_noise_", Numbers::floating, [](Arguments a, const MaybeGenerator& g) {
    return rrelu(a, g, a[0].toTensor());
  });
  add("rrelu_with_noise.out", Numbers::floating, [](Arguments a, const MaybeGenerator& g) {
    return rrelu(a, g, a[6].toTensor());
  });
  add("multinomial", Numbers::floating, [](Arguments a, const MaybeGenerator& g) {
    return native::multinomial(a[0].toTensor(), a[1].toInt(), a[2].toBool(), g);
  });
  add("multinomial.out", Numbers::all, [](Arguments a, const MaybeGenerator& g) {
    Tensor out = a[4].toTensor();
    return native::multinomial_out(a[0].toTensor(), a[1].toInt(), a[2].toBool(), g, out);
  });
  return table;
}

const DrawTable& draw_table() {
  static auto* table = new DrawTable(make_draws());
  return *table;
}

} // namespace

const Native* draw_of(const c10::OperatorName& name) {
  auto found = draw_table().find(name);
  return found == draw_table().end() ? nullptr : found->second.get();
}

InputOrNone state_of(const chorus_draw& at) {
  static const int64_t words = 2, dense = 1;
  return at.state ? InputOrNone(Input(at.state, at::kLong, {&words, 1}, {&dense, 1})) : InputOrNone();
}

bool drop(const Tensor& input, double keep, Tensor& out, Tensor& mask) {
  if (!uses_philox() || !has_natives() || !has_numbers(Numbers::floating, input.scalar_type()) || input.numel() == 0 ||
      input.device().type() != kType)
    return false;
  out = at::empty_like(input);
  mask = at::empty_like(input, input.options().dtype(at::kBool));
  DeviceIndex index = input.device().index();
  chorus_draw at = take_numbers(std::nullopt, index, 4);
  kernels::Dropout kernel{
      .out = out, .mask = mask, .in = input, .state = state_of(at), .keep = keep, .seed = int64_t(at.seed),
      .offset = int64_t(at.offset)};
  return kernel.run(index);
}

std::vector<c10::OperatorName> draw_names() {
  std::vector<c10::OperatorName> names;
  for (auto& entry : draw_table())
    names.push_back(entry.first);
  return names;
}

} // namespace chorus

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(uniform_stub, &chorus::draw_uniform)
REGISTER_PRIVATEUSE1_DISPATCH(normal_stub, &chorus::draw_normal)
REGISTER_PRIVATEUSE1_DISPATCH(log_normal_stub, &chorus::draw_log_normal)
REGISTER_PRIVATEUSE1_DISPATCH(exponential_stub, &chorus::draw_exponential)
REGISTER_PRIVATEUSE1_DISPATCH(cauchy_stub, &chorus::draw_cauchy)
REGISTER_PRIVATEUSE1_DISPATCH(geometric_stub, &chorus::draw_geometric)
REGISTER_PRIVATEUSE1_DISPATCH(bernoulli_scalar_stub, &chorus::draw_bernoulli)
REGISTER_PRIVATEUSE1_DISPATCH(bernoulli_tensor_stub, &chorus::draw_bernoulli_each)
REGISTER_PRIVATEUSE1_DISPATCH(random_from_to_stub, &chorus::draw_integers)
REGISTER_PRIVATEUSE1_DISPATCH(random_full_64_bits_range_stub, &chorus::draw_all_integers)
REGISTER_PRIVATEUSE1_DISPATCH(random_stub, &chorus::draw_whole)
REGISTER_PRIVATEUSE1_DISPATCH(multinomial_with_replacement_stub, &chorus::draw_with_replacement)
} // namespace at::native
