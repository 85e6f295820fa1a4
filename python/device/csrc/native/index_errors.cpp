#include "native/index_errors.h"

#include <atomic>
#include <cstring>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include <ATen/record_function.h>
#include <c10/util/ScopeExit.h>
#include <torch/csrc/autograd/function.h>

#include "memory/block.h"
#include "memory/staging.h"
#include "runtime/graph.h"
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

// done says whether a stream has run all that it was given. Of one that was released it isn't known.
bool done(chorus_stream stream) {
  chorus_stream_info info{};
  info.size = sizeof info;
  return lib.stream_get(stream, &info) == CHORUS_OK && !info.capturing && lib.stream_query(stream) == CHORUS_OK;
}

// BadWords are the words of a device, in pieces of memory. These are the device's as long as the process lives.
class BadWords {
 public:
  void* word(DeviceIndex index, const c10::OperatorName& op) {
    ThreadID thread = caller();
    chorus_stream stream = current_handle(index);
    bool untouchable = !device(index).views, captured = untouchable && capturing(stream);
    std::optional<Use> asked; // whose stream is done, if over
    bool over = false;
    while (true) {
      {
        std::lock_guard<std::mutex> lock(mutex_);
        if (size_t i = place(thread, &op); i < used_.size()) {
          Use& use = used_[i];
          bool same = asked && asked->calls == use.calls;
          if (!untouchable || captured || same || !use.of_other(stream)) {
            if (untouchable)
              use.by(stream, captured, same && over);
            return at(i);
          }
          asked = use;
        }
      }
      if (asked)
        over = done(asked->stream); // asked with no lock, as the driver may wait
      else
        grow(index);
    }
  }

  // take clears the words that kernels of a thread have set, or of one that has ended, and returns the operator of the
  // first; NULL: there's none. An operator may have set several, by the kernels that it's made of.
  const c10::OperatorName* take(DeviceIndex index, ThreadID thread, chorus_stream awaited) {
    if (!made_.load(std::memory_order_acquire))
      return nullptr;
    const c10::OperatorName* first = nullptr;
    if (device(index).views) {
      std::lock_guard<std::mutex> lock(mutex_);
      for (size_t i = 0; i < used_.size(); i++)
        if (*view(i) != 0 && of(used_[i], thread)) {
          *view(i) = 0;
          first = first ? first : used_[i].op;
        }
      return first;
    }
    std::vector<std::pair<size_t, Use>> seen;
    std::vector<Block*> pieces;
    std::unordered_map<chorus_stream, bool> over; // streams that are done
    {
      std::lock_guard<std::mutex> lock(mutex_);
      for (size_t i = 0; i < used_.size(); i++)
        if (used_[i].pending && of(used_[i], thread)) {
          seen.push_back({i, used_[i]});
          used_[i].looks++;
          over[used_[i].stream] = !awaited || used_[i].stream == awaited;
        }
      if (seen.empty())
        return nullptr;
      pieces = pieces_;
    }
    auto end = c10::make_scope_exit([&] {
      std::lock_guard<std::mutex> lock(mutex_);
      for (auto& [i, use] : seen)
        used_[i].looks--;
    });
    // With no lock, as it waits. The copy has all that streams which are done have set.
    for (auto& [other, is] : over)
      is = is || (other && done(other));
    chorus_stream stream = awaited ? awaited : device(index).default_stream;
    std::vector<int32_t> words(pieces.size() * kPiece * kStep);
    for (size_t k = 0; k < pieces.size(); k++)
      stage(index, stream, &words[k * kPiece * kStep], pieces[k]->memory, kPiece * kStep * sizeof(int32_t));
    // A word is 0 again before its error is thrown, and so before a kernel that the program runs after the error.
    for (auto& [i, use] : seen)
      if (words[i * kStep] != 0) {
        stage(index, stream, pieces[i / kPiece]->memory + place_of(i), &kNone, sizeof kNone);
        first = first ? first : use.op;
      }
    std::lock_guard<std::mutex> lock(mutex_);
    for (auto& [i, use] : seen)
      if (over[use.stream] && used_[i].calls == use.calls)
        used_[i].pending = used_[i].untold;
    return first;
  }

  // replayed says that a stream has kernels of a graph, of which it isn't known which words they set.
  void replayed(chorus_stream stream) {
    if (!made_.load(std::memory_order_acquire))
      return;
    std::lock_guard<std::mutex> lock(mutex_);
    for (Use& use : used_)
      if (use.captured)
        use.by(stream, false, false);
  }

 private:
  static constexpr size_t kStep = 64;   // aligned as devices want buffers to begin: some refuse other pointers
  static constexpr size_t kPiece = 32;  // words, each of the first 4 bytes of a step
  static constexpr int32_t kNone = 0; // is copied to the device

  struct Use {
    ThreadID thread;
    const c10::OperatorName* op; // the dispatcher's, which an operator of PyTorch's keeps
    chorus_stream stream = 0;    // whose kernels may set the word; 0: those of several
    bool pending = false;        // they may have done so since the last look
    bool captured = false;       // graphs have such kernels
    bool untold = false;         // graphs of others, whose replays aren't told
    uint64_t calls = 0;          // with the word
    int looks = 0;               // under way, until which it's this thread's

    // of_other says that another stream's kernels may have set the word.
    bool of_other(chorus_stream s) const {
      return pending && stream && stream != s;
    }

    // by notes a kernel of a stream; over says that the earlier ones, of another stream, are done.
    void by(chorus_stream s, bool capture, bool over) {
      calls++;
      if (capture) {
        captured = true;
        if (captures_graph())
          return;
        untold = true;
      }
      stream = untold || (pending && stream != s && !over) ? 0 : s;
      pending = true;
    }
  };

  // of says that a thread looks at a word: its own, or that of one that has ended.
  static bool of(const Use& use, ThreadID thread) {
    return use.thread == thread || !lives(use.thread);
  }

  // place is the word of a thread's operator; past the end: there's no memory for it. A thread's is another's when the
  // thread has ended, and its word has been looked at.
  size_t place(ThreadID thread, const c10::OperatorName* op) {
    for (size_t i = 0; i < used_.size(); i++)
      if (used_[i].thread == thread && used_[i].op == op)
        return i;
    if (used_.size() == pieces_.size() * kPiece) {
      for (size_t i = 0; i < used_.size(); i++)
        if (!lives(used_[i].thread) && !used_[i].pending && !used_[i].captured && used_[i].looks == 0 &&
            !(pieces_[0]->view && *view(i))) {
          used_[i] = {.thread = thread, .op = op};
          return i;
        }
      return used_.size();
    }
    used_.push_back({.thread = thread, .op = op});
    return used_.size() - 1;
  }

  // grow makes a piece. It waits for a stream, so it holds no lock: others have the stream's turn while they take it.
  void grow(DeviceIndex index) {
    static const int32_t none[kPiece * kStep] = {};
    chorus_stream stream = device(index).default_stream;
    Block* made = new_block(index, stream, sizeof none);
    if (made->view) {
      Unlocked unlocked; // earlier work of the stream may still use the memory
      (void)lib.stream_await(stream, 0);
      std::memset(made->view, 0, sizeof none);
    } else {
      stage(index, stream, made->memory, none, sizeof none);
    }
    std::lock_guard<std::mutex> lock(mutex_);
    pieces_.push_back(made);
    made_.store(true, std::memory_order_release);
  }
  // place_of is where a word lies in its piece, in bytes.
  static size_t place_of(size_t i) {
    return i % kPiece * kStep * sizeof(int32_t);
  }
  void* at(size_t i) const {
    return pieces_[i / kPiece]->memory + place_of(i);
  }
  volatile int32_t* view(size_t i) const {
    return reinterpret_cast<volatile int32_t*>(pieces_[i / kPiece]->view + place_of(i));
  }

  std::atomic<bool> made_{false};
  std::mutex mutex_;
  std::vector<Block*> pieces_;
  std::vector<Use> used_;
};
BadWords& bad_words(DeviceIndex index) {
  static auto* all = new std::array<BadWords, kMostDevices>;
  return (*all)[size_t(index)];
}

} // namespace

void replayed(DeviceIndex index, chorus_stream stream) {
  if (!device(index).views)
    bad_words(index).replayed(stream);
}

void* bad_word(DeviceIndex index, const c10::OperatorName& op) {
  return bad_words(index).word(index, op);
}

void* bad_word(const NativeCall& call) {
  return bad_word(call.index, call.op);
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
