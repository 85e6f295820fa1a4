// Losses of classes by a margin between their scores.
#include "native/composed.h"

#include <ATen/core/Reduction.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

namespace chorus {

namespace {

using Arguments = c10::ArrayRef<c10::IValue>;

// Scores are rows of an input, of which each has a score for each class.
struct Scores {
  at::Tensor x;
  int64_t rows = 0, classes = 0;

  // read takes an input; false if no kernel covers it.
  bool read(const at::Tensor& self) {
    if (!there(self) || (self.scalar_type() != at::kFloat && self.scalar_type() != at::kDouble) || self.dim() < 1 ||
        self.dim() > 2 || self.numel() == 0)
      return false;
    x = self.dim() == 1 ? self.unsqueeze(0) : self;
    rows = x.size(0);
    classes = x.size(1);
    return true;
  }

  // joined is a loss of the losses of rows, of which the operator has these sizes.
  at::Tensor joined(const at::Tensor& each, int64_t reduction, at::IntArrayRef sizes) const {
    return reduction == at::Reduction::None ? each.view(sizes) : reduction == at::Reduction::Mean ? each.mean()
                                                                                                 : each.sum();
  }

  // weighed is a gradient by the scores of that of the loss; false if that has other sizes.
  bool weighed(at::Tensor& by_scores, const at::Tensor& grad, int64_t reduction) const {
    bool separate = reduction == at::Reduction::None;
    if (!there(grad) || grad.scalar_type() != x.scalar_type() || grad.numel() != (separate ? rows : 1))
      return false;
    by_scores.mul_(grad.reshape({-1, 1})).mul_(1 / double(reduction == at::Reduction::Mean ? rows * classes : classes));
    return true;
  }
};

// Multi is multi_margin_loss(self, target, p, margin, weight, reduction), or its gradient, which has grad_output first.
struct Multi {
  Scores scores;
  at::Tensor target, weight, over; // over is by how much each score is too near to the target's, 0 for that itself
  int64_t p = 1, reduction = 0;

  bool read(Arguments a) {
    target = a[1].toTensor();
    if (a[4].isTensor())
      weight = a[4].toTensor();
    double power = a[2].toScalar().toDouble();
    p = power == 1 ? 1 : 2;
    reduction = a[5].toInt();
    if (!scores.read(a[0].toTensor()) || !there(target) || target.scalar_type() != at::kLong || target.dim() > 1 ||
        target.numel() != scores.rows || (power != 1 && power != 2))
      return false;
    if (weight.defined() && (!there(weight) || weight.scalar_type() != scores.x.scalar_type() || weight.dim() != 1 ||
                             weight.numel() != scores.classes))
      return false;
    at::Tensor own = target.view({scores.rows, 1});
    over = scores.x.sub(scores.x.gather(1, own)).add_(a[3].toScalar());
    over = at::where(over.gt(0), over, 0).scatter_(1, own, 0);
    return true;
  }

  void weigh(at::Tensor& each) const {
    if (weight.defined())
      each.mul_(weight.index_select(0, target.view({-1})).unsqueeze(1));
  }
};

// out is one more argument for a given result.
template <bool out>
bool multi_margin(NativeCall& call) {
  Multi m;
  if (!m.read(call.arguments))
    return false;
  at::Tensor each = m.p == 1 ? m.over : m.over.mul(m.over);
  m.weigh(each);
  each = each.sum(1).div_(m.scores.classes);
  return settle(call, m.scores.joined(each, m.reduction, m.target.sizes()), out ? &call.arguments[6] : nullptr);
}

template <bool out>
bool multi_margin_backward(NativeCall& call) {
  Arguments a = call.arguments;
  Multi m;
  if (!m.read(a.slice(1)))
    return false;
  at::Tensor by_scores = m.p == 1 ? m.over.gt(0).to(m.over.scalar_type()) : m.over.mul(2);
  m.weigh(by_scores);
  by_scores.scatter_(1, m.target.view({-1, 1}), by_scores.sum(1, /*keepdim=*/true).neg_());
  if (!m.scores.weighed(by_scores, a[0].toTensor(), m.reduction))
    return false;
  return settle(call, by_scores.view(a[1].toTensor().sizes()), out ? &a[7] : nullptr);
}

// Multilabel is multilabel_margin_loss_forward(self, target, reduction), or its gradient, which has grad_output first.
// The classes of a row are those in target before the first negative number.
struct Multilabel {
  Scores scores;
  at::Tensor target, is_class, over; // over is of each class in target, by how much each score is too near to its own

  bool read(const at::Tensor& self, const at::Tensor& classes) {
    if (!scores.read(self) || !there(classes) || classes.scalar_type() != at::kLong ||
        classes.sizes() != self.sizes() || self.numel() * scores.classes > kMostPairs)
      return false;
    target = classes.view(scores.x.sizes());
    at::Tensor valid = target.lt(0).cumsum(1).eq(0);
    at::Tensor wrong = target.lt(-1).logical_or_(target.ge(scores.classes)); // has an error wherever it stands
    target = at::where(valid.logical_or(wrong), target, 0);
    at::Tensor counted = valid.to(scores.x.scalar_type());
    is_class = at::zeros_like(counted).scatter_add_(1, target, counted).gt(0);
    over = scores.x.unsqueeze(1).sub(scores.x.gather(1, target).unsqueeze(2)).add_(1);
    at::Tensor counts = over.gt(0).logical_and_(valid.unsqueeze(2)).logical_and_(is_class.logical_not().unsqueeze(1));
    over = at::where(counts, over, 0);
    return true;
  }

  static constexpr int64_t kMostPairs = 1 << 24; // of classes, in all rows: they are in memory
};

template <bool out>
bool multilabel_margin(NativeCall& call) {
  Arguments a = call.arguments;
  const at::Tensor &self = a[0].toTensor(), &target = a[1].toTensor();
  Multilabel m;
  if (!m.read(self, target))
    return false;
  at::Tensor each = m.over.sum({1, 2}).div_(m.scores.classes);
  at::IntArrayRef sizes = self.sizes().slice(0, size_t(self.dim() - 1));
  return settle(call, m.scores.joined(each, a[2].toInt(), sizes), out ? &a[3] : nullptr) &&
      settle(call, m.is_class.to(self.scalar_type()).view(target.sizes()), out ? &a[4] : nullptr);
}

template <bool out>
bool multilabel_margin_backward(NativeCall& call) {
  Arguments a = call.arguments;
  const at::Tensor& self = a[1].toTensor();
  Multilabel m;
  if (!m.read(self, a[2].toTensor()))
    return false;
  at::Tensor near = m.over.gt(0).to(self.scalar_type());
  at::Tensor by_scores = near.sum(1).scatter_add_(1, m.target, near.sum(2).neg_());
  if (!m.scores.weighed(by_scores, a[0].toTensor(), a[3].toInt()))
    return false;
  return settle(call, by_scores.view(self.sizes()), out ? &a[5] : nullptr);
}

} // namespace

void add_margins() {
  add_composed("multi_margin_loss", multi_margin<false>);
  add_composed("multi_margin_loss.out", multi_margin<true>);
  add_composed("multi_margin_loss_backward", multi_margin_backward<false>);
  add_composed("multi_margin_loss_backward.grad_input", multi_margin_backward<true>);
  add_composed("multilabel_margin_loss_forward", multilabel_margin<false>);
  add_composed("multilabel_margin_loss_forward.output", multilabel_margin<true>);
  add_composed("multilabel_margin_loss_backward", multilabel_margin_backward<false>);
  add_composed("multilabel_margin_loss_backward.grad_input", multilabel_margin_backward<true>);
}

} // namespace chorus
