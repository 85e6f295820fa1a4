#include "runtime/generator.h"

#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/PhiloxRNGEngine.h>
#include <ATen/ops/empty.h>

#include "runtime/stream.h"

namespace chorus {

namespace {

std::atomic<bool> philox{false}; // the numbers are CUDA's

// Generator draws the numbers of PyTorch's CPU generator with the same seed, or, after use_philox, those of its CUDA
// generator. In that mode a device's own generator is the library's, which graphs capture, and others keep their
// offsets here. Several generators may share a state: "graphsafe" methods return the live state, and replace it by
// another's.
class Generator final : public c10::GeneratorImpl {
 public:
  struct State {
    at::Generator host;
    bool own;                           // the device's
    std::atomic<uint64_t> offset{0};    // of CUDA's numbers
    std::atomic<chorus_stream> last{0}; // the last one that draws

    State(at::Generator host, bool own) : host(std::move(host)), own(own) {}
  };

  Generator(DeviceIndex index, std::shared_ptr<State> state)
      : GeneratorImpl(c10::Device(kType, index), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
        state_(std::move(state)) {}

  Generator(DeviceIndex index, bool own, at::Generator host = at::detail::createCPUGenerator())
      : Generator(index, std::make_shared<State>(std::move(host), own)) {}

  const at::Generator& host() const {
    return state_->host;
  }

  // derived is a generator of the CPU for one operator, whose seed comes from the next of CUDA's numbers.
  at::Generator derived() {
    chorus_stream stream = current_handle(device().index());
    TORCH_CHECK(
        !capturing(stream), "this operator can't be captured: the host draws its numbers, so that all replays would ",
        "draw the same. torch.", name(), ".use_philox(False) lets it be captured");
    chorus_draw at = take(stream, 4);
    at::Philox4_32 engine(at.seed, 0, at.offset / 4);
    uint64_t low = engine();
    return at::detail::createCPUGenerator(uint64_t(engine()) << 32 | low);
  }

  // take takes the next words of CUDA's numbers for a stream's next work.
  chorus_draw take(chorus_stream stream, uint64_t words) {
    chorus_draw at{};
    at.size = sizeof at;
    at.words = words;
    if (state_->own) {
      check(lib.random_take(stream, &at));
      return at;
    }
    only_own(stream);
    at.seed = current_seed();
    at.offset = state_->offset.fetch_add((words + 3) / 4 * 4);
    return at;
  }

  void draws(chorus_stream stream) {
    chorus_stream earlier = state_->last;
    if (philox || earlier == stream || capturing(stream)) // a graph draws when it is replayed
      return;
    state_->last = stream;
    if (earlier != 0)
      check(lib.stream_wait_stream(stream, earlier));
  }

  // begin restarts from the seed, at an offset, if the numbers are CUDA's.
  void begin(uint64_t offset) {
    if (!philox)
      return;
    TORCH_CHECK(offset % 4 == 0, "offset must be a multiple of 4");
    if (state_->own)
      check(lib.random_set(chorus::device(device().index()).handle, current_seed(), offset));
    else
      state_->offset = offset;
  }

  void draw(chorus_stream stream, chorus_random& r) {
    only_own(stream);
    r.given = !state_->own;
    r.seed = current_seed();
    r.offset = state_->offset;
    check(lib.stream_random(stream, &r));
    state_->offset = r.offset;
  }

  void set_current_seed(uint64_t seed) override {
    settle();
    state_->host.set_current_seed(seed);
    begin(0);
  }

  void set_offset(uint64_t offset) override {
    if (philox)
      return begin(offset);
    TORCH_CHECK(
        false, "a generator of ", name(), " does not support set_offset: its numbers are mt19937's, as the CPU's are. ",
        "torch.", name(), ".use_philox() gives it one");
  }

  uint64_t get_offset() const override {
    if (philox && !state_->own)
      return state_->offset;
    if (philox) {
      uint64_t seed, offset;
      check(lib.random_get(chorus::device(device().index()).handle, &seed, &offset));
      return offset;
    }
    TORCH_CHECK(
        false, "a generator of ", name(), " does not support get_offset: its numbers are mt19937's, as the CPU's are. ",
        "torch.", name(), ".use_philox() gives it one");
  }

  uint64_t current_seed() const override {
    return state_->host.current_seed();
  }

  uint64_t seed() override {
    settle();
    uint64_t seed = state_->host.unsafeGetGeneratorImpl()->seed();
    begin(0);
    return seed;
  }

  void set_state(const c10::TensorImpl& state) override {
    settle();
    if (philox) { // the state of CUDA's generators: a seed and an offset
      uint64_t words[2] = {0, 0};
      TORCH_CHECK(
          state.dtype() == c10::kByte && state.is_contiguous() && (state.numel() == 16 || state.numel() == 8),
          "a state has 16 bytes, a seed and an offset");
      std::memcpy(words, state.data(), size_t(state.numel()));
      state_->host.set_current_seed(words[0]);
      return begin(words[1]);
    }
    state_->host.unsafeGetGeneratorImpl()->set_state(state);
  }

  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    settle();
    if (philox) {
      uint64_t words[2] = {current_seed(), get_offset()};
      at::Tensor state = at::empty({16}, at::kByte);
      std::memcpy(state.mutable_data_ptr(), words, sizeof words);
      return state.getIntrusivePtr();
    }
    return state_->host.unsafeGetGeneratorImpl()->get_state();
  }

  void graphsafe_set_state(const c10::intrusive_ptr<c10::GeneratorImpl>& other) override {
    auto* of = dynamic_cast<Generator*>(other.get());
    TORCH_CHECK(
        of && of->device() == device(), "Expected a '", device(), "' generator device but found '", other->device(),
        "'");
    state_ = of->state_;
  }

  c10::intrusive_ptr<c10::GeneratorImpl> graphsafe_get_state() const override {
    return c10::make_intrusive<Generator>(device().index(), state_);
  }

 private:
  void only_own(chorus_stream stream) const {
    TORCH_CHECK(
        state_->own || !capturing(stream), "of ", name(),
        "'s generators a graph can draw CUDA's numbers only from the device's own");
  }

  // settle waits for work that draws, so that the state is that of the program's order. It leaves a stream's error in
  // the stream.
  void settle() const {
    if (chorus_stream last = state_->last.load()) {
      TORCH_CHECK(!capturing(last), "a generator's state can't be read or set while its draws are being captured");
      Unlocked unlocked;
      (void)lib.stream_await(last, 0);
    }
  }

  Generator* clone_impl() const override {
    settle();
    auto* made = new Generator(device().index(), false, state_->host.clone());
    if (philox)
      made->state_->offset = get_offset();
    return made;
  }

  std::shared_ptr<State> state_;
};

} // namespace

// Early are the seeds that were given before a generator was made.
struct Early {
  std::mutex mutex;
  bool over = false;
  std::array<std::optional<uint64_t>, kMostDevices> seeds;
};

static Early& early() {
  static auto* seeds = new Early;
  return *seeds;
}

bool seed_later(DeviceIndex index, uint64_t seed) {
  Early& e = early();
  std::lock_guard<std::mutex> lock(e.mutex);
  for (DeviceIndex i = 0; !e.over && i < kMostDevices; i++)
    if (index < 0 || index == i)
      e.seeds[i] = seed;
  return !e.over;
}

// early_seed is what a generator that is made now begins with.
static std::optional<uint64_t> early_seed(DeviceIndex index) {
  Early& e = early();
  std::lock_guard<std::mutex> lock(e.mutex);
  e.over = true;
  return e.seeds[index];
}

static std::array<std::atomic<bool>, kMostDevices> generators_made;

const at::Generator& default_generator(DeviceIndex index) {
  static auto* all = new std::array<at::Generator, kMostDevices>;
  static auto* made = new std::array<std::once_flag, kMostDevices>;
  index = in_range(index < 0 ? current() : index);
  std::call_once((*made)[index], [&] {
    (*all)[index] = at::make_generator<Generator>(index, true);
    if (std::optional<uint64_t> seed = early_seed(index))
      (*all)[index].set_current_seed(*seed);
    else
      (*all)[index].seed();
    generators_made[index] = true;
  });
  return (*all)[index];
}

at::Generator new_generator(DeviceIndex index) {
  return at::make_generator<Generator>(in_range(index < 0 ? current() : index), false);
}

void use_philox(bool on) {
  philox = on;
  for (DeviceIndex i = 0; i < kMostDevices; i++)
    if (generators_made[i])
      default_generator(i).get<Generator>()->begin(0);
}

// generator_for is a given generator, which must be of the device, or the device's own.
static const at::Generator& generator_for(const std::optional<at::Generator>& given, DeviceIndex index) {
  if (!given.has_value())
    return default_generator(index);
  TORCH_CHECK(
      given->device() == c10::Device(kType, index), "Expected a '", c10::Device(kType, index),
      "' generator device but found '", given->device(), "'");
  return *given;
}

bool uses_philox() {
  return philox;
}

chorus_draw take_numbers(const std::optional<at::Generator>& generator, DeviceIndex index, uint64_t words) {
  return generator_for(generator, index).get<Generator>()->take(current_handle(index), words);
}

void draw(const at::Tensor& self, chorus_random r, const std::optional<at::Generator>& generator) {
  DeviceIndex index = self.device().index();
  const at::Generator& g = generator_for(generator, index);
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
  auto* g = generator.get<Generator>();
  return philox ? g->derived() : g->host();
}

} // namespace chorus
