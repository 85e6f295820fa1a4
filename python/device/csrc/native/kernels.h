// The operations that kernels compute, each with its arguments by name. run enqueues it on the device's current
// stream; it returns false if there's none for these operands. Lists of integers must stay until run.
// Written by capi/gen from the table of kernels, capi/kernels; don't edit.
#pragma once

#include "native/native.h"

namespace chorus::kernels {

struct Elementwise {
  int32_t op; // by number
  c10::ScalarType compute;
  c10::SmallVector<Output, 4> outs{};
  c10::SmallVector<Input, 4> ins{};
  c10::SmallVector<chorus_number, 4> numbers{};

  // number is that of one of the operations on elements, to be asked once.
  static int32_t number(const char* name) {
    return kernel_op(CHORUS_KERNEL_ELEMENTWISE, name);
  }

  bool run(DeviceIndex index) const;
};

struct Reduce {
  int32_t op; // by number
  c10::ScalarType compute;
  c10::SmallVector<Output, 4> outs{};
  Input in;
  c10::SmallVector<chorus_number, 4> numbers{};
  at::IntArrayRef dims{};

  // number is that of one of the reductions, to be asked once.
  static int32_t number(const char* name) {
    return kernel_op(CHORUS_KERNEL_REDUCE, name);
  }

  bool run(DeviceIndex index) const;
};

struct Scan {
  int32_t op; // by number
  c10::ScalarType compute;
  c10::SmallVector<Output, 4> outs{};
  Input in;
  int64_t dim = 0;

  // number is that of one of the scans, to be asked once.
  static int32_t number(const char* name) {
    return kernel_op(CHORUS_KERNEL_SCAN, name);
  }

  bool run(DeviceIndex index) const;
};

struct Softmax {
  int32_t op; // by number
  Output out;
  Input in;
  int64_t dim = 0;

  // number is that of softmax, log_softmax, to be asked once.
  static int32_t number(const char* name) {
    return kernel_op(CHORUS_KERNEL_SOFTMAX, name);
  }

  bool run(DeviceIndex index) const;
};

struct SoftmaxBackward {
  int32_t op; // by number
  Output out;
  Input grad;
  Input result;
  int64_t dim = 0;

  // number is that of softmax_backward, log_softmax_backward, to be asked once.
  static int32_t number(const char* name) {
    return kernel_op(CHORUS_KERNEL_SOFTMAX, name);
  }

  bool run(DeviceIndex index) const;
};

struct Norm {
  int32_t op; // by number
  Output out;
  OutputOrNone mean{};
  Output rstd;
  Input in;
  InputOrNone weight{};
  InputOrNone bias{};
  double eps = 0;
  int64_t groups = 0;
  int64_t channels = 0;
  int64_t inner = 0;

  // number is that of layer_norm, rms_norm, to be asked once.
  static int32_t number(const char* name) {
    return kernel_op(CHORUS_KERNEL_NORM, name);
  }

  bool run(DeviceIndex index) const;
};

struct NormBackward {
  int32_t op; // by number
  OutputOrNone grad_in{};
  OutputOrNone grad_weight{};
  OutputOrNone grad_bias{};
  Input grad;
  Input in;
  InputOrNone mean{};
  Input rstd;
  InputOrNone weight{};
  int64_t groups = 0;
  int64_t channels = 0;
  int64_t inner = 0;

  // number is that of layer_norm_backward, rms_norm_backward, to be asked once.
  static int32_t number(const char* name) {
    return kernel_op(CHORUS_KERNEL_NORM, name);
  }

  bool run(DeviceIndex index) const;
};

struct Matmul {
  int32_t op; // by number
  Output out;
  Input a;
  Input b;
  InputOrNone c{};
  chorus_number alpha{};
  chorus_number beta{};
  bool atomics = false;

  // number is that of one of the activations, to be asked once.
  static int32_t number(const char* name) {
    return kernel_op(CHORUS_KERNEL_MATMUL, name);
  }

  bool run(DeviceIndex index) const;
};

struct Triangle {
  int32_t op; // by number
  Output out;
  Input in;
  int64_t diagonal = 0;

  // number is that of tril, triu, to be asked once.
  static int32_t number(const char* name) {
    return kernel_op(CHORUS_KERNEL_TRIANGLE, name);
  }

  bool run(DeviceIndex index) const;
};

struct Arange {
  c10::ScalarType compute;
  Output out;
  chorus_number start{};
  chorus_number step{};

  bool run(DeviceIndex index) const;
};

struct Linspace {
  c10::ScalarType compute;
  Output out;
  double start = 0;
  double end = 0;

  bool run(DeviceIndex index) const;
};

struct Eye {
  Output out;

  bool run(DeviceIndex index) const;
};

struct Index {
  int32_t op; // by number
  Output out;
  Input in;
  c10::SmallVector<IndexInput, 2> indexes{};
  void* bad = nullptr;

  // number is that of take, put, add, mul, amax, amin, to be asked once.
  static int32_t number(const char* name) {
    return kernel_op(CHORUS_KERNEL_INDEX, name);
  }

  bool run(DeviceIndex index) const;
};

struct Sort {
  OutputOrNone values{};
  OutputOrNone indexes{};
  Input in;
  int64_t dim = 0;
  bool descending = false;

  bool run(DeviceIndex index) const;
};

struct Kth {
  OutputOrNone values{};
  OutputOrNone indexes{};
  Input in;
  int64_t dim = 0;
  int64_t k = 0;

  bool run(DeviceIndex index) const;
};

struct Median {
  int32_t op; // by number
  OutputOrNone values{};
  OutputOrNone indexes{};
  Input in;
  int64_t dim = 0;

  // number is that of median, nanmedian, to be asked once.
  static int32_t number(const char* name) {
    return kernel_op(CHORUS_KERNEL_SORT, name);
  }

  bool run(DeviceIndex index) const;
};

struct Mode {
  OutputOrNone values{};
  OutputOrNone indexes{};
  Input in;
  int64_t dim = 0;

  bool run(DeviceIndex index) const;
};

struct Search {
  Output out;
  Input values;
  Input sorted;
  InputOrNone sorter{};
  bool right = false;

  bool run(DeviceIndex index) const;
};

struct Contains {
  Output out;
  Input values;
  Input sorted;
  bool invert = false;

  bool run(DeviceIndex index) const;
};

struct Bincount {
  Output out;
  Input in;
  InputOrNone weights{};
  void* bad = nullptr;

  bool run(DeviceIndex index) const;
};

struct Histogram {
  Output out;
  Input in;
  double low = 0;
  double high = 0;

  bool run(DeviceIndex index) const;
};

struct Nonzero {
  Output out;
  Input in;

  bool run(DeviceIndex index) const;
};

struct MaskedSelect {
  Output out;
  Input in;
  Input mask;

  bool run(DeviceIndex index) const;
};

struct MaskedScatter {
  Output out;
  Input mask;
  Input in;

  bool run(DeviceIndex index) const;
};

struct Starts {
  Output out;
  Input in;

  bool run(DeviceIndex index) const;
};

struct Inverse {
  Output out;
  Input starts;
  InputOrNone order{};

  bool run(DeviceIndex index) const;
};

struct Lengths {
  Output out;
  Input places;
  int64_t elements = 0;

  bool run(DeviceIndex index) const;
};

struct Roll {
  Output out;
  Input in;
  int64_t shift = 0;
  int64_t dim = 0;

  bool run(DeviceIndex index) const;
};

struct Foreach {
  int32_t op; // by number
  c10::ScalarType compute;
  c10::SmallVector<Output, 4> outs{};
  c10::SmallVector<Input, 4> ins{};
  c10::SmallVector<chorus_number, 4> numbers{};
  int64_t out_lists = 0;
  int64_t in_lists = 0;
  int64_t number_lists = 0;
  at::IntArrayRef lengths{};

  // number is that of one of the operations on elements, to be asked once.
  static int32_t number(const char* name) {
    return kernel_op(CHORUS_KERNEL_FOREACH, name);
  }

  bool run(DeviceIndex index) const;
};

struct ForeachReduce {
  int32_t op; // by number
  c10::ScalarType compute;
  c10::SmallVector<Output, 4> outs{};
  c10::SmallVector<Input, 4> ins{};
  c10::SmallVector<chorus_number, 4> numbers{};

  // number is that of one of the reductions, to be asked once.
  static int32_t number(const char* name) {
    return kernel_op(CHORUS_KERNEL_FOREACH_REDUCE, name);
  }

  bool run(DeviceIndex index) const;
};

struct Optimize {
  int32_t op; // by number
  c10::SmallVector<Output, 4> outs{};
  InputOrNone found_inf{};
  InputOrNone grad_scale{};
  InputOrNone rate{};
  c10::SmallVector<Input, 4> steps{};
  double lr = 0;
  double weight_decay = 0;
  double momentum = 0;
  double dampening = 0;
  double beta1 = 0;
  double beta2 = 0;
  double eps = 0;
  double lr_decay = 0;
  int64_t lists = 0;
  bool nesterov = false;
  bool maximize = false;
  bool first = false;

  // number is that of sgd, adam, adamw, adagrad, to be asked once.
  static int32_t number(const char* name) {
    return kernel_op(CHORUS_KERNEL_OPTIMIZE, name);
  }

  bool run(DeviceIndex index) const;
};

struct Unscale {
  c10::SmallVector<Output, 4> grads{};
  Input found_inf;
  Input inverse;

  bool run(DeviceIndex index) const;
};

struct UpdateScale {
  Output scale;
  Output tracker;
  Input found_inf;
  double growth = 0;
  double backoff = 0;
  int64_t interval = 0;

  bool run(DeviceIndex index) const;
};

struct Convolution {
  Output out;
  Input in;
  Input weight;
  InputOrNone bias{};
  bool transposed = false;
  int64_t groups = 0;
  at::IntArrayRef stride{};
  at::IntArrayRef padding{};
  at::IntArrayRef dilation{};

  bool run(DeviceIndex index) const;
};

struct ConvolutionBackward {
  OutputOrNone grad_in{};
  OutputOrNone grad_weight{};
  OutputOrNone grad_bias{};
  Input grad;
  Input in;
  Input weight;
  bool transposed = false;
  int64_t groups = 0;
  at::IntArrayRef stride{};
  at::IntArrayRef padding{};
  at::IntArrayRef dilation{};

  bool run(DeviceIndex index) const;
};

struct MaxPool {
  Output out;
  Output indexes;
  Input in;
  bool count_padding = false;
  int64_t divisor = 0;
  at::IntArrayRef window{};
  at::IntArrayRef stride{};
  at::IntArrayRef padding{};
  at::IntArrayRef dilation{};

  bool run(DeviceIndex index) const;
};

struct MaxPoolBackward {
  Output out;
  Input grad;
  Input indexes;
  bool count_padding = false;
  int64_t divisor = 0;
  at::IntArrayRef window{};
  at::IntArrayRef stride{};
  at::IntArrayRef padding{};
  at::IntArrayRef dilation{};

  bool run(DeviceIndex index) const;
};

struct Windows {
  int32_t op; // by number
  Output out;
  Input in;
  bool count_padding = false;
  int64_t divisor = 0;
  at::IntArrayRef window{};
  at::IntArrayRef stride{};
  at::IntArrayRef padding{};
  at::IntArrayRef dilation{};

  // number is that of average, average_backward, im2col, col2im, to be asked once.
  static int32_t number(const char* name) {
    return kernel_op(CHORUS_KERNEL_POOL, name);
  }

  bool run(DeviceIndex index) const;
};

struct MaxUnpool {
  int32_t op; // by number
  Output out;
  Input in;
  Input indexes;
  void* bad = nullptr;

  // number is that of max_unpool, max_unpool_backward, to be asked once.
  static int32_t number(const char* name) {
    return kernel_op(CHORUS_KERNEL_POOL, name);
  }

  bool run(DeviceIndex index) const;
};

struct Upsample {
  int32_t op; // by number
  Output out;
  Input in;
  c10::SmallVector<double, 3> scales{};
  bool align_corners = false;
  bool antialias = false;

  // number is that of nearest, nearest_backward, nearest_exact, nearest_exact_backward, linear, linear_backward, cubic, cubic_backward, to be asked once.
  static int32_t number(const char* name) {
    return kernel_op(CHORUS_KERNEL_UPSAMPLE, name);
  }

  bool run(DeviceIndex index) const;
};

struct Pad {
  int32_t op; // by number
  Output out;
  Input in;
  at::IntArrayRef before{};

  // number is that of reflect, reflect_backward, replicate, replicate_backward, circular, circular_backward, to be asked once.
  static int32_t number(const char* name) {
    return kernel_op(CHORUS_KERNEL_PAD, name);
  }

  bool run(DeviceIndex index) const;
};

struct GridSample {
  int32_t op; // by number
  Output out;
  Input in;
  Input grid;
  int64_t border = 0;
  bool align_corners = false;

  // number is that of bilinear, nearest, to be asked once.
  static int32_t number(const char* name) {
    return kernel_op(CHORUS_KERNEL_GRID_SAMPLE, name);
  }

  bool run(DeviceIndex index) const;
};

struct GridSampleBackward {
  int32_t op; // by number
  OutputOrNone grad_in{};
  OutputOrNone grad_grid{};
  Input grad;
  Input in;
  Input grid;
  int64_t border = 0;
  bool align_corners = false;
  bool atomics = false;

  // number is that of bilinear_backward, nearest_backward, to be asked once.
  static int32_t number(const char* name) {
    return kernel_op(CHORUS_KERNEL_GRID_SAMPLE, name);
  }

  bool run(DeviceIndex index) const;
};

struct Attention {
  Output out;
  Output sums;
  Input query;
  Input key;
  Input value;
  InputOrNone mask{};
  InputOrNone state{};
  chorus_number scale{};
  double dropout_rate = 0;
  bool causal = false;
  int64_t seed = 0;
  int64_t offset = 0;

  bool run(DeviceIndex index) const;
};

struct AttentionBackward {
  Output grad_query;
  Output grad_key;
  Output grad_value;
  Input grad;
  Input out;
  Input sums;
  Input query;
  Input key;
  Input value;
  InputOrNone mask{};
  InputOrNone state{};
  chorus_number scale{};
  double dropout_rate = 0;
  bool causal = false;
  int64_t seed = 0;
  int64_t offset = 0;

  bool run(DeviceIndex index) const;
};

struct BatchNorm {
  Output out;
  OutputOrNone mean{};
  OutputOrNone rstd{};
  Input in;
  InputOrNone weight{};
  InputOrNone bias{};
  InputOrNone running_mean{};
  InputOrNone running_var{};
  double momentum = 0;
  double eps = 0;
  bool training = false;

  bool run(DeviceIndex index) const;
};

struct BatchNormBackward {
  OutputOrNone grad_in{};
  OutputOrNone grad_weight{};
  OutputOrNone grad_bias{};
  Input grad;
  Input in;
  InputOrNone weight{};
  InputOrNone running_mean{};
  InputOrNone running_var{};
  InputOrNone mean{};
  InputOrNone rstd{};
  double eps = 0;
  bool training = false;

  bool run(DeviceIndex index) const;
};

struct EmbeddingBag {
  Output out;
  Output bags;
  Output counts;
  OutputOrNone most{};
  Input table;
  Input indexes;
  Input offsets;
  InputOrNone weights{};
  int64_t mode = 0;
  int64_t padding = 0;
  bool by_frequency = false;
  void* bad = nullptr;

  bool run(DeviceIndex index) const;
};

struct EmbeddingBackward {
  Output out;
  Input grad;
  Input indexes;
  InputOrNone weights{};
  InputOrNone bags{};
  InputOrNone counts{};
  InputOrNone most{};
  int64_t mode = 0;
  int64_t padding = 0;
  bool by_frequency = false;
  void* bad = nullptr;

  bool run(DeviceIndex index) const;
};

struct WeightsBackward {
  Output out;
  Input grad;
  Input table;
  Input indexes;
  Input bags;
  int64_t mode = 0;
  int64_t padding = 0;
  bool by_frequency = false;
  void* bad = nullptr;

  bool run(DeviceIndex index) const;
};

struct Distance {
  Output out;
  Input a;
  Input b;
  double norm = 0;

  bool run(DeviceIndex index) const;
};

struct DistanceBackward {
  Output grad_a;
  Input grad;
  Input a;
  Input b;
  Input distances;
  double norm = 0;

  bool run(DeviceIndex index) const;
};

struct Nll {
  Output out;
  Output total;
  Input in;
  Input target;
  InputOrNone weight{};
  int64_t dim = 0;
  int64_t averaging = 0;
  int64_t ignore = 0;
  void* bad = nullptr;

  bool run(DeviceIndex index) const;
};

struct NllBackward {
  Output out;
  Input grad;
  Input target;
  InputOrNone weight{};
  Input total;
  int64_t dim = 0;
  int64_t averaging = 0;
  int64_t ignore = 0;
  void* bad = nullptr;

  bool run(DeviceIndex index) const;
};

struct ScaledMatmul {
  Output out;
  Input a;
  Input b;
  InputOrNone bias{};
  Input scale_a;
  Input scale_b;
  InputOrNone scale_out{};
  int64_t format_out = 0;
  int64_t format_a = 0;
  int64_t format_b = 0;

  bool run(DeviceIndex index) const;
};

struct SparseMatmul {
  Output out;
  Input starts;
  Input columns;
  Input values;
  Input b;
  InputOrNone c{};
  chorus_number alpha{};
  chorus_number beta{};
  int64_t library = 0;

  bool run(DeviceIndex index) const;
};

struct Dropout {
  Output out;
  Output mask;
  Input in;
  InputOrNone state{};
  double keep = 0;
  int64_t seed = 0;
  int64_t offset = 0;

  bool run(DeviceIndex index) const;
};

struct Shuffle {
  Output data;
  Input keys;
  InputOrNone state{};
  int64_t seed = 0;
  int64_t offset = 0;

  bool run(DeviceIndex index) const;
};

} // namespace chorus::kernels
