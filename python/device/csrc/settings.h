// What a thread has set that PyTorch's CPU kernels compute by: whether numbers below the normal ones are zero, and how
// many threads share the work, on which the order of a sum depends. What a stream does later goes by its caller's settings.
#pragma once

#include <cfenv>

namespace chorus {

// Settings are the calling thread's, as they are when the object is made.
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
