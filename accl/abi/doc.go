// Package abi is what an offload engine of ACCL and its callers have agreed upon: the words of a call, the exchange
// memory, the header of messages, and the bits of an error.
//
//	w := abi.Call{Scenario: abi.Bcast, Count: 16, Comm: 0x1c8, Root: 1, ArithConfig: cfg, Addr: [3]uint64{buf}}.Words()
//
// Names are those of the engine's firmware and of its C++ driver. All words are 32 bits, little endian where they are
// bytes.
//
// Invariants: nothing here does anything; what is parsed may be any bytes, and a value out of range is an error, or
// left to the engine, which answers with a [Status].
package abi
