// Cells of recurrent networks, which PyTorch requires of every device but the CPU.
#include <ATen/core/Tensor.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros_like.h>
#include <torch/library.h>

namespace chorus {

namespace {

using at::Tensor;
using MaybeTensor = std::optional<Tensor>;

Tensor plus(const Tensor& gates, const MaybeTensor& bias) {
  return bias.has_value() && bias->defined() ? gates + *bias : gates;
}

Tensor or_zero(const MaybeTensor& grad, const Tensor& like) {
  return grad.has_value() && grad->defined() ? *grad : at::zeros_like(like);
}

std::tuple<Tensor, Tensor, Tensor> lstm_cell(
    const Tensor& input_gates, const Tensor& hidden_gates, const Tensor& cx, const MaybeTensor& input_bias,
    const MaybeTensor& hidden_bias) {
  std::vector<Tensor> gates = (plus(input_gates, input_bias) + plus(hidden_gates, hidden_bias)).chunk(4, 1);
  Tensor i = gates[0].sigmoid(), f = gates[1].sigmoid(), g = gates[2].tanh(), o = gates[3].sigmoid();
  Tensor cy = f * cx + i * g;
  return {o * cy.tanh(), cy, at::cat({i, f, g, o}, 1)};
}

std::tuple<Tensor, Tensor, Tensor> lstm_cell_backward(
    const MaybeTensor& grad_hy, const MaybeTensor& grad_cy, const Tensor& cx, const Tensor& cy, const Tensor& workspace,
    bool has_bias) {
  if (!(grad_hy.has_value() && grad_hy->defined()) && !(grad_cy.has_value() && grad_cy->defined()))
    return {};
  std::vector<Tensor> gates = workspace.chunk(4, 1);
  const Tensor &i = gates[0], &f = gates[1], &g = gates[2], &o = gates[3];
  Tensor t = cy.tanh(), dh = or_zero(grad_hy, cx);
  Tensor dc = dh * o * (1 - t * t) + or_zero(grad_cy, cx);
  Tensor grad = at::cat({dc * g * i * (1 - i), dc * cx * f * (1 - f), dc * i * (1 - g * g), dh * t * o * (1 - o)}, 1);
  return {grad, dc * f, has_bias ? grad.sum(0) : Tensor()};
}

std::tuple<Tensor, Tensor> gru_cell(
    const Tensor& input_gates, const Tensor& hidden_gates, const Tensor& hx, const MaybeTensor& input_bias,
    const MaybeTensor& hidden_bias) {
  std::vector<Tensor> input = plus(input_gates, input_bias).chunk(3, 1),
                      hidden = plus(hidden_gates, hidden_bias).chunk(3, 1);
  Tensor r = (input[0] + hidden[0]).sigmoid(), z = (input[1] + hidden[1]).sigmoid(),
         n = (input[2] + r * hidden[2]).tanh();
  return {n + z * (hx - n), at::cat({r, z, n, hx, hidden[2]}, 1)};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> gru_cell_backward(
    const Tensor& grad_hy, const Tensor& workspace, bool has_bias) {
  std::vector<Tensor> kept = workspace.chunk(5, 1);
  const Tensor &r = kept[0], &z = kept[1], &n = kept[2], &hx = kept[3], &hidden = kept[4];
  Tensor dn = grad_hy * (1 - z) * (1 - n * n), dz = grad_hy * (hx - n) * z * (1 - z), dr = dn * hidden * r * (1 - r);
  Tensor input = at::cat({dr, dz, dn}, 1), hid = at::cat({dr, dz, dn * r}, 1);
  return {input, hid, grad_hy * z, has_bias ? input.sum(0) : Tensor(), has_bias ? hid.sum(0) : Tensor()};
}

} // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_thnn_fused_lstm_cell", &lstm_cell);
  m.impl("_thnn_fused_lstm_cell_backward_impl", &lstm_cell_backward);
  m.impl("_thnn_fused_gru_cell", &gru_cell);
  m.impl("_thnn_fused_gru_cell_backward", &gru_cell_backward);
}

} // namespace chorus
