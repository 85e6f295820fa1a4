#include "runtime/settings.h"

#include <ATen/Parallel.h>

namespace chorus {

Settings::Settings() : threads_(at::get_num_threads()) {
  std::fegetenv(&floats_);
}

Applied::Applied(const Settings& settings) {
  std::fegetenv(&outer_);
  std::fesetenv(&settings.floats_);
  if (at::get_num_threads() != settings.threads_)
    at::set_num_threads(settings.threads_); // for this thread alone, which uses it for nothing else
}

Applied::~Applied() {
  std::fesetenv(&outer_);
}

} // namespace chorus
