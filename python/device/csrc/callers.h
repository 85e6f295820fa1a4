// The call sites of allocations in Python programs, for snapshots of the memory.
#pragma once

#include "block.h"

namespace chorus {

// record_callers turns recording on or off.
void record_callers(bool wanted);

// Callers records the program's call site, if recording is on, for the blocks that its thread allocates in a scope. A
// nested one does nothing. It takes the GIL, whose holder may wait for streams, so it must be made before a stream is
// entered.
class Callers {
 public:
  Callers();
  ~Callers();
  Callers(const Callers&) = delete;
  Callers& operator=(const Callers&) = delete;

 private:
  bool outermost_ = false;
};

// tell_callers passes the call site to the library for a new block, within such a scope.
void tell_callers(const Block& block);

} // namespace chorus
