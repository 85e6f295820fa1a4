#include "generator.h"

#include <array>
#include <mutex>

#include <ATen/CPUGeneratorImpl.h>

namespace chorus {

namespace {

// Generator draws what PyTorch's CPU generator would draw from the same seed.
class Generator final : public c10::GeneratorImpl {
 public:
  explicit Generator(DeviceIndex index, at::Generator host = at::detail::createCPUGenerator())
      : GeneratorImpl(c10::Device(kType, index), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
        host_(std::move(host)) {}

  const at::Generator& host() const {
    return host_;
  }

  void set_current_seed(uint64_t seed) override {
    host_.set_current_seed(seed);
  }

  void set_offset(uint64_t) override {
    TORCH_CHECK(false, name(), " generators have no offset: their numbers come from mt19937, as the CPU's do");
  }

  uint64_t get_offset() const override {
    TORCH_CHECK(false, name(), " generators have no offset: their numbers come from mt19937, as the CPU's do");
  }

  uint64_t current_seed() const override {
    return host_.current_seed();
  }

  uint64_t seed() override {
    return host_.unsafeGetGeneratorImpl()->seed();
  }

  void set_state(const c10::TensorImpl& state) override {
    host_.unsafeGetGeneratorImpl()->set_state(state);
  }

  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    return host_.unsafeGetGeneratorImpl()->get_state();
  }

 private:
  Generator* clone_impl() const override {
    return new Generator(device().index(), host_.clone());
  }

  at::Generator host_;
};

} // namespace

const at::Generator& default_generator(DeviceIndex index) {
  static auto* all = new std::array<at::Generator, kMostDevices>;
  static auto* made = new std::array<std::once_flag, kMostDevices>;
  index = in_range(index < 0 ? current() : index);
  std::call_once((*made)[index], [&] {
    (*all)[index] = new_generator(index);
    (*all)[index].seed();
  });
  return (*all)[index];
}

at::Generator new_generator(DeviceIndex index) {
  return at::make_generator<Generator>(in_range(index < 0 ? current() : index));
}

at::Generator host_generator(const at::Generator& generator) {
  return generator.get<Generator>()->host();
}

} // namespace chorus
