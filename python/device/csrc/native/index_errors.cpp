#include "native/index_errors.h"

#include <atomic>
#include <cstring>
#include <mutex>
#include <unordered_set>

#include <ATen/record_function.h>
#include <torch/csrc/autograd/function.h>

#include "memory/block.h"
#include "memory/staging.h"
#include "runtime/stream.h"

namespace chorus {

namespace {

using ThreadID = uint64_t; // PyTorch's

// The threads of the program that have called operators with indexes, and not those of autograd.
std::mutex threads_mutex;
std::unordered_set<ThreadID>& threads() {
  static auto* all = new std::unordered_set<ThreadID>;
  return *all;
}

bool lives(ThreadID thread) {
  std::lock_guard<std::mutex> lock(threads_mutex);
  return threads().count(thread) > 0;
}

// Here is the calling thread, until it ends.
struct Here {
  const ThreadID id = at::RecordFunction::currentThreadId();

  Here() {
    std::lock_guard<std::mutex> lock(threads_mutex);
    threads().insert(id);
  }
  ~Here() {
    std::lock_guard<std::mutex> lock(threads_mutex);
    threads().erase(id);
  }
};

// caller is the thread whose operator this is.
ThreadID caller() {
  if (auto node = torch::autograd::get_current_node())
    return node->thread_id();
  thread_local Here here;
  return here.id;
}

// BadWords are the words of a device. They are the device's as long as the process lives.
class BadWords {
 public:
  void* word(DeviceIndex index, const c10::OperatorName& op) {
    ThreadID thread = caller();
    chorus_stream stream = current_handle(index);
    if (!made_.load(std::memory_order_acquire))
      make(index);
    bool replayed = !block_->view && capturing(stream);
    std::lock_guard<std::mutex> lock(mutex_);
    size_t i = place(thread, &op, stream);
    if (!block_->view)
      used_[i].by(stream, replayed);
    return at(i);
  }

  // take clears the words that kernels of a thread have set, or of one that has ended, and returns the operator of the
  // first; NULL: there's none. An operator may have set several, by the kernels that it's made of.
  const c10::OperatorName* take(DeviceIndex index, ThreadID thread, chorus_stream awaited) {
    if (!made_.load(std::memory_order_acquire))
      return nullptr;
    if (block_->view) {
      std::lock_guard<std::mutex> lock(mutex_);
      return first_of(thread, used_.size(), view(), [&](size_t i) { view()[i * kStep] = 0; });
    }
    std::vector<int32_t> words;
    std::vector<Use> seen; // others may be added, or take a place, meanwhile
    {
      std::lock_guard<std::mutex> lock(mutex_);
      bool any = false;
      for (Use& use : used_)
        if (use.thread == thread || !lives(use.thread)) // others look at theirs
          any = use.over(awaited) || any;
      if (!any)
        return nullptr;
      seen = used_;
      words.resize(seen.size() * kStep);
    }
    chorus_stream stream = awaited ? awaited : device(index).default_stream;
    stage(index, stream, words.data(), block_->memory, words.size() * sizeof(int32_t)); // with no lock, as it waits
    std::lock_guard<std::mutex> lock(mutex_);
    for (size_t i = 0; i < seen.size(); i++)
      if (used_[i].thread != seen[i].thread || used_[i].op != seen[i].op)
        words[i * kStep] = 0;
    return first_of(thread, seen.size(), words.data(), [&](size_t i) { clear(i, stream); });
  }

 private:
  static constexpr size_t kMost = 1024;
  static constexpr size_t kStep = 64; // aligned as devices want buffers to begin: some refuse other pointers
  static constexpr int32_t kNone = 0; // is copied to the device

  struct Use {
    ThreadID thread;
    const c10::OperatorName* op; // the dispatcher's, which an operator of PyTorch's keeps
    chorus_stream stream = 0;    // whose kernels may set the word; 0: those of several
    bool pending = false;        // they may have done so since the last look
    bool replayed = false;       // graphs have the kernels

    void by(chorus_stream s, bool captured) {
      stream = !pending || stream == s ? s : 0;
      pending = true;
      replayed = replayed || captured;
    }

    // over says whether the word may have been set by what was awaited, 0 being all, and that it's looked at now.
    bool over(chorus_stream awaited) {
      bool may = pending && (!awaited || !stream || stream == awaited || replayed);
      if (may && !replayed && (!awaited || stream == awaited))
        pending = false;
      return may;
    }
  };

  // place is the word of a thread's operator.
  size_t place(ThreadID thread, const c10::OperatorName* op, chorus_stream stream) {
    for (size_t i = 0; i < used_.size(); i++)
      if (used_[i].thread == thread && used_[i].op == op)
        return i;
    if (used_.size() < kMost) {
      used_.push_back({thread, op});
      return used_.size() - 1;
    }
    for (size_t tries = 0; tries < kMost && lives(used_[next_].thread); tries++)
      next_ = (next_ + 1) % kMost;
    size_t i = std::exchange(next_, (next_ + 1) % kMost); // of a thread that has ended, if there is one
    used_[i] = {thread, op};
    if (block_->view)
      view()[i * kStep] = 0;
    else
      clear(i, stream);
    return i;
  }

  // first_of clears those of some words that are set and a thread's, and returns the first one's operator.
  template <typename Words, typename Clear>
  const c10::OperatorName* first_of(ThreadID thread, size_t n, Words words, Clear clear) {
    const c10::OperatorName* first = nullptr;
    for (size_t i = 0; i < n; i++) {
      ThreadID of = used_[i].thread;
      if (words[i * kStep] == 0 || (of != thread && lives(of)))
        continue;
      clear(i);
      if (!first)
        first = used_[i].op;
    }
    return first;
  }

  // clear enqueues the clearing of a word that the process can't touch.
  void clear(size_t i, chorus_stream stream) {
    check(lib.stream_copy(stream, at(i), &kNone, sizeof kNone));
  }

  // make waits for a stream, so that it holds no lock: others have the stream's turn while they take the lock.
  void make(DeviceIndex index) {
    static const int32_t none[kMost * kStep] = {};
    chorus_stream stream = device(index).default_stream;
    Block* made = new_block(index, stream, sizeof none);
    if (made->view) {
      Unlocked unlocked; // earlier work of the stream may still use the memory
      (void)lib.stream_await(stream, 0);
      std::memset(made->view, 0, sizeof none);
    } else {
      stage(index, stream, made->memory, none, sizeof none);
    }
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (!block_)
        block_ = std::exchange(made, nullptr);
      made_.store(true, std::memory_order_release);
    }
    if (made) // another thread was faster
      release(made);
  }
  void* at(size_t i) const {
    return block_->memory + i * kStep * sizeof(int32_t);
  }
  volatile int32_t* view() const {
    return reinterpret_cast<volatile int32_t*>(block_->view);
  }

  std::atomic<bool> made_{false};
  std::mutex mutex_;
  Block* block_ = nullptr;
  std::vector<Use> used_;
  size_t next_ = 0;
};
BadWords& bad_words(DeviceIndex index) {
  static auto* all = new std::array<BadWords, kMostDevices>;
  return (*all)[size_t(index)];
}

} // namespace

void* bad_word(const NativeCall& call) {
  return bad_words(call.index).word(call.index, call.op);
}

void check_indexes(DeviceIndex index, chorus_stream stream, bool of_call) {
  ThreadID thread = of_call ? caller() : at::RecordFunction::currentThreadId();
  const c10::OperatorName* op = bad_words(index).take(index, thread, stream);
  TORCH_CHECK_INDEX(
      !op, "index out of range in ", op->name, " on ", c10::Device(kType, index),
      ": it read 0 there, or wrote nothing",
      device(index).blocking ? "" : ". The call was an earlier one: CHORUS_DEVICE_BLOCKING=true raises the error there");
}

} // namespace chorus
