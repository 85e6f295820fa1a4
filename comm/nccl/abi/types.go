package abi

import (
	"fmt"

	"github.com/chorus-comms/chorus/dtype"
)

// Result is ncclResult_t: what every function returns.
type Result int32

// The results.
const (
	Success Result = iota
	UnhandledCudaError
	SystemError
	InternalError
	InvalidArgument
	InvalidUsage
	RemoteError
	InProgress
	Timeout // 2.30; before, no library returns it
)

var results = [...]string{"ncclSuccess", "ncclUnhandledCudaError", "ncclSystemError", "ncclInternalError",
	"ncclInvalidArgument", "ncclInvalidUsage", "ncclRemoteError", "ncclInProgress", "ncclTimeout"}

func (r Result) String() string {
	if r >= 0 && int(r) < len(results) {
		return results[r]
	}
	return fmt.Sprintf("ncclResult_t(%d)", int32(r))
}

// The library's handles, which say nothing to others.
type (
	Comm   uintptr // ncclComm_t
	Window uintptr // ncclWindow_t
	Stream uintptr // cudaStream_t, hipStream_t
)

// UniqueID is ncclUniqueId: rank 0 gets one, and all ranks of a communicator pass it on.
type UniqueID struct{ Words [16]uint64 }

// DataType is ncclDataType_t.
type DataType int32

// The data types.
const (
	Int8 DataType = iota
	Uint8
	Int32
	Uint32
	Int64
	Uint64
	Float16
	Float32
	Float64
	BFloat16
	Float8E4M3 // 2.24
	Float8E5M2 // 2.24
)

// DataTypes are those of the types that libraries reduce as they are.
var DataTypes = map[dtype.DType]DataType{
	dtype.Int8: Int8, dtype.Uint8: Uint8, dtype.Int32: Int32, dtype.Uint32: Uint32, dtype.Int64: Int64,
	dtype.Uint64: Uint64, dtype.Float16: Float16, dtype.Float32: Float32, dtype.Float64: Float64,
	dtype.BFloat16: BFloat16, dtype.Float8E4M3FN: Float8E4M3, dtype.Float8E5M2: Float8E5M2,
}

// RedOp is ncclRedOp_t: one of those below, or one that CreatePreMulSum has made.
type RedOp int32

// The reductions.
const (
	Sum RedOp = iota
	Prod
	Max
	Min
	Avg
	NumOps // the first number of those that are made
)

// Where the factor of a premultiplied sum is (ncclScalarResidence_t).
const (
	ScalarDevice int32 = iota
	ScalarHostImmediate
)

// SignalWait is ncclWaitSignalDesc_t: what to wait for of a peer.
type SignalWait struct{ Count, Peer, Signal, Context int32 }

// WindowSymmetric is the flag of a window whose memory is alike on all ranks, in size and place.
const WindowSymmetric int32 = 1

// The flags of Shrink, Revoke and Suspend.
const (
	ShrinkDefault int32 = 0 // nothing is under way, or it was revoked
	RevokeDefault int32 = 0
	SuspendMemory int32 = 1
)

// NoColor is the color of a rank that takes part in a split without getting a communicator.
const NoColor int32 = -1

// Version is what ncclGetVersion gives: 22703 is 2.27.3.
type Version int32

// MakeVersion packs a version as libraries do.
func MakeVersion(major, minor, patch int) Version {
	if major <= 2 && minor <= 8 {
		return Version(major*1000 + minor*100 + patch)
	}
	return Version(major*10000 + minor*100 + patch)
}

// String is the version as people write it, "2.27.3".
func (v Version) String() string {
	if v < 10000 {
		return fmt.Sprintf("%d.%d.%d", v/1000, v%1000/100, v%100)
	}
	return fmt.Sprintf("%d.%d.%d", v/10000, v%10000/100, v%100)
}

// ParseVersion reads a version, of which the patch may be missing: "2.27" is the first release of 2.27.
func ParseVersion(s string) (Version, error) {
	var major, minor, patch int
	if _, err := fmt.Sscanf(s+".0", "%d.%d.%d", &major, &minor, &patch); err != nil {
		return 0, fmt.Errorf("%q is no version of NCCL: %w", s, err)
	}
	return MakeVersion(major, minor, patch), nil
}
