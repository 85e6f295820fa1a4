// A thread's settings of PyTorch's CPU kernels: whether subnormal numbers are zero, and the number of threads, on which
// the order of a sum depends. Deferred work of a stream uses its caller's settings.
#pragma once

#include <cfenv>

namespace chorus {

// Settings are the calling thread's at the construction of the object.
class Settings {
 public:
  Settings();

 private:
  friend class Applied;
  std::fenv_t floats_;
  int threads_;
};

// Applied makes settings the calling thread's in a scope.
class Applied {
 public:
  explicit Applied(const Settings& settings);
  ~Applied();
  Applied(const Applied&) = delete;
  Applied& operator=(const Applied&) = delete;

 private:
  std::fenv_t outer_;
};

} // namespace chorus
