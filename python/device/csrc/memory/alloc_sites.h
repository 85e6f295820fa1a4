// The call sites of allocations in Python programs, for snapshots of the memory.
#pragma once

#include "memory/block.h"

namespace chorus {

// record_alloc_sites turns recording on or off.
void record_alloc_sites(bool wanted);

// AllocSites records the program's call site, if recording is on, for the blocks that its thread allocates in a scope.
// A nested one does nothing. It takes the GIL, whose holder may wait for streams, so it must be made before a stream is
// entered.
class AllocSites {
 public:
  AllocSites();
  ~AllocSites();
  AllocSites(const AllocSites&) = delete;
  AllocSites& operator=(const AllocSites&) = delete;

 private:
  bool outermost_ = false;
};

// report_alloc_site passes the call site to the library for a new block, within such a scope.
void report_alloc_site(const Block& block);

} // namespace chorus
