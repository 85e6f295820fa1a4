// torch.accelerator.Graph over the library's graphs, in PyTorch versions that have it.
#include "runtime/graph.h"

#if __has_include(<ATen/core/GraphImplInterface.h>)

#include <algorithm>
#include <atomic>
#include <cctype>

#include <ATen/core/GraphImplInterface.h>

#include "native/index_errors.h"
#include "runtime/generator.h"
#include "runtime/stream.h"

namespace chorus {

namespace {

std::atomic<int> captures{0}; // under way

class Graph final : public at::GraphImplInterface {
 public:
  explicit Graph(const at::GraphImplArgs&) {}
  ~Graph() override {
    if (stream_) {
      Locked locked;
      lib.graph_end(stream_, nullptr);
      captures--;
    }
    if (graph_)
      lib.graph_release(graph_);
  }

  void capture_begin(at::MempoolId_t pool, at::GraphCaptureMode) override {
    TORCH_CHECK(!stream_ && !graph_, "this graph has been captured; reset() makes it a new one");
    index_ = current();
    default_generator(index_); // captures draw from it, so it must exist before
    chorus_stream stream = current_handle(index_);
    uint64_t id[2] = {pool.first, pool.second};
    Locked locked;
    check(pool == at::MempoolId_t{} ? lib.graph_begin(stream) : lib.graph_begin_in(stream, id));
    stream_ = stream;
    captures++;
  }

  void capture_end() override {
    TORCH_CHECK(stream_, "this graph is not being captured");
    chorus_stream stream = stream_;
    stream_ = 0;
    Locked locked;
    captures--;
    check(lib.graph_end(stream, &graph_));
  }

  void instantiate() override {
    captured(); // the end of the capture has made it ready
  }

  void replay() override {
    Current scope(index_);
    chorus_stream stream = current_handle(index_);
    draws(default_generator(index_), stream);
    check(lib.graph_replay(captured(), stream));
    replayed(index_, stream);
  }

  void reset() override {
    TORCH_CHECK(!stream_, "this graph is being captured");
    if (chorus_graph graph = graph_) {
      graph_ = 0;
      check(lib.graph_release(graph));
    }
  }

  at::MempoolId_t pool() const override {
    uint64_t id[2];
    check(lib.graph_pool(captured(), id));
    return {id[0], id[1]};
  }

  void enable_debug_mode() override {} // every graph can be drawn

  void debug_dump(const std::string& path) override {
    check(lib.graph_dump(captured(), path.c_str()));
  }

 private:
  chorus_graph captured() const {
    TORCH_CHECK(graph_, "this graph has not been captured");
    return graph_;
  }

  DeviceIndex index_ = 0;
  chorus_stream stream_ = 0; // the stream being captured
  chorus_graph graph_ = 0;
};

} // namespace

bool captures_graph() {
  return captures > 0;
}

void register_graph() {
  std::string key = name(); // PyTorch looks the name up in capitals
  std::transform(key.begin(), key.end(), key.begin(), ::toupper);
  at::GraphImplRegistry()->Register(
      key, [](const at::GraphImplArgs& args) -> std::unique_ptr<at::GraphImplInterface> {
        return std::make_unique<Graph>(args);
      });
}

} // namespace chorus

#else

namespace chorus {

bool captures_graph() {
  return false;
}

void register_graph() {}

} // namespace chorus

#endif
