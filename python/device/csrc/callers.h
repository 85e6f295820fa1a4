// Where a Python program has made an allocation, for snapshots of the memory.
#pragma once

#include "block.h"

namespace chorus {

// record_callers says whether that is told from now on.
void record_callers(bool wanted);

// Callers looks where the program is, if that is wanted, for the blocks that its thread makes in a scope; one within
// another has nothing to do. It takes Python's lock, whose holder may wait for streams: so it's made before one is
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

// tell_callers tells it of a new block, within such a scope.
void tell_callers(const Block& block);

} // namespace chorus
