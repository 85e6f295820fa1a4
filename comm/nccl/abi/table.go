package abi

import (
	"reflect"
	"slices"
	"unsafe"
)

// Parameters of several functions: buffers are addresses of device memory, counts are elements.
type (
	// Plain are functions of a communicator alone.
	Plain = func(c Comm) Result
	// Start begins a rank's part of a communicator, with a configuration (see [Pack]).
	Start = func(c *Comm, n int32, id UniqueID, rank int32, config unsafe.Pointer) Result
	// StartPlain does so without one.
	StartPlain = func(c *Comm, n int32, id UniqueID, rank int32) Result
	// Alloc gives memory of the current device.
	Alloc = func(p *uintptr, bytes uint64) Result
	// Register and Expose prepare memory.
	Register = func(c Comm, p uintptr, bytes uint64, handle *uintptr) Result
	Expose   = func(c Comm, p uintptr, bytes uint64, w *Window, flags int32) Result
	// Split makes a communicator of the ranks of one color, in the order of their keys.
	Split = func(c Comm, color, key int32, child *Comm, config unsafe.Pointer) Result
	// Shrink makes a communicator of the ranks that aren't excluded, in their old order. Only these call it.
	Shrink = func(c Comm, exclude *int32, n int32, child *Comm, config unsafe.Pointer, flags int32) Result
	// Grow makes one of n ranks, those of another one and then new ones. The old ones give their communicator and rank
	// -1, one of them the id that CommGetUniqueID has given it; the new ones that id and their rank.
	Grow = func(c Comm, n int32, id *UniqueID, rank int32, child *Comm, config unsafe.Pointer) Result
	// PutSignal writes into a peer's window, so many bytes from its beginning, and adds one to a counter there.
	PutSignal = func(in uintptr, n uint64, dt DataType, peer int32, w Window, offset uint64, signal, ctx int32,
		flags uint32, c Comm, s Stream) Result
	// Signal adds one to a peer's counter, and WaitSignal waits for some that are this rank's, and takes off what it has
	// waited for.
	Signal     = func(peer, signal, ctx int32, flags uint32, c Comm, s Stream) Result
	WaitSignal = func(n int32, waits *SignalWait, c Comm, s Stream) Result
	// Premul makes a reduction that multiplies before it sums.
	Premul = func(op *RedOp, factor unsafe.Pointer, dt DataType, residence int32, c Comm) Result
	// Reducing combines what all ranks have.
	Reducing = func(in, out uintptr, n uint64, dt DataType, op RedOp, c Comm, s Stream) Result
	// ReducingTo does so for one rank.
	ReducingTo = func(in, out uintptr, n uint64, dt DataType, op RedOp, root int32, c Comm, s Stream) Result
	// Moving gives all ranks what all have.
	Moving = func(in, out uintptr, n uint64, dt DataType, c Comm, s Stream) Result
	// Rooted gives to, or takes from, one rank.
	Rooted = func(in, out uintptr, n uint64, dt DataType, root int32, c Comm, s Stream) Result
	// Gate is a function of which only is asked whether it's there.
	Gate = func() Result
	// These take the operation's configuration besides (see [PackOperation]).
	ReducingWith   = func(in, out uintptr, n uint64, dt DataType, op RedOp, c Comm, s Stream, with unsafe.Pointer) Result
	ReducingToWith = func(in, out uintptr, n uint64, dt DataType, op RedOp, root int32, c Comm, s Stream,
		with unsafe.Pointer) Result
	MovingWith = func(in, out uintptr, n uint64, dt DataType, c Comm, s Stream, with unsafe.Pointer) Result
	RootedWith = func(in, out uintptr, n uint64, dt DataType, root int32, c Comm, s Stream, with unsafe.Pointer) Result
	// Message is one end of a message.
	Message = func(p uintptr, n uint64, dt DataType, peer int32, c Comm, s Stream) Result
)

// Table is a library's functions, called as in its header without the prefix. The tags are those of package
// internal/dl.
type Table struct {
	GetVersion     func(v *int32) Result          `dl:"ncclGetVersion"`
	GetUniqueID    func(id *UniqueID) Result      `dl:"ncclGetUniqueId"`
	GetErrorString func(r Result) string          `dl:"ncclGetErrorString"`
	GetLastError   func(c Comm) string            `dl:"ncclGetLastError" cap:"last errors" since:"2.13"`
	GetAsyncError  func(c Comm, r *Result) Result `dl:"ncclCommGetAsyncError"`

	CommInitRank       StartPlain `dl:"ncclCommInitRank"`
	CommInitRankConfig Start      `dl:"ncclCommInitRankConfig" cap:"configurations" since:"2.14"`
	CommFinalize       Plain      `dl:"ncclCommFinalize" cap:"finalize" since:"2.14"`
	CommDestroy        Plain      `dl:"ncclCommDestroy"`
	CommAbort          Plain      `dl:"ncclCommAbort"`
	CommSplit          Split      `dl:"ncclCommSplit" cap:"split" since:"2.18"`

	GroupStart func() Result `dl:"ncclGroupStart"`
	GroupEnd   func() Result `dl:"ncclGroupEnd"`

	RedOpCreatePreMulSum Premul                        `dl:"ncclRedOpCreatePreMulSum"`
	RedOpDestroy         func(op RedOp, c Comm) Result `dl:"ncclRedOpDestroy"`

	AllReduce     Reducing   `dl:"ncclAllReduce"`
	Reduce        ReducingTo `dl:"ncclReduce"`
	ReduceScatter Reducing   `dl:"ncclReduceScatter"`
	Broadcast     Rooted     `dl:"ncclBroadcast"`
	AllGather     Moving     `dl:"ncclAllGather"`
	Send          Message    `dl:"ncclSend"`
	Recv          Message    `dl:"ncclRecv"`
	AllToAll      Moving     `dl:"ncclAlltoAll|ncclAllToAll" cap:"all-to-all" since:"2.28"`
	Gather        Rooted     `dl:"ncclGather" cap:"gather" since:"2.28"`
	Scatter       Rooted     `dl:"ncclScatter" cap:"scatter" since:"2.28"`

	MemAlloc         Alloc                               `dl:"ncclMemAlloc" cap:"allocation" since:"2.19"`
	MemFree          func(p uintptr) Result              `dl:"ncclMemFree" cap:"allocation"`
	CommRegister     Register                            `dl:"ncclCommRegister" cap:"registration" since:"2.19"`
	CommDeregister   func(c Comm, handle uintptr) Result `dl:"ncclCommDeregister" cap:"registration"`
	WindowRegister   Expose                              `dl:"ncclCommWindowRegister" cap:"windows" since:"2.27"`
	WindowDeregister func(c Comm, w Window) Result       `dl:"ncclCommWindowDeregister" cap:"windows"`

	PutSignal  PutSignal  `dl:"ncclPutSignal" cap:"put and signal" since:"2.29"`
	Signal     Signal     `dl:"ncclSignal" cap:"put and signal"`
	WaitSignal WaitSignal `dl:"ncclWaitSignal" cap:"put and signal"`

	AllReduceWith     ReducingWith   `dl:"ncclAllReduceConfig" cap:"operation configurations" since:"2.31"`
	ReduceWith        ReducingToWith `dl:"ncclReduceConfig" cap:"operation configurations"`
	ReduceScatterWith ReducingWith   `dl:"ncclReduceScatterConfig" cap:"operation configurations"`
	BroadcastWith     RootedWith     `dl:"ncclBroadcastConfig" cap:"operation configurations"`
	AllGatherWith     MovingWith     `dl:"ncclAllGatherConfig" cap:"operation configurations"`
	AllToAllWith      MovingWith     `dl:"ncclAlltoAllConfig" cap:"operation configurations"`
	GatherWith        RootedWith     `dl:"ncclGatherConfig" cap:"operation configurations"`

	Shrink          Shrink                            `dl:"ncclCommShrink" cap:"shrink" since:"2.27"`
	Revoke          func(c Comm, flags int32) Result  `dl:"ncclCommRevoke" cap:"revoke" since:"2.28.7"`
	Grow            Grow                              `dl:"ncclCommGrow" cap:"grow" since:"2.29"`
	CommGetUniqueID func(c Comm, id *UniqueID) Result `dl:"ncclCommGetUniqueId" cap:"grow"`
	Suspend         func(c Comm, flags int32) Result  `dl:"ncclCommSuspend" cap:"suspend" since:"2.29.7"`
	Resume          Plain                             `dl:"ncclCommResume" cap:"suspend"`

	// Of the rest is only asked whether it's there.
	SparseReduce Gate `dl:"ncclAllReduceSparseBlock" cap:"sparse reduce"` // NCCLX's
	InitScalable Gate `dl:"ncclCommInitRankScalable" cap:"scalable start" since:"2.23"`
}

// Capability is something that not all versions have.
type Capability struct {
	Name    string
	Since   string   // the first release of NCCL that has it; empty if none does
	Symbols []string // where there are two names for one, with "|" between them
}

// Capabilities are those of the table, in its order.
func Capabilities() (all []Capability) {
	t := reflect.TypeFor[Table]()
	for i := range t.NumField() {
		tag := t.Field(i).Tag
		name := tag.Get("cap")
		if name == "" {
			continue
		}
		at := slices.IndexFunc(all, func(c Capability) bool { return c.Name == name })
		if at < 0 {
			at = len(all)
			all = append(all, Capability{Name: name, Since: tag.Get("since")})
		}
		all[at].Symbols = append(all[at].Symbols, tag.Get("dl"))
	}
	return all
}
