// The library libchorus.so. The process has one: the instance that the package chorus has loaded.
#pragma once

#include <string>
#include <vector>

#include "chorus.h"

namespace chorus {

// The functions of the C ABI that this extension calls.
#define CHORUS_FUNCTIONS(X)                                                                                      \
  X(abi_version) X(last_error) X(reply_error) X(alloc) X(free) X(device_count) X(device_open) X(device_get)      \
  X(device_await) X(device_memory_stats) X(device_reset_peak_stats) X(device_reset_accumulated_stats)            \
  X(device_peer_capable) X(device_host_stats) X(device_reset_peak_host_stats)                                    \
  X(device_reset_accumulated_host_stats) X(device_empty_host_cache) X(cache_alloc) X(cache_free) X(cache_uses)   \
  X(cache_empty) X(cache_came) X(site) X(attributes_of) X(view)                                                  \
  X(pin) X(unpin) X(stream_default) X(stream_pooled) X(stream_of) X(stream_set_current) X(stream_get)            \
  X(stream_query) X(stream_await) X(stream_enter) X(stream_turn) X(stream_leave) X(stream_task) X(stream_copy)   \
  X(stream_wait_event) X(stream_wait_stream) X(event_create) X(event_record) X(event_release) X(event_query)     \
  X(event_await) X(event_elapsed) X(event_get) X(graph_begin) X(graph_begin_in) X(graph_end) X(graph_replay)     \
  X(graph_release) X(graph_pool) X(graph_dump) X(stream_recover) X(device_set_fraction) X(device_record_history) \
  X(device_snapshot) X(pool_new) X(pool_begin) X(pool_end) X(pool_release) X(memory_handle) X(memory_open)       \
  X(memory_close) X(profile_start) X(profile_stop) X(profile_range) X(profile_write) X(stream_create)            \
  X(stream_random) X(random_set) X(random_get) X(random_take) X(stream_adopt) X(stream_native) X(stream_release) \
  X(kernel_find) X(kernel_run) X(kernel_get) X(tune_set) X(tune_add) X(tune_results)                             \
  X(set_host) X(compile_apart) X(stream_synchronize) X(device_synchronize) X(event_synchronize)                  \
  X(transform_run) X(transform_get) X(transform_plans) X(solve_run) X(solve_get) X(product_handle)

// Function is one of them. Its pointer is read at the call, after the arguments were evaluated: an argument may be a
// device, whose first use loads the library.
template <typename F>
struct Function;
template <typename R, typename... A>
struct Function<R (*)(A...)> {
  R (*at)(A...) = nullptr;
  R operator()(A... arguments) const {
    return at(arguments...);
  }
};

struct Library {
#define X(name) Function<decltype(&::chorus_##name)> name;
  CHORUS_FUNCTIONS(X)
#undef X
};

extern Library lib;

// load finds the functions in the library at a path, and makes Python its host. Signal handlers run in the given
// thread. The command's process compiles kernels, if it isn't empty.
void load(const std::string& path, uint64_t signals, const std::vector<std::string>& command);

// raise throws the error of this thread's last call; out of memory is torch.OutOfMemoryError.
[[noreturn]] void raise(chorus_status status);

inline void check(chorus_status status) {
  if (__builtin_expect(status != CHORUS_OK, 0))
    raise(status);
}

// ready says whether a status is that of something finished, not of something pending; it throws an error.
inline bool ready(chorus_status status) {
  if (status == CHORUS_PENDING)
    return false;
  check(status);
  return true;
}

} // namespace chorus
