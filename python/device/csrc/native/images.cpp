// Operators on images of one to three dimensions: convolutions, pools, interpolations, borders, columns.
#include "native/kernels.h"

#include <ATen/native/Pool.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "native/averages.h"
#include "native/checks.h"
#include "native/index_errors.h"

namespace chorus {

namespace {

// Image is a tensor with dimensions of batch, channels and space. One without a batch has a batch of size 1.
struct Image {
  at::DimVector sizes, strides;

  Image(const at::Tensor& t, int space) : sizes(t.sizes()), strides(t.strides()) {
    if (t.dim() == space + 1) {
      sizes.insert(sizes.begin(), 1);
      strides.insert(strides.begin(), 0);
    }
  }
};

// is_image says whether a tensor has images with elements of a floating-point type.
bool is_image(const at::Tensor& t, int space, c10::ScalarType type) {
  return t.defined() && !t.is_cpu() && (t.dim() == space + 1 || t.dim() == space + 2) && t.scalar_type() == type &&
      c10::isFloatingType(type) && dtype_of(type) && t.numel() > 0;
}

// is_field is is_image for elements of any type but bool.
bool is_field(const at::Tensor& t, int space, c10::ScalarType type) {
  return t.defined() && !t.is_cpu() && (t.dim() == space + 1 || t.dim() == space + 2) && t.scalar_type() == type &&
      type != at::kBool && dtype_of(type) && t.numel() > 0;
}

// is_given is is_image for a result that PyTorch has allocated.
bool is_given(const at::Tensor& out, int space, c10::ScalarType type) {
  return is_image(out, space, type) && given_result(out);
}

// narrow says whether a type has 16 bits, for operators that have none of such on the CPU.
bool narrow(c10::ScalarType type) {
  return c10::elementSize(type) == 2;
}

// list_of reads an integer for each dimension of space; one alone is for all.
bool list_of(const c10::IValue& v, int space, at::DimVector& list) {
  if (!v.isIntList())
    return false;
  list = v.toDimVector();
  if (list.size() == 1)
    list.resize(size_t(space), list[0]);
  return int(list.size()) == space;
}

bool positive(at::IntArrayRef list) {
  return std::all_of(list.begin(), list.end(), [](int64_t n) { return n > 0; });
}

bool not_negative(at::IntArrayRef list) {
  return std::all_of(list.begin(), list.end(), [](int64_t n) { return n >= 0; });
}

// Convolutions

// Windows are a convolution's arguments.
struct Windows {
  at::DimVector stride, padding, dilation, output_padding;
  bool transposed = false;
  int64_t groups = 1;

  // read takes those from place i on; false if no kernel covers them.
  bool read(c10::ArrayRef<c10::IValue> a, size_t i, int space) {
    if (!list_of(a[i], space, stride) || !list_of(a[i + 1], space, padding) ||
        !list_of(a[i + 2], space, dilation) || !list_of(a[i + 4], space, output_padding))
      return false;
    transposed = a[i + 3].toBool();
    groups = a[i + 5].toInt();
    return groups > 0 && positive(stride) && positive(dilation) && not_negative(padding);
  }

  // result is the sizes of a convolution's result; false if it has no elements.
  bool result(const at::Tensor& input, const at::Tensor& weight, at::DimVector& sizes) const {
    sizes = {input.size(0), transposed ? weight.size(1) * groups : weight.size(0)};
    for (size_t k = 0; k < stride.size(); k++) {
      int64_t n = input.size(int64_t(k) + 2), span = dilation[k] * (weight.size(int64_t(k) + 2) - 1) + 1;
      n = transposed ? (n - 1) * stride[k] - 2 * padding[k] + span + output_padding[k]
                     : (n + 2 * padding[k] - span < 0 ? 0 : (n + 2 * padding[k] - span) / stride[k] + 1);
      sizes.push_back(n);
    }
    return positive(sizes);
  }
};

// format_of is the order of a convolution's results in memory.
at::MemoryFormat format_of(const at::Tensor& input, const at::Tensor& weight) {
  at::MemoryFormat last = input.dim() == 5 ? at::MemoryFormat::ChannelsLast3d : at::MemoryFormat::ChannelsLast;
  if (input.dim() == 5 && (input.scalar_type() == at::kDouble || input.scalar_type() == at::kHalf))
    return at::MemoryFormat::Contiguous;
  bool is = input.suggest_memory_format() == last || weight.suggest_memory_format() == last;
  return is ? last : at::MemoryFormat::Contiguous;
}

bool convolved(const at::Tensor& input, const at::Tensor& weight, int space) {
  return space >= 1 && space <= 3 && is_image(input, space, input.scalar_type()) && input.dim() == space + 2 &&
      is_image(weight, space, input.scalar_type()) && weight.dim() == space + 2;
}

// Convolution is convolution(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups).
class Convolution final : public Native {
 public:
  bool run(NativeCall& call) const override {
    const auto& a = call.arguments;
    const at::Tensor &input = a[0].toTensor(), &weight = a[1].toTensor();
    at::Tensor bias;
    if (a[2].isTensor())
      bias = a[2].toTensor();
    int space = int(input.dim()) - 2;
    Windows w;
    at::DimVector sizes;
    if (!convolved(input, weight, space) || !w.read(a, 3, space) || !w.result(input, weight, sizes) ||
        (bias.defined() && (bias.is_cpu() || bias.dim() != 1 || bias.scalar_type() != input.scalar_type())))
      return false;
    at::Tensor out = at::empty(sizes, input.options(), format_of(input, weight));
    kernels::Convolution kernel{
        .out = out, .in = input, .weight = weight, .bias = bias, .transposed = w.transposed, .groups = w.groups,
        .stride = w.stride, .padding = w.padding, .dilation = w.dilation};
    if (!kernel.run(call.index))
      return false;
    call.results.push_back(std::move(out));
    return true;
  }
};

// ConvolutionBackward is convolution_backward(grad_output, input, weight, bias_sizes, stride, padding, dilation,
// transposed, output_padding, groups, output_mask).
class ConvolutionBackward final : public Native {
 public:
  bool run(NativeCall& call) const override {
    const auto& a = call.arguments;
    const at::Tensor &grad = a[0].toTensor(), &input = a[1].toTensor(), &weight = a[2].toTensor();
    int space = int(input.dim()) - 2;
    Windows w;
    at::DimVector sizes;
    if (!convolved(input, weight, space) || !w.read(a, 4, space) || !w.result(input, weight, sizes) ||
        !is_image(grad, space, input.scalar_type()) || grad.sizes() != sizes)
      return false;
    auto mask = a[10].toBoolList();
    at::MemoryFormat format = format_of(input, weight);
    at::Tensor grads[3];
    if (mask[0])
      grads[0] = at::empty(input.sizes(), input.options(), format);
    bool dense = weight.scalar_type() == at::kDouble || weight.scalar_type() == at::kHalf;
    if (mask[1])
      grads[1] = at::empty(weight.sizes(), weight.options(), dense ? at::MemoryFormat::Contiguous : format);
    if (mask[2])
      grads[2] = at::empty({sizes[1]}, grad.options());
    kernels::ConvolutionBackward kernel{
        .grad_in = grads[0], .grad_weight = grads[1], .grad_bias = grads[2], .grad = grad, .in = input,
        .weight = weight, .transposed = w.transposed, .groups = w.groups, .stride = w.stride, .padding = w.padding,
        .dilation = w.dilation};
    if (!kernel.run(call.index))
      return false;
    call.results = {grads[0], grads[1], grads[2]};
    return true;
  }
};

// Pools

// ImagePool is a pool of images, or its gradient. One whose result PyTorch doesn't give allocates it.
class ImagePool final : public Native {
 public:
  ImagePool(const char* kernel, int space, const c10::OperatorHandle& op)
      : average_(
            std::string(kernel).rfind("max", 0) == 0 ? 0 : kernels::Windows::number(kernel)),
        space_(space),
        largest_(std::string(kernel).rfind("max", 0) == 0),
        where_(op.schema()),
        self_(where_.named("self")),
        grad_(where_.named("grad_output")),
        indices_(where_.named("indices")),
        window_(where_.named("kernel_size")),
        dilation_(where_.named("dilation")),
        ceil_(where_.named("ceil_mode")),
        count_(where_.named("count_include_pad")),
        divisor_(where_.named("divisor_override")),
        size_(where_.named("output_size")) {}

  bool run(NativeCall& call) const override {
    const auto& a = call.arguments;
    const at::Tensor& self = a[self_].toTensor();
    c10::ScalarType type = self.scalar_type();
    // The CPU has pools of the largest integers, and averages of int64.
    bool averaged = !largest_ && grad_ < 0 && window_ >= 0 && type == at::kLong;
    bool whole = averaged || (largest_ && grad_ < 0 && window_ >= 0);
    if (!(whole ? is_field(self, space_, type) && !self.is_complex() : is_image(self, space_, type)) ||
        (grad_ >= 0 && !is_image(a[grad_].toTensor(), space_, type)) || (count_ >= 0 && space_ == 3 && narrow(type)))
      return false;
    at::DimVector window, stride, padding, dilation(size_t(space_), 1);
    if (window_ >= 0) {
      c10::IValue stride_of = a[window_ + 1];
      if (stride_of.isIntList() && stride_of.toDimVector().empty())
        stride_of = a[window_];
      if (!list_of(a[window_], space_, window) || !list_of(stride_of, space_, stride) ||
          !list_of(a[window_ + 2], space_, padding) ||
          (dilation_ >= 0 && !list_of(a[dilation_], space_, dilation)) || !positive(window) || !positive(stride) ||
          !positive(dilation) || !not_negative(padding))
        return false;
    }
    at::Tensor out, indices;
    if (!where_.outs.empty())
      out = a[where_.outs[0]].toTensor();
    else if (grad_ >= 0)
      out = at::empty_like(self, format(self));
    else if (!allocate(call, self, window, stride, padding, dilation, out))
      return false;
    if (!is_field(out, space_, type) || !given_result(out) || out.dim() != self.dim())
      return false;
    if (averaged) {
      std::optional<int64_t> divisor;
      if (!a[divisor_].isNone())
        divisor = a[divisor_].toInt();
      if (out.is_alias_of(self) || !average_whole(self, out, {window, stride, padding, a[count_].toBool(), divisor}))
        return false;
      call.results.push_back(out);
      return true;
    }
    bool forward = largest_ && grad_ < 0;
    if (forward)
      indices = where_.outs.empty() ? at::empty_like(out, out.options().dtype(at::kLong))
                                    : a[where_.outs[1]].toTensor();
    else if (largest_)
      indices = a[indices_].toTensor();
    if (largest_ && (indices.is_cpu() || indices.scalar_type() != at::kLong || indices.dim() != self.dim() ||
                     (forward && !given_result(indices))))
      return false;
    const at::Tensor& in = grad_ >= 0 ? a[grad_].toTensor() : self;
    Image of_out(out, space_), of_in(in, space_);
    Output result(out, of_out.sizes, of_out.strides);
    Input from(in, of_in.sizes, of_in.strides);
    bool padding_counts = count_ >= 0 && a[count_].toBool();
    int64_t divisor = divisor_ >= 0 && !a[divisor_].isNone() ? a[divisor_].toInt() : 0;
    if (window_ < 0)
      dilation.clear();
    bool ran;
    if (!largest_) {
      ran = kernels::Windows{
          .op = average_, .out = result, .in = from, .count_padding = padding_counts, .divisor = divisor,
          .window = window, .stride = stride, .padding = padding, .dilation = dilation}
                .run(call.index);
    } else {
      Image of_indices(indices, space_);
      if (forward)
        ran = kernels::MaxPool{
            .out = result, .indexes = Output(indices, of_indices.sizes, of_indices.strides), .in = from,
            .window = window, .stride = stride, .padding = padding, .dilation = dilation}
                  .run(call.index);
      else
        ran = kernels::MaxPoolBackward{
            .out = result, .grad = from, .indexes = Input(indices, of_indices.sizes, of_indices.strides),
            .window = window, .stride = stride, .padding = padding, .dilation = dilation}
                  .run(call.index);
    }
    if (!ran)
      return false;
    call.results.push_back(out);
    if (forward)
      call.results.push_back(indices);
    return true;
  }

 private:
  at::MemoryFormat format(const at::Tensor& self) const {
    return space_ == 2 && self.dim() == 4 ? self.suggest_memory_format() : at::MemoryFormat::Contiguous;
  }

  // allocate makes the result; false if PyTorch's own would be another one.
  bool allocate(
      const NativeCall& call, const at::Tensor& self, const at::DimVector& window, const at::DimVector& stride,
      const at::DimVector& padding, const at::DimVector& dilation, at::Tensor& out) const {
    at::DimVector sizes(self.sizes()), given;
    if (space_ == 3 && self.suggest_memory_format() != at::MemoryFormat::Contiguous)
      return false;
    if (size_ >= 0 && !list_of(call.arguments[size_], space_, given))
      return false;
    for (int k = 0; k < space_; k++) {
      int64_t& n = sizes[sizes.size() - size_t(space_ - k)];
      n = size_ >= 0 ? given[size_t(k)]
                     : at::native::pooling_output_shape<int64_t>(
                           n, window[size_t(k)], padding[size_t(k)], stride[size_t(k)], dilation[size_t(k)],
                           call.arguments[ceil_].toBool());
    }
    if (!positive(sizes))
      return false;
    out = at::empty(sizes, self.options(), format(self));
    return true;
  }

  const int32_t average_; // the operation, but for maxima
  const int space_;
  const bool largest_;
  const FormArguments where_;
  const int self_, grad_, indices_, window_, dilation_, ceil_, count_, divisor_, size_;
};

// Unpool is max_unpool2d(self, indices, output_size), or max_unpool3d.
class Unpool final : public Native {
 public:
  explicit Unpool(int space) : space_(space) {}

  bool run(NativeCall& call) const override {
    const at::Tensor &self = call.arguments[0].toTensor(), &indices = call.arguments[1].toTensor();
    at::DimVector size, sizes(self.sizes());
    at::MemoryFormat format = space_ == 2 ? self.suggest_memory_format() : at::MemoryFormat::Contiguous;
    void* bad = bad_word(call);
    if (!is_image(self, space_, self.scalar_type()) || indices.is_cpu() || !self.is_contiguous(format) ||
        indices.scalar_type() != at::kLong || indices.sizes() != self.sizes() ||
        !list_of(call.arguments[2], space_, size) || !positive(size))
      return false;
    std::copy(size.begin(), size.end(), sizes.end() - space_);
    at::Tensor out = at::empty(sizes, self.options(), format);
    Image of_out(out, space_), of_self(self, space_), of_indices(indices, space_);
    kernels::MaxUnpool kernel{
        .op = op_, .out = Output(out, of_out.sizes, of_out.strides), .in = Input(self, of_self.sizes, of_self.strides),
        .indexes = Input(indices, of_indices.sizes, of_indices.strides), .bad = bad};
    if (!kernel.run(call.index))
      return false;
    call.results.push_back(std::move(out));
    return true;
  }

 private:
  const int32_t op_ = kernels::MaxUnpool::number("max_unpool");
  const int space_;
};

// Interpolations

// Upsample is an interpolation, or its gradient, whose result PyTorch has allocated.
class Upsample final : public Native {
 public:
  Upsample(const char* kernel, bool antialias, const c10::OperatorHandle& op)
      : op_(kernels::Upsample::number(kernel)),
        antialias_(antialias),
        where_(op.schema()),
        corners_(where_.named("align_corners")) {
    for (const char* name : {"scales", "scales_d", "scales_h", "scales_w"})
      if (int i = where_.named(name); i >= 0)
        scales_.push_back(i);
  }

  bool run(NativeCall& call) const override {
    const auto& a = call.arguments;
    const at::Tensor &in = a[0].toTensor(), &out = a[where_.outs[0]].toTensor();
    int space = int(scales_.size());
    if (!is_image(in, space, in.scalar_type()) || !is_given(out, space, in.scalar_type()) || out.is_alias_of(in) ||
        (antialias_ && narrow(in.scalar_type())))
      return false;
    kernels::Upsample kernel{
        .op = op_, .out = out, .in = in, .align_corners = corners_ >= 0 && a[corners_].toBool(),
        .antialias = antialias_};
    for (int i : scales_)
      kernel.scales.push_back(a[i].isNone() ? 0 : a[i].toDouble());
    if (!kernel.run(call.index))
      return false;
    call.results.push_back(out);
    return true;
  }

 private:
  const int32_t op_;
  const bool antialias_;
  const FormArguments where_;
  const int corners_;
  c10::SmallVector<int, 3> scales_;
};

// Border is a reflection_pad or replication_pad, or its gradient.
class Border final : public Native {
 public:
  Border(const char* kernel, int space, const c10::OperatorHandle& op)
      : op_(kernels::Pad::number(kernel)),
        space_(space),
        where_(op.schema()),
        self_(where_.named("self")),
        padding_(where_.named("padding")),
        cuts_(kernel[2] == 'p'),
        restrides_(space > 1 && where_.named("grad_output") < 0) {}

  bool run(NativeCall& call) const override {
    const auto& a = call.arguments;
    const at::Tensor &in = a[0].toTensor(), &self = a[self_].toTensor();
    at::DimVector padding;
    if (!is_field(in, space_, in.scalar_type()) || !is_field(self, space_, in.scalar_type()) ||
        !list_of(a[padding_], 2 * space_, padding) || (!cuts_ && !not_negative(padding)))
      return false;
    at::Tensor out;
    if (!where_.outs.empty()) {
      out = a[where_.outs[0]].toTensor();
      if (restrides_ && in.dim() == space_ + 2 && given_result(out))
        out.resize_(out.sizes(), in.suggest_memory_format());
    } else {
      at::DimVector sizes(self.sizes());
      if (self_ == 0)
        for (int k = 0; k < space_; k++)
          sizes[sizes.size() - 1 - size_t(k)] += padding[size_t(2 * k)] + padding[size_t(2 * k + 1)];
      bool last = self.dim() == space_ + 2;
      out = at::empty(sizes, self.options(), last ? self.suggest_memory_format() : at::MemoryFormat::Contiguous);
    }
    if (!is_field(out, space_, in.scalar_type()) || !given_result(out) || out.dim() != in.dim() || out.is_alias_of(in))
      return false;
    Image of_out(out, space_), of_in(in, space_);
    at::DimVector before;
    for (int k = space_ - 1; k >= 0; k--)
      before.push_back(padding[size_t(2 * k)]);
    kernels::Pad kernel{
        .op = op_, .out = Output(out, of_out.sizes, of_out.strides), .in = Input(in, of_in.sizes, of_in.strides),
        .before = before};
    if (!kernel.run(call.index))
      return false;
    call.results.push_back(std::move(out));
    return true;
  }

 private:
  const int32_t op_;
  const int space_;
  const FormArguments where_;
  const int self_, padding_;
  const bool cuts_;      // it replicates: a negative border takes elements away
  const bool restrides_; // the result has the order of the input in memory, whatever it had
};

// Columns is im2col(self, kernel_size, dilation, padding, stride), or col2im, which has an output_size before.
class Columns final : public Native {
 public:
  explicit Columns(bool back) : op_(kernels::Windows::number(back ? "col2im" : "im2col")), back_(back) {}

  bool run(NativeCall& call) const override {
    const auto& a = call.arguments;
    const at::Tensor& self = a[0].toTensor();
    at::DimVector window, dilation, padding, stride, size;
    size_t i = back_ ? 2 : 1;
    if (self.is_cpu() || (!self.is_floating_point() && !self.is_complex()) || !dtype_of(self.scalar_type()) ||
        self.numel() == 0 || !list_of(a[i], 2, window) || !list_of(a[i + 1], 2, dilation) || !list_of(a[i + 2], 2, padding) ||
        !list_of(a[i + 3], 2, stride) || !positive(window) || !positive(dilation) || !not_negative(padding) ||
        !positive(stride) || (back_ && !list_of(a[1], 2, size)))
      return false;
    int64_t dims = back_ ? 3 : 4;
    if (self.dim() != dims && self.dim() != dims - 1)
      return false;
    bool batched = self.dim() == dims;
    at::Tensor in = batched ? self : self.unsqueeze(0);
    if (!back_)
      size = {in.size(2), in.size(3)};
    int64_t places[2], elements = window[0] * window[1];
    for (size_t k = 0; k < 2; k++) {
      int64_t room = size[k] + 2 * padding[k] - dilation[k] * (window[k] - 1) - 1;
      if (room < 0)
        return false;
      places[k] = room / stride[k] + 1;
    }
    int64_t channels = back_ ? in.size(1) / elements : in.size(1), count = places[0] * places[1];
    if (back_ && (in.size(1) != channels * elements || in.size(2) != count))
      return false;
    at::Tensor out = back_ ? at::empty({in.size(0), channels, size[0], size[1]}, self.options())
                           : at::empty({in.size(0), channels * elements, count}, self.options());
    const at::Tensor& columns = back_ ? in : out;
    at::DimVector sizes{in.size(0), channels, window[0], window[1], places[0], places[1]};
    int64_t row = columns.stride(1), step = columns.stride(2);
    at::DimVector strides{columns.stride(0), row * elements, row * window[1], row, step * places[1], step};
    kernels::Windows kernel{
        .op = op_, .out = back_ ? Output(out) : Output(out, sizes, strides),
        .in = back_ ? Input(in, sizes, strides) : Input(in), .window = window, .stride = stride, .padding = padding,
        .dilation = dilation};
    if (!kernel.run(call.index))
      return false;
    call.results.push_back(batched ? out : out.squeeze(0));
    return true;
  }

 private:
  const int32_t op_;
  const bool back_;
};

// Places are read by grid_sampler_2d or grid_sampler_3d(input, grid, interpolation_mode, padding_mode, align_corners).

// In 16 bits the places are computed in 32, as CUDA's are. The CPU has them in 16 bits, and so reads other elements.
bool sampled(const at::Tensor& input, const at::Tensor& grid, int64_t mode) {
  c10::ScalarType type = input.scalar_type();
  int space = int(input.dim()) - 2;
  return mode >= 0 && mode <= 1 && (space == 2 || space == 3) && is_image(input, space, type) &&
      is_image(grid, space, type) && grid.dim() == input.dim() && grid.size(0) == input.size(0) &&
      grid.size(-1) == space;
}

class GridSample final : public Native {
 public:
  bool run(NativeCall& call) const override {
    const auto& a = call.arguments;
    const at::Tensor &input = a[0].toTensor(), &grid = a[1].toTensor();
    int64_t mode = a[2].toInt();
    if (!sampled(input, grid, mode))
      return false;
    at::DimVector sizes{input.size(0), input.size(1)};
    sizes.append(grid.sizes().begin() + 1, grid.sizes().end() - 1);
    at::Tensor out = at::empty(sizes, input.options());
    kernels::GridSample kernel{
        .op = modes_[mode], .out = out, .in = input, .grid = grid, .border = a[3].toInt(),
        .align_corners = a[4].toBool()};
    if (!kernel.run(call.index))
      return false;
    call.results.push_back(std::move(out));
    return true;
  }

 private:
  const int32_t modes_[2] = {kernels::GridSample::number("bilinear"), kernels::GridSample::number("nearest")};
};

// GridSampleBackward is grid_sampler_2d_backward(grad_output, input, grid, and so on, output_mask), or that of volumes.
class GridSampleBackward final : public Native {
 public:
  bool run(NativeCall& call) const override {
    const auto& a = call.arguments;
    const at::Tensor &grad = a[0].toTensor(), &input = a[1].toTensor(), &grid = a[2].toTensor();
    int64_t mode = a[3].toInt();
    if (!sampled(input, grid, mode) || !is_image(grad, int(input.dim()) - 2, input.scalar_type()))
      return false;
    at::Tensor of_input, of_grid = at::empty_like(grid, at::MemoryFormat::Contiguous);
    if (a[6].toBoolList()[0])
      of_input = at::empty_like(input, at::MemoryFormat::Contiguous);
    kernels::GridSampleBackward kernel{
        .op = modes_[mode], .grad_in = of_input, .grad_grid = of_grid, .grad = grad, .in = input, .grid = grid,
        .border = a[4].toInt(), .align_corners = a[5].toBool(),
        .atomics = !at::globalContext().deterministicAlgorithms()};
    if (!kernel.run(call.index))
      return false;
    call.results = {of_input, of_grid};
    return true;
  }

 private:
  const int32_t modes_[2] = {
      kernels::GridSampleBackward::number("bilinear_backward"),
      kernels::GridSampleBackward::number("nearest_backward")};
};

} // namespace

void add_images() {
  add_native(schema_of("convolution"), std::make_unique<Convolution>());
  add_native(schema_of("convolution_backward"), std::make_unique<ConvolutionBackward>());
  auto pool = [](const char* name, const char* kernel, int space) {
    if (auto op = schema_of(name))
      add_native(*op, std::make_unique<ImagePool>(kernel, space, *op));
  };
  pool("max_pool2d_with_indices.out", "max", 2);
  pool("max_pool2d_with_indices_backward.grad_input", "max_backward", 2);
  pool("max_pool3d_with_indices", "max", 3);
  pool("max_pool3d_with_indices_backward", "max_backward", 3);
  pool("adaptive_max_pool2d.out", "max", 2);
  pool("adaptive_max_pool2d_backward.grad_input", "max_backward", 2);
  pool("adaptive_max_pool3d.out", "max", 3);
  pool("adaptive_max_pool3d_backward.grad_input", "max_backward", 3);
  pool("avg_pool2d.out", "average", 2);
  pool("avg_pool2d_backward.grad_input", "average_backward", 2);
  pool("avg_pool3d.out", "average", 3);
  pool("avg_pool3d_backward.grad_input", "average_backward", 3);
  pool("_adaptive_avg_pool2d", "average", 2);
  pool("_adaptive_avg_pool2d_backward", "average_backward", 2);
  pool("_adaptive_avg_pool3d", "average", 3);
  pool("_adaptive_avg_pool3d_backward", "average_backward", 3);
  add_native(schema_of("max_unpool2d"), std::make_unique<Unpool>(2));
  add_native(schema_of("max_unpool3d"), std::make_unique<Unpool>(3));
  auto upsample = [](std::string name, std::string kernel, bool antialias = false) {
    if (auto op = schema_of(name + ".out"))
      add_native(*op, std::make_unique<Upsample>(kernel.c_str(), antialias, *op));
    if (auto back = schema_of(name + "_backward.grad_input"))
      add_native(*back, std::make_unique<Upsample>((kernel + "_backward").c_str(), antialias, *back));
  };
  for (const char* d : {"1d", "2d", "3d"}) {
    upsample(std::string("upsample_nearest") + d, "nearest");
    upsample(std::string("_upsample_nearest_exact") + d, "nearest_exact");
  }
  upsample("upsample_linear1d", "linear");
  upsample("upsample_bilinear2d", "linear");
  upsample("upsample_trilinear3d", "linear");
  upsample("upsample_bicubic2d", "cubic");
  upsample("_upsample_bilinear2d_aa", "linear", true);
  upsample("_upsample_bicubic2d_aa", "cubic", true);
  auto border = [](const char* name, const char* kernel, int space) {
    if (auto op = schema_of(name))
      add_native(*op, std::make_unique<Border>(kernel, space, *op));
  };
  border("reflection_pad1d.out", "reflect", 1);
  border("reflection_pad2d", "reflect", 2);
  border("reflection_pad3d.out", "reflect", 3);
  border("replication_pad1d.out", "replicate", 1);
  border("replication_pad2d.out", "replicate", 2);
  border("replication_pad3d.out", "replicate", 3);
  border("reflection_pad1d_backward.grad_input", "reflect_backward", 1);
  border("reflection_pad2d_backward", "reflect_backward", 2);
  border("reflection_pad3d_backward.grad_input", "reflect_backward", 3);
  border("replication_pad1d_backward.grad_input", "replicate_backward", 1);
  border("replication_pad2d_backward", "replicate_backward", 2);
  border("replication_pad3d_backward", "replicate_backward", 3);
  add_native(schema_of("im2col"), std::make_unique<Columns>(false));
  add_native(schema_of("col2im"), std::make_unique<Columns>(true));
  for (std::string name : {"grid_sampler_2d", "grid_sampler_3d"}) {
    add_native(schema_of(name), std::make_unique<GridSample>());
    add_native(schema_of(name + "_backward"), std::make_unique<GridSampleBackward>());
  }
}

} // namespace chorus
