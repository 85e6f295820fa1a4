// Written by capi/gen from the table of kernels, capi/kernels; don't edit.
#include "native/kernels.h"

namespace chorus::kernels {

bool Elementwise::run(DeviceIndex index) const {
  Kernel x(CHORUS_KERNEL_ELEMENTWISE, op);
  x.compute(compute);
  x.outs(outs);
  x.ins(ins);
  x.numbers(numbers);
  return x.run(index);
}

bool Reduce::run(DeviceIndex index) const {
  Kernel x(CHORUS_KERNEL_REDUCE, op);
  x.compute(compute);
  x.outs(outs);
  x.ins(in);
  x.numbers(numbers);
  x.integers(dims);
  return x.run(index);
}

bool Scan::run(DeviceIndex index) const {
  Kernel x(CHORUS_KERNEL_SCAN, op);
  x.compute(compute);
  x.outs(outs);
  x.ins(in);
  x.integers(dim);
  return x.run(index);
}

bool Softmax::run(DeviceIndex index) const {
  Kernel x(CHORUS_KERNEL_SOFTMAX, op);
  x.outs(out);
  x.ins(in);
  x.integers(dim);
  return x.run(index);
}

bool SoftmaxBackward::run(DeviceIndex index) const {
  Kernel x(CHORUS_KERNEL_SOFTMAX, op);
  x.outs(out);
  x.ins(grad, result);
  x.integers(dim);
  return x.run(index);
}

bool Norm::run(DeviceIndex index) const {
  Kernel x(CHORUS_KERNEL_NORM, op);
  x.outs(out, mean, rstd);
  x.ins(in, weight, bias);
  x.numbers(eps);
  x.integers(groups, channels, inner);
  return x.run(index);
}

bool NormBackward::run(DeviceIndex index) const {
  Kernel x(CHORUS_KERNEL_NORM, op);
  x.outs(grad_in, grad_weight, grad_bias);
  x.ins(grad, in, mean, rstd, weight);
  x.integers(groups, channels, inner);
  return x.run(index);
}

bool Matmul::run(DeviceIndex index) const {
  Kernel x(CHORUS_KERNEL_MATMUL, op);
  x.outs(out);
  x.ins(a, b, c);
  x.numbers(alpha, beta);
  x.integers(atomics);
  return x.run(index);
}

bool Triangle::run(DeviceIndex index) const {
  Kernel x(CHORUS_KERNEL_TRIANGLE, op);
  x.outs(out);
  x.ins(in);
  x.integers(diagonal);
  return x.run(index);
}

bool Arange::run(DeviceIndex index) const {
  static const int32_t number = kernel_op(CHORUS_KERNEL_RANGE, "arange");
  Kernel x(CHORUS_KERNEL_RANGE, number);
  x.compute(compute);
  x.outs(out);
  x.numbers(start, step);
  return x.run(index);
}

bool Linspace::run(DeviceIndex index) const {
  static const int32_t number = kernel_op(CHORUS_KERNEL_RANGE, "linspace");
  Kernel x(CHORUS_KERNEL_RANGE, number);
  x.compute(compute);
  x.outs(out);
  x.numbers(start, end);
  return x.run(index);
}

bool Eye::run(DeviceIndex index) const {
  static const int32_t number = kernel_op(CHORUS_KERNEL_RANGE, "eye");
  Kernel x(CHORUS_KERNEL_RANGE, number);
  x.outs(out);
  return x.run(index);
}

bool Index::run(DeviceIndex index) const {
  Kernel x(CHORUS_KERNEL_INDEX, op);
  x.bad(bad);
  x.outs(out);
  x.ins(in, indexes);
  for (const IndexInput& each : indexes)
    x.integers(each.size, each.stride, each.negative);
  return x.run(index);
}

bool Sort::run(DeviceIndex index) const {
  static const int32_t number = kernel_op(CHORUS_KERNEL_SORT, "sort");
  Kernel x(CHORUS_KERNEL_SORT, number);
  x.outs(values, indexes);
  x.ins(in);
  x.integers(dim, descending);
  return x.run(index);
}

bool Kth::run(DeviceIndex index) const {
  static const int32_t number = kernel_op(CHORUS_KERNEL_SORT, "kthvalue");
  Kernel x(CHORUS_KERNEL_SORT, number);
  x.outs(values, indexes);
  x.ins(in);
  x.integers(dim, k);
  return x.run(index);
}

bool Median::run(DeviceIndex index) const {
  Kernel x(CHORUS_KERNEL_SORT, op);
  x.outs(values, indexes);
  x.ins(in);
  x.integers(dim);
  return x.run(index);
}

bool Mode::run(DeviceIndex index) const {
  static const int32_t number = kernel_op(CHORUS_KERNEL_SORT, "mode");
  Kernel x(CHORUS_KERNEL_SORT, number);
  x.outs(values, indexes);
  x.ins(in);
  x.integers(dim);
  return x.run(index);
}

bool Search::run(DeviceIndex index) const {
  static const int32_t number = kernel_op(CHORUS_KERNEL_SEARCH, "searchsorted");
  Kernel x(CHORUS_KERNEL_SEARCH, number);
  x.outs(out);
  x.ins(values, sorted, sorter);
  x.integers(right);
  return x.run(index);
}

bool Contains::run(DeviceIndex index) const {
  static const int32_t number = kernel_op(CHORUS_KERNEL_SEARCH, "isin");
  Kernel x(CHORUS_KERNEL_SEARCH, number);
  x.outs(out);
  x.ins(values, sorted);
  x.integers(invert);
  return x.run(index);
}

bool Bincount::run(DeviceIndex index) const {
  static const int32_t number = kernel_op(CHORUS_KERNEL_COUNT, "bincount");
  Kernel x(CHORUS_KERNEL_COUNT, number);
  x.bad(bad);
  x.outs(out);
  x.ins(in, weights);
  return x.run(index);
}

bool Histogram::run(DeviceIndex index) const {
  static const int32_t number = kernel_op(CHORUS_KERNEL_COUNT, "histc");
  Kernel x(CHORUS_KERNEL_COUNT, number);
  x.outs(out);
  x.ins(in);
  x.numbers(low, high);
  return x.run(index);
}

bool Nonzero::run(DeviceIndex index) const {
  static const int32_t number = kernel_op(CHORUS_KERNEL_CHOOSE, "nonzero");
  Kernel x(CHORUS_KERNEL_CHOOSE, number);
  x.outs(out);
  x.ins(in);
  return x.run(index);
}

bool MaskedSelect::run(DeviceIndex index) const {
  static const int32_t number = kernel_op(CHORUS_KERNEL_CHOOSE, "masked_select");
  Kernel x(CHORUS_KERNEL_CHOOSE, number);
  x.outs(out);
  x.ins(in, mask);
  return x.run(index);
}

bool MaskedScatter::run(DeviceIndex index) const {
  static const int32_t number = kernel_op(CHORUS_KERNEL_CHOOSE, "masked_scatter");
  Kernel x(CHORUS_KERNEL_CHOOSE, number);
  x.outs(out);
  x.ins(mask, in);
  return x.run(index);
}

bool Starts::run(DeviceIndex index) const {
  static const int32_t number = kernel_op(CHORUS_KERNEL_CHOOSE, "starts");
  Kernel x(CHORUS_KERNEL_CHOOSE, number);
  x.outs(out);
  x.ins(in);
  return x.run(index);
}

bool Inverse::run(DeviceIndex index) const {
  static const int32_t number = kernel_op(CHORUS_KERNEL_CHOOSE, "inverse");
  Kernel x(CHORUS_KERNEL_CHOOSE, number);
  x.outs(out);
  x.ins(starts, order);
  return x.run(index);
}

bool Lengths::run(DeviceIndex index) const {
  static const int32_t number = kernel_op(CHORUS_KERNEL_CHOOSE, "lengths");
  Kernel x(CHORUS_KERNEL_CHOOSE, number);
  x.outs(out);
  x.ins(places);
  x.integers(elements);
  return x.run(index);
}

bool Roll::run(DeviceIndex index) const {
  static const int32_t number = kernel_op(CHORUS_KERNEL_ROLL, "roll");
  Kernel x(CHORUS_KERNEL_ROLL, number);
  x.outs(out);
  x.ins(in);
  x.integers(shift, dim);
  return x.run(index);
}

bool Foreach::run(DeviceIndex index) const {
  Kernel x(CHORUS_KERNEL_FOREACH, op);
  x.compute(compute);
  x.outs(outs);
  x.ins(ins);
  x.numbers(numbers);
  x.integers(out_lists, in_lists, number_lists, lengths);
  return x.run(index);
}

bool ForeachReduce::run(DeviceIndex index) const {
  Kernel x(CHORUS_KERNEL_FOREACH_REDUCE, op);
  x.compute(compute);
  x.outs(outs);
  x.ins(ins);
  x.numbers(numbers);
  return x.run(index);
}

bool Optimize::run(DeviceIndex index) const {
  Kernel x(CHORUS_KERNEL_OPTIMIZE, op);
  x.outs(outs);
  x.ins(found_inf, grad_scale, rate, steps);
  x.numbers(lr, weight_decay, momentum, dampening, beta1, beta2, eps, lr_decay);
  x.integers(lists, nesterov, maximize, first);
  return x.run(index);
}

bool Unscale::run(DeviceIndex index) const {
  static const int32_t number = kernel_op(CHORUS_KERNEL_UNSCALE, "unscale");
  Kernel x(CHORUS_KERNEL_UNSCALE, number);
  x.outs(grads);
  x.ins(found_inf, inverse);
  return x.run(index);
}

bool UpdateScale::run(DeviceIndex index) const {
  static const int32_t number = kernel_op(CHORUS_KERNEL_UPDATE_SCALE, "update_scale");
  Kernel x(CHORUS_KERNEL_UPDATE_SCALE, number);
  x.outs(scale, tracker);
  x.ins(found_inf);
  x.numbers(growth, backoff);
  x.integers(interval);
  return x.run(index);
}

bool Convolution::run(DeviceIndex index) const {
  static const int32_t number = kernel_op(CHORUS_KERNEL_CONVOLUTION, "convolution");
  Kernel x(CHORUS_KERNEL_CONVOLUTION, number);
  x.outs(out);
  x.ins(in, weight, bias);
  x.integers(transposed, groups, stride, padding, dilation);
  return x.run(index);
}

bool ConvolutionBackward::run(DeviceIndex index) const {
  static const int32_t number = kernel_op(CHORUS_KERNEL_CONVOLUTION, "convolution_backward");
  Kernel x(CHORUS_KERNEL_CONVOLUTION, number);
  x.outs(grad_in, grad_weight, grad_bias);
  x.ins(grad, in, weight);
  x.integers(transposed, groups, stride, padding, dilation);
  return x.run(index);
}

bool MaxPool::run(DeviceIndex index) const {
  static const int32_t number = kernel_op(CHORUS_KERNEL_POOL, "max");
  Kernel x(CHORUS_KERNEL_POOL, number);
  x.outs(out, indexes);
  x.ins(in);
  x.integers(count_padding, divisor, window, stride, padding, dilation);
  return x.run(index);
}

bool MaxPoolBackward::run(DeviceIndex index) const {
  static const int32_t number = kernel_op(CHORUS_KERNEL_POOL, "max_backward");
  Kernel x(CHORUS_KERNEL_POOL, number);
  x.outs(out);
  x.ins(grad, indexes);
  x.integers(count_padding, divisor, window, stride, padding, dilation);
  return x.run(index);
}

bool Windows::run(DeviceIndex index) const {
  Kernel x(CHORUS_KERNEL_POOL, op);
  x.outs(out);
  x.ins(in);
  x.integers(count_padding, divisor, window, stride, padding, dilation);
  return x.run(index);
}

bool MaxUnpool::run(DeviceIndex index) const {
  Kernel x(CHORUS_KERNEL_POOL, op);
  x.bad(bad);
  x.outs(out);
  x.ins(in, indexes);
  return x.run(index);
}

bool Upsample::run(DeviceIndex index) const {
  Kernel x(CHORUS_KERNEL_UPSAMPLE, op);
  x.outs(out);
  x.ins(in);
  x.numbers(scales);
  x.integers(align_corners, antialias);
  return x.run(index);
}

bool Pad::run(DeviceIndex index) const {
  Kernel x(CHORUS_KERNEL_PAD, op);
  x.outs(out);
  x.ins(in);
  x.integers(before);
  return x.run(index);
}

bool GridSample::run(DeviceIndex index) const {
  Kernel x(CHORUS_KERNEL_GRID_SAMPLE, op);
  x.outs(out);
  x.ins(in, grid);
  x.integers(border, align_corners);
  return x.run(index);
}

bool GridSampleBackward::run(DeviceIndex index) const {
  Kernel x(CHORUS_KERNEL_GRID_SAMPLE, op);
  x.outs(grad_in, grad_grid);
  x.ins(grad, in, grid);
  x.integers(border, align_corners, atomics);
  return x.run(index);
}

bool Attention::run(DeviceIndex index) const {
  static const int32_t number = kernel_op(CHORUS_KERNEL_ATTENTION, "attention");
  Kernel x(CHORUS_KERNEL_ATTENTION, number);
  x.outs(out, sums);
  x.ins(query, key, value, mask, state);
  x.numbers(scale, dropout_rate);
  x.integers(causal, seed, offset);
  return x.run(index);
}

bool AttentionBackward::run(DeviceIndex index) const {
  static const int32_t number = kernel_op(CHORUS_KERNEL_ATTENTION, "attention_backward");
  Kernel x(CHORUS_KERNEL_ATTENTION, number);
  x.outs(grad_query, grad_key, grad_value);
  x.ins(grad, out, sums, query, key, value, mask, state);
  x.numbers(scale, dropout_rate);
  x.integers(causal, seed, offset);
  return x.run(index);
}

bool BatchNorm::run(DeviceIndex index) const {
  static const int32_t number = kernel_op(CHORUS_KERNEL_BATCH_NORM, "batch_norm");
  Kernel x(CHORUS_KERNEL_BATCH_NORM, number);
  x.outs(out, mean, rstd);
  x.ins(in, weight, bias, running_mean, running_var);
  x.numbers(momentum, eps);
  x.integers(training);
  return x.run(index);
}

bool BatchNormBackward::run(DeviceIndex index) const {
  static const int32_t number = kernel_op(CHORUS_KERNEL_BATCH_NORM, "batch_norm_backward");
  Kernel x(CHORUS_KERNEL_BATCH_NORM, number);
  x.outs(grad_in, grad_weight, grad_bias);
  x.ins(grad, in, weight, running_mean, running_var, mean, rstd);
  x.numbers(eps);
  x.integers(training);
  return x.run(index);
}

bool EmbeddingBag::run(DeviceIndex index) const {
  static const int32_t number = kernel_op(CHORUS_KERNEL_BAG, "embedding_bag");
  Kernel x(CHORUS_KERNEL_BAG, number);
  x.bad(bad);
  x.outs(out, bags, counts, most);
  x.ins(table, indexes, offsets, weights);
  x.integers(mode, padding, by_frequency);
  return x.run(index);
}

bool EmbeddingBackward::run(DeviceIndex index) const {
  static const int32_t number = kernel_op(CHORUS_KERNEL_BAG, "embedding_backward");
  Kernel x(CHORUS_KERNEL_BAG, number);
  x.bad(bad);
  x.outs(out);
  x.ins(grad, indexes, weights, bags, counts, most);
  x.integers(mode, padding, by_frequency);
  return x.run(index);
}

bool WeightsBackward::run(DeviceIndex index) const {
  static const int32_t number = kernel_op(CHORUS_KERNEL_BAG, "weights_backward");
  Kernel x(CHORUS_KERNEL_BAG, number);
  x.bad(bad);
  x.outs(out);
  x.ins(grad, table, indexes, bags);
  x.integers(mode, padding, by_frequency);
  return x.run(index);
}

bool Distance::run(DeviceIndex index) const {
  static const int32_t number = kernel_op(CHORUS_KERNEL_DISTANCE, "cdist");
  Kernel x(CHORUS_KERNEL_DISTANCE, number);
  x.outs(out);
  x.ins(a, b);
  x.numbers(norm);
  return x.run(index);
}

bool DistanceBackward::run(DeviceIndex index) const {
  static const int32_t number = kernel_op(CHORUS_KERNEL_DISTANCE, "cdist_backward");
  Kernel x(CHORUS_KERNEL_DISTANCE, number);
  x.outs(grad_a);
  x.ins(grad, a, b, distances);
  x.numbers(norm);
  return x.run(index);
}

bool Nll::run(DeviceIndex index) const {
  static const int32_t number = kernel_op(CHORUS_KERNEL_NLL, "nll_loss");
  Kernel x(CHORUS_KERNEL_NLL, number);
  x.bad(bad);
  x.outs(out, total);
  x.ins(in, target, weight);
  x.integers(dim, averaging, ignore);
  return x.run(index);
}

bool NllBackward::run(DeviceIndex index) const {
  static const int32_t number = kernel_op(CHORUS_KERNEL_NLL, "nll_loss_backward");
  Kernel x(CHORUS_KERNEL_NLL, number);
  x.bad(bad);
  x.outs(out);
  x.ins(grad, target, weight, total);
  x.integers(dim, averaging, ignore);
  return x.run(index);
}

bool ScaledMatmul::run(DeviceIndex index) const {
  static const int32_t number = kernel_op(CHORUS_KERNEL_SCALED_MATMUL, "scaled_matmul");
  Kernel x(CHORUS_KERNEL_SCALED_MATMUL, number);
  x.outs(out);
  x.ins(a, b, bias, scale_a, scale_b, scale_out);
  x.integers(format_out, format_a, format_b);
  return x.run(index);
}

bool SparseMatmul::run(DeviceIndex index) const {
  static const int32_t number = kernel_op(CHORUS_KERNEL_SPARSE_MATMUL, "sparse_matmul");
  Kernel x(CHORUS_KERNEL_SPARSE_MATMUL, number);
  x.outs(out);
  x.ins(starts, columns, values, b, c);
  x.numbers(alpha, beta);
  x.integers(library);
  return x.run(index);
}

bool Dropout::run(DeviceIndex index) const {
  static const int32_t number = kernel_op(CHORUS_KERNEL_RANDOM, "dropout");
  Kernel x(CHORUS_KERNEL_RANDOM, number);
  x.outs(out, mask);
  x.ins(in, state);
  x.numbers(keep);
  x.integers(seed, offset);
  return x.run(index);
}

bool Shuffle::run(DeviceIndex index) const {
  static const int32_t number = kernel_op(CHORUS_KERNEL_RANDOM, "shuffle");
  Kernel x(CHORUS_KERNEL_RANDOM, number);
  x.outs(data);
  x.ins(keys, state);
  x.integers(seed, offset);
  return x.run(index);
}

} // namespace chorus::kernels
