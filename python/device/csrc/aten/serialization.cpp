// A device's own metadata of a tensor, such as its memory layout: names, each true or false. Files of torch.save have
// it, and torch.load sets it on tensors that are loaded onto the device. The CPU's tensors have none. PyTorch's
// functions for it are torch._utils.set_tensor_metadata and get_tensor_metadata.
#include <c10/core/TensorImpl.h>
#include <torch/csrc/jit/serialization/pickler.h>

#include "runtime/runtime.h"

namespace chorus {

namespace {

using Words = std::unordered_map<std::string, bool>;

struct Metadata final : c10::BackendMeta {
  Words words;

  explicit Metadata(Words words) : words(std::move(words)) {}

  c10::intrusive_ptr<c10::BackendMeta> clone(const c10::intrusive_ptr<c10::BackendMeta>&) const override {
    return c10::make_intrusive<Metadata>(words);
  }
};

void save(const at::Tensor& tensor, Words& words) {
  if (auto* found = dynamic_cast<Metadata*>(tensor.unsafeGetTensorImpl()->get_backend_meta()))
    words.insert(found->words.begin(), found->words.end());
}

void load(const at::Tensor& tensor, Words& words) {
  tensor.unsafeGetTensorImpl()->set_backend_meta(c10::make_intrusive<Metadata>(words));
}

const bool registered = (torch::jit::TensorBackendMetaRegistry(kType, &save, &load), true);

} // namespace

} // namespace chorus
