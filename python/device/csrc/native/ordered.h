// Sums and writes at indexes that have the same bits each time, for programs that use deterministic algorithms. Kernels
// otherwise add numbers in any order, and of those that go to one place any is written last.
#pragma once

#include "native/native.h"

namespace chorus {

// adds_in_order says whether sums and products of a type are computed in the order of their indexes.
bool adds_in_order(c10::ScalarType type);

// Places are the elements of a tensor, as if it had no gaps, to which those of a source go.
struct Places {
  // Index is a tensor of indexes of one of the tensor's dimensions, of the places' sizes or broadcast to them. Negative
  // ones may count from its end.
  struct Index {
    at::Tensor tensor;
    int64_t size, stride;
    bool wraps;
  };

  at::IntArrayRef sizes, strides; // of all; a stride is 0 where an index is
  c10::SmallVector<Index, 2> indexes;
};

// gapless are the strides of a tensor of such sizes that has no gaps, which Places have.
at::DimVector gapless(at::IntArrayRef sizes);

// without_gaps is a tensor as large as another one, in the type of computations, of these strides.
at::Tensor without_gaps(const at::Tensor& out);

// add_in_order adds a source of the places' sizes to out. It returns false if no kernel covers it. bad is the word that's
// set if there's no such place.
bool add_in_order(
    const NativeCall& call, const at::Tensor& out, at::Tensor sums, const Places& places, const at::Tensor& source,
    void* bad);

// writes_in_order says whether elements at equal indexes are written in their order.
bool writes_in_order();

// last_written is a source in which all elements that go to one place are the last of these, so that any order will do.
at::Tensor last_written(const Places& places, const at::Tensor& source);

} // namespace chorus
