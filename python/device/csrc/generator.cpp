#include "generator.h"

#include <array>
#include <atomic>
#include <mutex>

#include <ATen/CPUGeneratorImpl.h>

#include "stream.h"

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

  void draws(chorus_stream stream) {
    chorus_stream earlier = last_;
    if (earlier == stream || capturing(stream)) // a graph draws when it is replayed
      return;
    last_ = stream;
    if (earlier != 0)
      check(lib.stream_wait_stream(stream, earlier));
  }

  void set_current_seed(uint64_t seed) override {
    settle();
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
    settle();
    return host_.unsafeGetGeneratorImpl()->seed();
  }

  void set_state(const c10::TensorImpl& state) override {
    settle();
    host_.unsafeGetGeneratorImpl()->set_state(state);
  }

  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    settle();
    return host_.unsafeGetGeneratorImpl()->get_state();
  }

 private:
  // settle waits for what draws: the state is then what the program has come to. What a stream failed with, it keeps.
  void settle() const {
    if (chorus_stream last = last_.load()) {
      TORCH_CHECK(!capturing(last), "a generator's state is neither asked for nor set while what draws is captured");
      Unlocked unlocked;
      (void)lib.stream_await(last, 0);
    }
  }

  Generator* clone_impl() const override {
    settle();
    return new Generator(device().index(), host_.clone());
  }

  at::Generator host_;
  std::atomic<chorus_stream> last_{0}; // that draws
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

void draws(const at::Generator& generator, chorus_stream stream) {
  generator.get<Generator>()->draws(stream);
}

at::Generator host_generator(const at::Generator& generator) {
  return generator.get<Generator>()->host();
}

} // namespace chorus
