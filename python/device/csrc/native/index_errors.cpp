#include "native/index_errors.h"

#include <atomic>
#include <cstring>
#include <mutex>
#include <unordered_set>

#include <ATen/record_function.h>
#include <torch/csrc/autograd/function.h>

#include "memory/block.h"
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
    if (!made_.load(std::memory_order_acquire))
      make(index);
    std::lock_guard<std::mutex> lock(mutex_);
    for (size_t i = 0; i < used_.size(); i++)
      if (used_[i].thread == thread && used_[i].op == &op)
        return at(i);
    if (used_.size() < kMost) {
      used_.push_back({thread, &op});
      return at(used_.size() - 1);
    }
    for (size_t tries = 0; tries < kMost && lives(used_[next_].thread); tries++)
      next_ = (next_ + 1) % kMost;
    size_t i = std::exchange(next_, (next_ + 1) % kMost); // of a thread that has ended, if there is one
    used_[i] = {thread, &op};
    view()[i] = 0;
    return at(i);
  }

  // take clears the words that kernels of a thread have set, or of one that has ended, and returns the operator of the
  // first; NULL: there's none. An operator may have set several, by the kernels that it's made of.
  const c10::OperatorName* take(ThreadID thread) {
    std::lock_guard<std::mutex> lock(mutex_);
    const c10::OperatorName* first = nullptr;
    for (size_t i = 0; i < used_.size(); i++) {
      ThreadID of = used_[i].thread;
      if (view()[i] == 0 || (of != thread && lives(of)))
        continue;
      view()[i] = 0;
      if (!first)
        first = used_[i].op;
    }
    return first;
  }

 private:
  static constexpr size_t kMost = 1024;
  struct Use {
    ThreadID thread;
    const c10::OperatorName* op; // the dispatcher's, which an operator of PyTorch's keeps
  };

  // make waits for a stream, so that it holds no lock: others have the stream's turn while they take the lock.
  void make(DeviceIndex index) {
    Block* made = new_block(index, device(index).default_stream, kMost * sizeof(int32_t));
    {
      Unlocked unlocked; // earlier work of the stream may still use the memory
      (void)lib.stream_await(device(index).default_stream, 0);
    }
    std::memset(made->view, 0, kMost * sizeof(int32_t));
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
    return block_->memory + i * sizeof(int32_t);
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
  return device(call.index).views ? bad_words(call.index).word(call.index, call.op) : nullptr;
}

void check_indexes(DeviceIndex index, bool of_call) {
  const c10::OperatorName* op = bad_words(index).take(of_call ? caller() : at::RecordFunction::currentThreadId());
  TORCH_CHECK_INDEX(
      !op, "index out of range in ", op->name, " on ", c10::Device(kType, index),
      ": it read 0 there, or wrote nothing",
      device(index).blocking ? "" : ". The call was an earlier one: CHORUS_DEVICE_BLOCKING=true raises the error there");
}

} // namespace chorus
