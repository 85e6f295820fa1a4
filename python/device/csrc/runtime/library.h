// The library libchorus.so. The process has one: the instance that the package chorus has loaded.
#pragma once

#include <string>
#include <vector>

#include "chorus.h"
#include "runtime/functions.h"

namespace chorus {

// Function is one of CHORUS_FUNCTIONS. Its pointer is read at the call, after the arguments were evaluated: an argument may be a
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
