#include "runtime/profiler.h"

#include <chrono>

#include <sys/syscall.h>
#include <unistd.h>

#include <torch/csrc/profiler/orchestration/observer.h>
#include <torch/csrc/profiler/standalone/privateuse1_observer.h>
#include <torch/csrc/profiler/stubs/base.h>
#include <torch/csrc/profiler/util.h>

#include "runtime/event.h"
#include "runtime/runtime.h"
#include "runtime/stream.h"

#if __has_include(<kineto/libkineto.h>)
#include <algorithm>
#include <map>
#include <mutex>

#include <kineto/libkineto.h>
#include <kineto/output_base.h>
#endif

namespace chorus {

namespace {

template <typename Time>
int64_t nanoseconds(Time t) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(t.time_since_epoch()).count();
}

int64_t now() {
  return nanoseconds(std::chrono::system_clock::now());
}

int32_t thread() {
  static thread_local int32_t id = int32_t(syscall(SYS_gettid));
  return id;
}

// Open is a range of a thread that isn't over.
struct Open {
  std::string name;
  int64_t start;
};
thread_local std::vector<Open> open_ranges;

// Stubs serve the profiler that records an event before and after each operator, and ranges in the devices' own
// profile.
class Stubs final : public torch::profiler::impl::ProfilerStubs {
  using Event = torch::profiler::impl::ProfilerVoidEventStub;

 public:
  void record(DeviceIndex* index, Event* event, int64_t* ns) const override {
    DeviceIndex here = current();
    if (index)
      *index = here;
    void* made = nullptr;
    chorus::record(&made, current_stream(here), here, /*timing=*/true);
    *event = Event(made, [](void* e) { destroy(e); });
    if (ns)
      *ns = nanoseconds(std::chrono::steady_clock::now());
  }

  float elapsed(const Event* start, const Event* end) const override {
    chorus::synchronize(start->get());
    chorus::synchronize(end->get());
    return float(chorus::elapsed(start->get(), end->get()) * 1000);
  }

  void onEachDevice(std::function<void(int)> f) const override {
    for (DeviceIndex i = 0; i < count(); i++) {
      Current scope(i);
      f(i);
    }
  }

  void synchronize() const override {
    await_device(current());
  }

  bool enabled() const override {
    return true;
  }
  void mark(const char* name) const override {
    int64_t at = now();
    check(lib.profile_range(driver().c_str(), name, thread(), at, at));
  }
  void rangePush(const char* name) const override {
    open_ranges.push_back({name, now()});
  }
  void rangePop() const override {
    if (open_ranges.empty())
      return;
    Open range = std::move(open_ranges.back());
    open_ranges.pop_back();
    check(lib.profile_range(driver().c_str(), range.name.c_str(), thread(), range.start, now()));
  }
};

// Ranges is torch.autograd.profiler in its state PRIVATEUSE1: each operator is a range.
class Ranges final : public torch::profiler::impl::ProfilerStateBase {
 public:
  using ProfilerStateBase::ProfilerStateBase;

  torch::profiler::impl::ActiveProfilerType profilerType() override {
    return torch::profiler::impl::ActiveProfilerType::PRIVATEUSE1;
  }

  void reportMemoryUsage(void*, int64_t, size_t, size_t, c10::Device) override {}
};

std::unique_ptr<at::ObserverContext> begin_range(const at::RecordFunction& f) {
  std::string name = f.name();
  if (f.seqNr() >= 0)
    name += ", seq = " + std::to_string(f.seqNr());
  if (torch::profiler::impl::getProfilerConfig().report_input_shapes)
    name += ", sizes = " + torch::profiler::impl::shapesToStr(torch::profiler::impl::inputSizes(f, true));
  torch::profiler::impl::privateuse1Stubs()->rangePush(name.c_str());
  return nullptr;
}

void end_range(const at::RecordFunction&, at::ObserverContext*) {
  torch::profiler::impl::privateuse1Stubs()->rangePop();
}

void push_ranges(
    const torch::profiler::impl::ProfilerConfig& config, const std::unordered_set<at::RecordScope>& scopes) {
  need_library();
  auto state = std::make_shared<Ranges>(config);
  Ranges* kept = state.get();
  c10::ThreadLocalDebugInfo::_push(c10::DebugInfoKind::PROFILER_STATE, std::move(state));
  kept->setCallbackHandle(at::addThreadLocalCallback(
      at::RecordFunctionCallback(&begin_range, &end_range).needsInputs(config.report_input_shapes).scopes(scopes)));
}

#if __has_include(<kineto/libkineto.h>)

namespace kineto = libkineto;
using Kind = kineto::ActivityType;

const std::set<Kind>& kinds() {
  static const std::set<Kind> all = {
      Kind::CONCURRENT_KERNEL, Kind::GPU_MEMCPY, Kind::GPU_MEMSET, Kind::PRIVATEUSE1_RUNTIME};
  return all;
}

struct Activity {
  chorus_activity told;
  std::string name;
};

// Session is a trace of torch.profiler: the devices' work, and the PyTorch operators that issued it.
class Session final : public kineto::IActivityProfilerSession {
 public:
  explicit Session(std::set<Kind> wanted) : wanted_(std::move(wanted)) {}

  ~Session() override {
    stop();
  }

  void start() override {
    if (lib.profile_start(driver().c_str()) == CHORUS_OK) {
      running_ = true;
    } else {
      errors_.push_back(lib.last_error()->message);
      TORCH_WARN("the profile has nothing of ", name(), ": ", errors_.back());
    }
    status_ = running_ ? kineto::TraceStatus::RECORDING : kineto::TraceStatus::ERROR;
  }

  void stop() override {
    if (!running_)
      return;
    running_ = false;
    auto keep = [](void* self, const chorus_activity* a) {
      static_cast<Session*>(self)->activities_.push_back({*a, a->name});
    };
    if (lib.profile_stop(driver().c_str(), keep, this) != CHORUS_OK)
      errors_.push_back(lib.last_error()->message);
    status_ = kineto::TraceStatus::PROCESSING;
  }

  std::vector<std::string> errors() override {
    return errors_;
  }

  // The begin and the end of a PyTorch operator.
  void pushCorrelationId(uint64_t id) override {
    std::lock_guard<std::mutex> lock(mutex_);
    open_[thread()].push_back(asked_.size());
    asked_.push_back({id, now(), INT64_MAX, thread()});
  }
  void popCorrelationId() override {
    std::lock_guard<std::mutex> lock(mutex_);
    auto& mine = open_[thread()];
    if (mine.empty())
      return;
    asked_[mine.back()].end = now();
    mine.pop_back();
  }

  void processTrace(kineto::ActivityLogger& logger) override {
    processTrace(logger, [](int32_t) { return nullptr; }, 0, INT64_MAX);
  }

  void processTrace(
      kineto::ActivityLogger& logger, kineto::getLinkedActivityCallback linked, int64_t from, int64_t to) override {
    buffer_ = std::make_unique<kineto::CpuTraceBuffer>();
    buffer_->span = kineto::TraceSpan(from, to, name());
    std::map<uint64_t, const Asked*> askers; // by the correlation number of a call and its work
    for (const Activity& a : activities_)
      if (a.told.kind == 7)
        if (const Asked* asked = asker(a.told.start_ns))
          askers[a.told.correlation] = asked;
    for (const Activity& a : activities_) {
      Kind kind = kind_of(a.told.kind);
      if (!wanted_.count(kind) || a.told.end_ns < from || a.told.start_ns > to)
        continue;
      bool call = kind == Kind::PRIVATEUSE1_RUNTIME; // a call on a thread of the host
      auto found = askers.find(a.told.correlation);
      const Asked* asked = found == askers.end() ? nullptr : found->second;
      buffer_->emplace_activity(buffer_->span, kind, call ? "launch " + a.name : a.name);
      kineto::GenericTraceActivity& made = *buffer_->activities.back();
      made.startTime = a.told.start_ns;
      made.endTime = a.told.end_ns;
      made.id = int32_t(a.told.correlation);
      made.device = call ? int32_t(getpid()) : a.told.device;
      made.resource = !call ? stream_of(a) : asked ? asked->thread : int32_t(getpid());
      made.threadId = made.resource;
      made.flow.id = uint32_t(a.told.correlation);
      made.flow.type = kineto::kLinkAsyncCpuGpu;
      made.flow.start = call;
      if (asked)
        made.linked = linked(int32_t(asked->id));
      made.addMetadata("stream", stream_of(a));
      made.addMetadata("device", a.told.device);
      made.addMetadata("correlation", made.id);
      if (a.told.bytes > 0)
        made.addMetadata("bytes", a.told.bytes);
      made.log(logger);
    }
  }

  std::unique_ptr<kineto::DeviceInfo> getDeviceInfo() override {
    return nullptr;
  }

  std::vector<kineto::ResourceInfo> getResourceInfos() override {
    std::map<std::pair<int, int>, bool> streams;
    for (const Activity& a : activities_)
      streams[{a.told.device, stream_of(a)}] = true;
    std::vector<kineto::ResourceInfo> all;
    for (const auto& [key, _] : streams)
      all.push_back({key.second, key.second, key.first, "stream " + std::to_string(key.second)});
    return all;
  }

  std::unique_ptr<kineto::CpuTraceBuffer> getTraceBuffer() override {
    return std::move(buffer_);
  }

 private:
  // Asked is the time in which a PyTorch operator ran on the host.
  struct Asked {
    uint64_t id;
    int64_t begin, end;
    int32_t thread;
  };

  static int stream_of(const Activity& a) {
    return a.told.stream == kDefaultID ? 0 : int(a.told.stream);
  }

  static Kind kind_of(int kind) {
    switch (kind) {
      case 1:
        return Kind::GPU_MEMCPY;
      case 2:
        return Kind::GPU_MEMSET;
      case 0:
      case 3:
      case 6:
        return Kind::CONCURRENT_KERNEL;
      case 7:
        return Kind::PRIVATEUSE1_RUNTIME;
    }
    return Kind::ENUM_COUNT; // waits and records, which take no device time
  }

  // asker is the innermost operator that ran at a time; NULL if operators of several threads ran.
  const Asked* asker(int64_t at) const {
    const Asked* found = nullptr;
    for (const Asked& a : asked_) {
      if (a.begin > at || a.end < at)
        continue;
      if (found && found->thread != a.thread)
        return nullptr;
      if (!found || a.begin >= found->begin)
        found = &a;
    }
    return found;
  }

  std::set<Kind> wanted_;
  bool running_ = false;
  std::vector<std::string> errors_;
  std::vector<Activity> activities_;
  std::mutex mutex_;
  std::vector<Asked> asked_;
  std::map<int32_t, std::vector<size_t>> open_;
  std::unique_ptr<kineto::CpuTraceBuffer> buffer_;
};

// Profiler makes sessions.
class Profiler final : public kineto::IActivityProfiler {
 public:
  const std::string& name() const override {
    return chorus::name();
  }

  const std::set<Kind>& availableActivities() const override {
    return kinds();
  }

  std::unique_ptr<kineto::IActivityProfilerSession> configure(
      const std::set<Kind>& wanted, const kineto::Config&) override {
    std::set<Kind> mine;
    std::set_intersection(
        wanted.begin(), wanted.end(), kinds().begin(), kinds().end(), std::inserter(mine, mine.begin()));
    if (!mine.count(Kind::CONCURRENT_KERNEL) || count() == 0)
      return nullptr;
    return std::make_unique<Session>(std::move(mine));
  }

  std::unique_ptr<kineto::IActivityProfilerSession> configure(
      int64_t, int64_t, const std::set<Kind>& wanted, const kineto::Config& config) override {
    return configure(wanted, config);
  }
};

#endif

} // namespace

void register_profiler() {
  torch::profiler::impl::registerPrivateUse1Methods(new Stubs);
  torch::profiler::impl::pushPRIVATEUSE1CallbacksStub.set_privateuse1_dispatch_ptr(&push_ranges);
#if __has_include(<kineto/libkineto.h>)
  kineto::api().registerProfilerFactory([] { return std::make_unique<Profiler>(); });
#endif
}

} // namespace chorus
