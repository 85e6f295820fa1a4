// Where a Python program has made an allocation, for snapshots of the memory.
#pragma once

#include "block.h"

namespace chorus {

// record_callers says whether that is told from now on.
void record_callers(bool wanted);

// tell_callers tells it of a new block, if it's wanted. It takes Python's lock then.
void tell_callers(const Block& block);

} // namespace chorus
