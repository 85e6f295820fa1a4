// Indexes that are out of range, which kernels tell by a word in the device's memory, at which the host looks when it
// waits for the device the next time.
#pragma once

#include "native/native.h"

namespace chorus {

// bad_word is the word that kernels of a call set when they meet an index that's out of range. Each operator of each
// thread has one. In a backward pass the thread is the one of the forward pass.
void* bad_word(const NativeCall& call);
void* bad_word(DeviceIndex index, const c10::OperatorName& op); // which has to stay

// check_indexes throws an IndexError if a kernel of this thread has met such an index, or one of a thread that has
// ended. The caller has waited for a stream's work, or with stream 0 for the device's. If this process can't touch the
// device's memory, it copies the words if kernels have got any that it hasn't seen since they ran. With of_call the thread
// is bad_word's, in a call that has waited for its own work.
void check_indexes(DeviceIndex index, chorus_stream stream, bool of_call = false);

// replayed is called when a stream has got a graph, whose kernels may have such words.
void replayed(DeviceIndex index, chorus_stream stream);

} // namespace chorus
