#include "generator.h"

#include <array>
#include <atomic>
#include <cstring>
#include <mutex>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty.h>

#include "stream.h"

namespace chorus {

namespace {

std::atomic<bool> philox{false}; // the numbers are CUDA's

// Generator draws what PyTorch's CPU generator would draw from the same seed; or, if that was chosen, what its CUDA
// generator would: then a device's own one is the library's, of which graphs know, and others have their offsets here.
class Generator final : public c10::GeneratorImpl {
 public:
  Generator(DeviceIndex index, bool own, at::Generator host = at::detail::createCPUGenerator())
      : GeneratorImpl(c10::Device(kType, index), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
        host_(std::move(host)),
        own_(own) {}

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

  // begin goes to an offset behind the seed, if the numbers are CUDA's.
  void begin(uint64_t offset) {
    if (!philox)
      return;
    TORCH_CHECK(offset % 4 == 0, "offset must be a multiple of 4");
    if (own_)
      check(lib.random_set(chorus::device(device().index()).handle, current_seed(), offset));
    else
      offset_ = offset;
  }

  void draw(chorus_stream stream, chorus_random& r) {
    TORCH_CHECK(
        own_ || !capturing(stream), "of ", name(), "'s generators a graph can draw CUDA's numbers only from the device's own");
    r.given = !own_;
    r.seed = current_seed();
    r.offset = offset_;
    check(lib.stream_random(stream, &r));
    offset_ = r.offset;
  }

  void set_current_seed(uint64_t seed) override {
    settle();
    host_.set_current_seed(seed);
    begin(0);
  }

  void set_offset(uint64_t offset) override {
    if (philox)
      return begin(offset);
    TORCH_CHECK(false, name(), " generators have no offset: their numbers come from mt19937, as the CPU's do");
  }

  uint64_t get_offset() const override {
    if (philox && !own_)
      return offset_;
    if (philox) {
      uint64_t seed, offset;
      check(lib.random_get(chorus::device(device().index()).handle, &seed, &offset));
      return offset;
    }
    TORCH_CHECK(false, name(), " generators have no offset: their numbers come from mt19937, as the CPU's do");
  }

  uint64_t current_seed() const override {
    return host_.current_seed();
  }

  uint64_t seed() override {
    settle();
    uint64_t seed = host_.unsafeGetGeneratorImpl()->seed();
    begin(0);
    return seed;
  }

  void set_state(const c10::TensorImpl& state) override {
    settle();
    if (philox) { // of CUDA's generators: a seed and an offset
      uint64_t words[2] = {0, 0};
      TORCH_CHECK(
          state.dtype() == c10::kByte && state.is_contiguous() && (state.numel() == 16 || state.numel() == 8),
          "a state has 16 bytes, a seed and an offset");
      std::memcpy(words, state.data(), size_t(state.numel()));
      host_.set_current_seed(words[0]);
      return begin(words[1]);
    }
    host_.unsafeGetGeneratorImpl()->set_state(state);
  }

  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    settle();
    if (philox) {
      uint64_t words[2] = {current_seed(), get_offset()};
      at::Tensor state = at::empty({16}, at::kByte);
      std::memcpy(state.mutable_data_ptr(), words, sizeof words);
      return state.getIntrusivePtr();
    }
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
    auto* made = new Generator(device().index(), false, host_.clone());
    if (philox)
      made->offset_ = get_offset();
    return made;
  }

  at::Generator host_;
  bool own_;                         // the device's
  std::atomic<uint64_t> offset_{0}; // of CUDA's numbers
  std::atomic<chorus_stream> last_{0}; // that draws
};

} // namespace

const at::Generator& default_generator(DeviceIndex index) {
  static auto* all = new std::array<at::Generator, kMostDevices>;
  static auto* made = new std::array<std::once_flag, kMostDevices>;
  index = in_range(index < 0 ? current() : index);
  std::call_once((*made)[index], [&] {
    (*all)[index] = at::make_generator<Generator>(index, true);
    (*all)[index].seed();
  });
  return (*all)[index];
}

at::Generator new_generator(DeviceIndex index) {
  return at::make_generator<Generator>(in_range(index < 0 ? current() : index), false);
}

void use_philox(bool on) {
  philox = on;
  for (DeviceIndex i = 0; i < count(); i++)
    default_generator(i).get<Generator>()->begin(0);
}

void draw(const at::Tensor& self, chorus_random r, const std::optional<at::Generator>& generator) {
  DeviceIndex index = self.device().index();
  const at::Generator& g = generator.has_value() ? *generator : default_generator(index);
  TORCH_CHECK(
      g.device() == self.device(), "Expected a '", self.device(), "' generator device but found '", g.device(), "'");
  r.size = sizeof r;
  r.memory = self.mutable_data_ptr();
  r.n = self.numel();
  if (r.n > 0)
    g.get<Generator>()->draw(current_handle(index), r);
}

void draws(const at::Generator& generator, chorus_stream stream) {
  generator.get<Generator>()->draws(stream);
}

at::Generator host_generator(const at::Generator& generator) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      !philox, "there are no numbers of CUDA's for this operator: torch.", name(), ".use_philox() says for which there are");
  return generator.get<Generator>()->host();
}

} // namespace chorus
