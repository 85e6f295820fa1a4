// Operators whose indexes are tensors. An index that's out of range reads 0 or writes nothing, and sets a word.
#include "native/kernels.h"

#include <unordered_map>
#include <utility>

#include <ATen/ExpandUtils.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/nonzero.h>

#include "native/checks.h"
#include "native/copy.h"
#include "native/index_errors.h"
#include "native/ordered.h"

namespace chorus {

namespace {

bool is_index(const at::Tensor& t) {
  return t.defined() && !t.is_cpu() && (t.scalar_type() == at::kLong || t.scalar_type() == at::kInt);
}

// Ops are the operations at indexes.
struct Ops {
  const int32_t take = kernels::Index::number("take"), put = kernels::Index::number("put"),
                add = kernels::Index::number("add");
};

const Ops& ops() {
  static const Ops all;
  return all;
}

// without is a tensor's strides with 0 in a dimension.
at::DimVector without(const at::Tensor& t, int64_t dim) {
  at::DimVector strides(t.strides());
  strides[size_t(dim)] = 0;
  return strides;
}

// Gather is gather.out(self, dim, index, sparse_grad, out).
class Gather final : public Native {
 public:
  bool run(NativeCall& call) const override {
    at::Tensor self = with_dimension(call.arguments[0].toTensor()), out = with_dimension(call.arguments[4].toTensor()),
               index = with_dimension(call.arguments[2].toTensor());
    int64_t dim = call.arguments[1].toInt();
    void* bad = bad_word(call);
    if (!wrapped(dim, self.dim()) || !is_index(index) || !given_result(out) || index.sizes() != out.sizes() ||
        self.dim() != index.dim() || self.scalar_type() != out.scalar_type() || out.is_alias_of(self) ||
        out.is_alias_of(index))
      return false;
    for (int64_t d = 0; d < self.dim(); d++)
      if (d != dim && index.size(d) > self.size(d))
        return false;
    at::DimVector strides = without(self, dim);
    kernels::Index kernel{
        .op = ops().take, .out = out, .in = Input(self, out.sizes(), strides),
        .indexes = {{index, self.size(dim), self.stride(dim), false}}, .bad = bad};
    if (out.numel() > 0 && !kernel.run(call.index))
      return false;
    call.results.push_back(call.arguments[4].toTensor());
    return true;
  }
};

// IndexSelect is index_select(self, dim, index).
class IndexSelect final : public Native {
 public:
  bool run(NativeCall& call) const override {
    at::Tensor self = with_dimension(call.arguments[0].toTensor());
    const at::Tensor& index = call.arguments[2].toTensor();
    int64_t dim = call.arguments[1].toInt();
    bool single = call.arguments[0].toTensor().dim() == 0;
    void* bad = bad_word(call);
    if (!wrapped(dim, self.dim()) || !is_index(index) || index.dim() > 1 || !dtype_of(self.scalar_type()) ||
        (single && index.numel() != 1))
      return false;
    at::DimVector sizes(self.sizes());
    sizes[size_t(dim)] = index.numel();
    at::Tensor out = at::empty(sizes, self.options());
    at::DimVector strides = without(self, dim), index_sizes(sizes.size(), 1), index_strides(sizes.size(), 0);
    index_sizes[size_t(dim)] = index.numel();
    index_strides[size_t(dim)] = index.dim() == 0 ? 0 : index.stride(0);
    kernels::Index kernel{
        .op = ops().take, .out = out, .in = Input(self, sizes, strides),
        .indexes = {{Input(index, index_sizes, index_strides), self.size(dim), self.stride(dim), false}}, .bad = bad};
    if (out.numel() > 0 && !kernel.run(call.index))
      return false;
    call.results.push_back(single ? out.squeeze(0) : std::move(out));
    return true;
  }
};

// Take is take(self, index): elements of all, in their order.
class Take final : public Native {
 public:
  explicit Take(const c10::OperatorHandle& op) : where_(op.schema()) {}

  bool run(NativeCall& call) const override {
    const at::Tensor &self = call.arguments[0].toTensor(), &index = call.arguments[1].toTensor();
    void* bad = bad_word(call);
    if (self.is_cpu() || index.is_cpu() || index.scalar_type() != at::kLong || self.numel() == 0 ||
        !dtype_of(self.scalar_type()))
      return false;
    at::Tensor out;
    if (where_.outs.empty())
      out = at::empty(index.sizes(), self.options());
    else if (out = call.arguments[where_.outs[0]].toTensor(); !given_result(out) || out.sizes() != index.sizes() ||
             out.scalar_type() != self.scalar_type() || out.is_alias_of(self) || out.is_alias_of(index))
      return false;
    at::Tensor line = self.contiguous();
    at::DimVector strides(size_t(index.dim()), 0);
    kernels::Index kernel{
        .op = ops().take, .out = out, .in = Input(line, index.sizes(), strides),
        .indexes = {{index, line.numel(), 1, true}}, .bad = bad};
    if (out.numel() > 0 && !kernel.run(call.index))
      return false;
    call.results.push_back(std::move(out));
    return true;
  }

 private:
  const FormArguments where_;
};

// PutAt is put_(self, index, source, accumulate): elements of all, in their order.
class PutAt final : public Native {
 public:
  bool run(NativeCall& call) const override {
    const at::Tensor &self = call.arguments[0].toTensor(), &index = call.arguments[1].toTensor();
    at::Tensor source = call.arguments[2].toTensor();
    void* bad = bad_word(call);
    if (!given_result(self) || index.is_cpu() || source.is_cpu() || index.scalar_type() != at::kLong ||
        source.scalar_type() != self.scalar_type() || source.numel() != index.numel() || self.numel() == 0 ||
        source.is_alias_of(self) || index.is_alias_of(self))
      return false;
    at::Tensor line = self.contiguous(), at = index.reshape({-1});
    source = source.reshape({-1});
    at::DimVector strides{0};
    bool adds = call.arguments[3].toBool();
    Places places{at.sizes(), strides, {{at, line.numel(), 1, true}}};
    if (!adds && writes_in_order())
      source = last_written(places, source);
    if (adds && adds_in_order(self.scalar_type())) {
      if (at.numel() > 0 && !add_in_order(call, self, without_gaps(self), places, source, bad))
        return false;
      call.results.push_back(self);
      return true;
    }
    kernels::Index kernel{
        .op = adds ? ops().add : ops().put, .out = Output(line, at.sizes(), strides), .in = source,
        .indexes = {{at, line.numel(), 1, true}}, .bad = bad};
    if (at.numel() > 0 && !kernel.run(call.index))
      return false;
    if (!line.is_same(self) && !copy_native(call.index, line, self))
      return false;
    call.results.push_back(self);
    return true;
  }
};

// identity is what a way of joining leaves other elements as they are with.
chorus_number identity(const std::string& kernel, c10::ScalarType type) {
  chorus_number n{};
  bool most = kernel == "amin";
  if (kernel == "add" || kernel == "mul") {
    n.is_integer = 1;
    n.integer = kernel == "mul";
  } else if (c10::isFloatingType(type)) {
    n.real = most ? std::numeric_limits<double>::infinity() : -std::numeric_limits<double>::infinity();
  } else {
    int64_t bits = 8 * int64_t(c10::elementSize(type));
    bool positive = type == at::kByte || type == at::kBool;
    int64_t largest = type == at::kBool ? 1
        : bits == 64                    ? std::numeric_limits<int64_t>::max()
                                        : (int64_t(1) << (positive ? bits : bits - 1)) - 1;
    n.is_integer = 1;
    n.integer = most ? largest : positive ? 0 : -largest - 1;
  }
  return n;
}

// Scatter is an operator that writes a source, or a number, to places of a dimension of a copy of self, or joins it
// with the elements that are there.
class Scatter final : public Native {
 public:
  Scatter(const char* kernel, bool along, const c10::OperatorHandle& op)
      : kernel_(kernel),
        along_(along),
        where_(op.schema()),
        alpha_(where_.named("alpha")),
        reduce_(where_.named("reduce")),
        included_(where_.named("include_self")) {}

  bool run(NativeCall& call) const override {
    const at::Tensor& given = call.arguments[0].toTensor();
    const at::Tensor& given_out = where_.outs.empty() ? given : call.arguments[where_.outs[0]].toTensor();
    if (!given_result(given_out))
      return false;
    at::Tensor self = with_dimension(given), out = with_dimension(given_out);
    Joined j{with_dimension(call.arguments[2].toTensor()), {}, {}, {}, call.arguments[1].toInt(), kernel_};
    bool in_place = given_out.is_same(given), mean = false;
    if (!wrapped(j.dim, self.dim()) || !is_index(j.index) || out.sizes() != self.sizes() ||
        out.scalar_type() != self.scalar_type() || out.is_alias_of(j.index) || (!in_place && out.is_alias_of(self)))
      return false;
    c10::ScalarType type = self.scalar_type();
    if (reduce_ >= 0) {
      const std::string& how = call.arguments[reduce_].toStringRef();
      mean = how == "mean";
      if (how == "sum" || how == "add" || mean)
        j.kernel = "add";
      else if (how == "prod" || how == "multiply")
        j.kernel = "mul";
      else if (how == "amax" || how == "amin")
        j.kernel = how;
      else
        return false;
      if (self.is_complex() || (mean && type == at::kBool))
        return false;
    }
    if (!sizes_of(j, self) || !source_of(j, call.arguments[3], out))
      return false;
    if (alpha_ >= 0 && !call.arguments[alpha_].toScalar().equal(1)) {
      if (!j.source.defined() || type == at::kBool)
        return false;
      j.source = j.source.mul(call.arguments[alpha_].toScalar());
      if (j.source.scalar_type() != type)
        return false;
    }
    if (reduce_ >= 0) { // computed apart, in the type of kernels, so that nothing has changed if one is refused
      bool included = included_ < 0 || call.arguments[included_].toBool();
      if (!included && along_ && type == at::kBool)
        return false; // which the CPU refuses
      at::Tensor work = self.to(computed_in(type), /*non_blocking=*/false, /*copy=*/true);
      if (j.source.defined())
        j.source = j.source.to(work.scalar_type());
      if ((!included && !fill(call, work, j, ops().put, identity(j.kernel, work.scalar_type()))) ||
          !join(call, work, j))
        return false;
      if (mean && !divide(call, work, j, included))
        return false;
      if (!copy_native(call.index, work, out))
        return false;
    } else if ((!in_place && !copy_native(call.index, self, out)) || !join(call, out, j)) {
      return false;
    }
    call.results.push_back(given_out);
    return true;
  }

 private:
  // Joined is what is written, and where.
  struct Joined {
    at::Tensor index;
    at::DimVector sizes, index_sizes, index_strides; // of the elements that are written, and their indexes
    int64_t dim;
    std::string kernel;
    at::Tensor source;    // or undefined, and a number
    chorus_number number{};
  };

  // sizes_of sets the sizes of what is written: those of the indexes, or, along a dimension, of self.
  bool sizes_of(Joined& j, const at::Tensor& self) const {
    j.sizes = at::DimVector(j.index.sizes());
    j.index_sizes = j.sizes;
    j.index_strides = at::DimVector(j.index.strides());
    if (along_) {
      if (j.index.dim() > 1)
        return false;
      j.sizes = at::DimVector(self.sizes());
      j.sizes[size_t(j.dim)] = j.index.numel();
      j.index_sizes.assign(j.sizes.size(), 1);
      j.index_strides.assign(j.sizes.size(), 0);
      j.index_sizes[size_t(j.dim)] = j.index.numel();
      j.index_strides[size_t(j.dim)] = j.index.stride(0);
    }
    if (int64_t(j.sizes.size()) != self.dim())
      return false;
    for (int64_t d = 0; d < self.dim(); d++)
      if (d != j.dim && j.sizes[size_t(d)] > self.size(d))
        return false;
    return true;
  }

  // source_of sets the source, a tensor or a number.
  bool source_of(Joined& j, const c10::IValue& source, const at::Tensor& out) const {
    c10::ScalarType type = out.scalar_type();
    if (source.isTensor() && !source.toTensor().is_cpu()) {
      at::Tensor from = source.toTensor();
      if (from.scalar_type() != type || from.is_alias_of(out))
        return false;
      bool one = from.dim() == 0;
      from = with_dimension(from);
      if (one && along_ && where_.named("value") >= 0)
        from = from.expand(j.sizes);
      if (from.dim() != out.dim())
        return false;
      for (int64_t d = 0; d < out.dim(); d++)
        if (along_ ? from.size(d) != j.sizes[size_t(d)] : from.size(d) < j.sizes[size_t(d)])
          return false;
      j.source = from;
      return true;
    }
    if (source.isTensor() && source.toTensor().dim() > 0)
      return false;
    at::Scalar value = source.isTensor() ? source.toTensor().item() : source.toScalar();
    return number_of(value, computed_in(type), j.number);
  }

  bool write(const NativeCall& call, const at::Tensor& out, const Joined& j, int32_t op, const chorus_number* n) const {
    void* bad = bad_word(call);
    at::DimVector strides = without(out, j.dim);
    at::Tensor source = j.source;
    bool adds = op == op_of("add") || op == op_of("mul"), puts = op == op_of("put");
    if (!n && ((adds && adds_in_order(out.scalar_type())) || (puts && writes_in_order()))) {
      if (op == op_of("mul"))
        return false; // the CPU's kernel multiplies in order
      at::DimVector others = gapless(out.sizes());
      int64_t step = std::exchange(others[size_t(j.dim)], 0);
      Places places{
          j.sizes, others, {{j.index.as_strided(j.index_sizes, j.index_strides), out.size(j.dim), step, false}}};
      source = source.as_strided(j.sizes, source.strides());
      if (adds)
        return c10::multiply_integers(j.sizes) == 0 ||
            add_in_order(call, out, without_gaps(out), places, source, bad);
      source = last_written(places, source);
    }
    kernels::Index kernel{
        .op = op, .out = Output(out, j.sizes, strides),
        .in = n ? Input(*n, out.scalar_type()) : Input(source, j.sizes, source.strides()),
        .indexes = {{Input(j.index, j.index_sizes, j.index_strides), out.size(j.dim), out.stride(j.dim), false}},
        .bad = bad};
    return c10::multiply_integers(j.sizes) == 0 || kernel.run(call.index);
  }

  bool fill(const NativeCall& call, const at::Tensor& out, const Joined& j, int32_t op, chorus_number n) const {
    return write(call, out, j, op, &n);
  }

  // op_of is the number of a name that the table of kernels has.
  static int32_t op_of(const std::string& kernel) {
    static const std::unordered_map<std::string, int32_t> all = [] {
      std::unordered_map<std::string, int32_t> numbers;
      for (const char* name : {"put", "add", "mul", "amax", "amin"})
        numbers.emplace(name, kernels::Index::number(name));
      return numbers;
    }();
    return all.at(kernel);
  }

  bool join(const NativeCall& call, const at::Tensor& out, const Joined& j) const {
    return write(call, out, j, op_of(j.kernel), j.source.defined() ? nullptr : &j.number);
  }

  // divide makes sums means.
  bool divide(const NativeCall& call, at::Tensor& sums, const Joined& j, bool included) const {
    at::Tensor count = at::full_like(sums, included ? 1 : 0);
    chorus_number one{};
    one.is_integer = one.integer = 1;
    if (!fill(call, count, j, ops().add, one))
      return false;
    count.clamp_min_(1);
    if (sums.is_floating_point())
      sums.div_(count);
    else
      sums.div_(count, "floor");
    return true;
  }

  const char* const kernel_;
  const bool along_;
  const FormArguments where_;
  const int alpha_, reduce_, included_;
};

// broadcast says whether two tensors of such sizes can be expanded to common ones.
bool broadcast(at::IntArrayRef a, at::IntArrayRef b) {
  for (size_t k = 1; k <= std::min(a.size(), b.size()); k++)
    if (int64_t m = a[a.size() - k], n = b[b.size() - k]; m != n && m != 1 && n != 1)
      return false;
  return true;
}

// Indexes are the tensors of indexes of a tensor's first dimensions, in the place of these dimensions.
struct Indexes {
  c10::SmallVector<at::Tensor, 6> tensors; // broadcast
  c10::SmallVector<int64_t, 6> dims;
  at::DimVector shape; // of what they select
  at::DimVector result;
  size_t first = 0;     // where that stands in the result
  bool distinct = true; // no two places are the same, as all are those of masks

  // read returns false for what the kernels don't cover.
  bool read(const at::Tensor& self, const c10::IValue& list) {
    std::vector<at::Tensor> found;
    size_t d = 0;
    for (const c10::IValue& v : list.toListRef()) {
      std::optional<at::Tensor> t;
      if (v.isTensor())
        t = v.toTensor();
      if (t.has_value() && t->defined() && t->is_cpu() && !self.is_cpu()) // of a list in Python, for example
        t = t->to(self.device());
      if (t.has_value() && t->defined() && t->scalar_type() == at::kBool) {
        if (t->is_cpu() || int64_t(d) + t->dim() > self.dim() || t->dim() == 0 ||
            t->sizes() != self.sizes().slice(d, size_t(t->dim())))
          return false;
        for (const at::Tensor& along : at::nonzero(*t).unbind(1)) {
          found.push_back(along);
          dims.push_back(int64_t(d++));
        }
        continue;
      }
      if (t.has_value() && t->defined()) {
        if (!is_index(*t))
          return false;
        distinct = false;
        found.push_back(*t);
        dims.push_back(int64_t(d));
      }
      d++;
    }
    if (found.empty() || found.size() > 6 || int64_t(d) > self.dim())
      return false;
    for (const at::Tensor& t : found) {
      if (!broadcast(shape, t.sizes()))
        return false; // the CPU's kernel has the error
      shape = at::infer_size_dimvector(shape, t.sizes());
    }
    bool together = dims.back() - dims.front() + 1 == int64_t(dims.size());
    first = together ? size_t(dims.front()) : 0;
    for (int64_t k = 0, i = 0; k <= self.dim(); k++) {
      if (size_t(result.size()) == first && i == 0) {
        result.append(shape.begin(), shape.end());
        i = 1;
      }
      if (k < self.dim() && std::find(dims.begin(), dims.end(), k) == dims.end())
        result.push_back(self.size(k));
    }
    for (at::Tensor& t : found)
      tensors.push_back(t.expand(shape));
    return true;
  }

  // strides are a tensor's for the result's dimensions, 0 where the indexes are.
  at::DimVector strides(at::IntArrayRef of) const {
    at::DimVector all;
    for (int64_t k = 0; k < int64_t(of.size()); k++)
      if (std::find(dims.begin(), dims.end(), k) == dims.end())
        all.push_back(of[size_t(k)]);
    all.insert(all.begin() + int64_t(first), shape.size(), 0);
    return all;
  }

  // inputs are those of a kernel, whose sizes and strides are kept.
  c10::SmallVector<IndexInput, 2> inputs(const at::Tensor& self, c10::SmallVector<at::DimVector, 12>& kept) const {
    for (size_t i = 0; i < tensors.size(); i++) {
      at::DimVector sizes(result.size(), 1), strides(result.size(), 0);
      for (size_t d = 0; d < shape.size(); d++) {
        sizes[first + d] = shape[d];
        strides[first + d] = tensors[i].stride(int64_t(d));
      }
      kept.push_back(std::move(sizes));
      kept.push_back(std::move(strides));
    }
    c10::SmallVector<IndexInput, 2> all;
    for (size_t i = 0; i < tensors.size(); i++)
      all.push_back({Input(tensors[i], kept[2 * i], kept[2 * i + 1]), self.size(dims[i]), self.stride(dims[i]), true});
    return all;
  }
};

// Index is index.Tensor_out(self, indices, out).
class Index final : public Native {
 public:
  bool run(NativeCall& call) const override {
    const at::Tensor &self = call.arguments[0].toTensor(), &out = call.arguments[2].toTensor();
    Indexes x;
    void* bad = bad_word(call);
    if (self.is_cpu() || !given_result(out) || out.scalar_type() != self.scalar_type() ||
        out.is_alias_of(self) || !x.read(self, call.arguments[1]) || out.sizes() != at::IntArrayRef(x.result))
      return false;
    at::DimVector strides = x.strides(self.strides());
    c10::SmallVector<at::DimVector, 12> kept;
    kernels::Index kernel{
        .op = ops().take, .out = out, .in = Input(self, out.sizes(), strides), .indexes = x.inputs(self, kept),
        .bad = bad};
    if (out.numel() > 0 && !kernel.run(call.index))
      return false;
    call.results.push_back(out);
    return true;
  }
};

// places_of are those of a tensor at indexes. strides are those of one without gaps, and become the places'.
Places places_of(const at::Tensor& self, const Indexes& x, at::DimVector& strides) {
  c10::SmallVector<Places::Index, 2> indexes;
  for (size_t i = 0; i < x.tensors.size(); i++) {
    at::Tensor index = x.tensors[i];
    for (size_t d = x.first + x.shape.size(); d < x.result.size(); d++)
      index = index.unsqueeze(-1);
    indexes.push_back({index, self.size(x.dims[i]), strides[size_t(x.dims[i])], true});
  }
  strides = x.strides(strides);
  return Places{x.result, strides, std::move(indexes)};
}

// IndexPut is _index_put_impl_(self, indices, values, accumulate, unsafe).
class IndexPut final : public Native {
 public:
  bool run(NativeCall& call) const override {
    const at::Tensor& self = call.arguments[0].toTensor();
    at::Tensor values = call.arguments[2].toTensor();
    Indexes x;
    void* bad = bad_word(call);
    if (!given_result(self) || values.scalar_type() != self.scalar_type() || values.is_alias_of(self) ||
        !x.read(self, call.arguments[1]) || values.dim() > int64_t(x.result.size()))
      return false;
    for (const at::Tensor& t : x.tensors)
      if (t.is_alias_of(self))
        return false;
    for (int64_t k = 1; k <= values.dim(); k++)
      if (values.size(-k) != 1 && values.size(-k) != x.result[x.result.size() - size_t(k)])
        return false;
    at::DimVector strides = x.strides(self.strides());
    c10::SmallVector<at::DimVector, 12> kept;
    chorus_number n{};
    if (!values.is_cpu())
      values = values.expand(x.result);
    else if (!number_of(values.item(), computed_in(self.scalar_type()), n))
      return false;
    bool adds = call.arguments[3].toBool();
    bool in_order = adds ? adds_in_order(self.scalar_type()) : writes_in_order();
    if (!values.is_cpu() && !x.distinct && in_order) {
      at::DimVector others = gapless(self.sizes());
      Places places = places_of(self, x, others);
      if (!adds)
        values = last_written(places, values);
      else if (c10::multiply_integers(x.result) > 0 &&
               !add_in_order(call, self, without_gaps(self), places, values, bad))
        return false;
      if (adds) {
        call.results.push_back(self);
        return true;
      }
    }
    kernels::Index kernel{
        .op = adds ? ops().add : ops().put, .out = Output(self, x.result, strides),
        .in = values.is_cpu() ? Input(n, self.scalar_type()) : Input(values), .indexes = x.inputs(self, kept),
        .bad = bad};
    if (c10::multiply_integers(x.result) > 0 && !kernel.run(call.index))
      return false;
    call.results.push_back(self);
    return true;
  }
};

} // namespace

void add_indexed() {
  add_native(schema_of("gather.out"), std::make_unique<Gather>());
  add_native(schema_of("index_select"), std::make_unique<IndexSelect>());
  add_native(schema_of("index.Tensor_out"), std::make_unique<Index>());
  add_native(schema_of("_index_put_impl_"), std::make_unique<IndexPut>());
  auto scatter = [](const char* name, const char* kernel, bool along) {
    if (auto op = schema_of(name))
      add_native(*op, std::make_unique<Scatter>(kernel, along, *op));
  };
  scatter("scatter.src_out", "put", false);
  scatter("scatter.value_out", "put", false);
  scatter("scatter_add.out", "add", false);
  scatter("index_add.out", "add", true);
  scatter("index_copy.out", "put", true);
  scatter("index_fill_.int_Scalar", "put", true);
  scatter("index_fill_.int_Tensor", "put", true);
  for (const char* name : {"scatter_reduce.two_out", "scatter.reduce_out", "scatter.value_reduce_out"})
    scatter(name, "add", false);
  scatter("index_reduce.out", "add", true);
  for (const char* name : {"take", "take.out"}) {
    if (auto op = schema_of(name))
      add_native(*op, std::make_unique<Take>(*op));
  }
  add_native(schema_of("put_"), std::make_unique<PutAt>());
}

} // namespace chorus
