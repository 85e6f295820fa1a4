package abi

import "fmt"

// Scenario is what a call asks for.
type Scenario uint32

// The scenarios.
const (
	Config Scenario = iota
	Copy
	Combine
	Send
	Recv
	Bcast
	Scatter
	Gather
	Reduce
	Allgather
	Allreduce
	ReduceScatter
	Barrier
	Alltoall
	Nop Scenario = 255
)

var scenarios = [...]string{"config", "copy", "combine", "send", "recv", "bcast", "scatter", "gather", "reduce",
	"allgather", "allreduce", "reduce_scatter", "barrier", "alltoall"}

// String returns the scenario's usual name, such as "bcast".
func (s Scenario) String() string {
	switch {
	case int(s) < len(scenarios):
		return scenarios[s]
	case s == Nop:
		return "nop"
	}
	return fmt.Sprintf("scenario(%d)", uint32(s))
}

// ConfigFunction is what a call of scenario Config does.
type ConfigFunction uint32

// The functions of Config. The values of the last three are the call's count.
const (
	Reset ConfigFunction = iota
	Enable
	SetTimeout
	SetMaxEagerSize      // bytes
	SetMaxRendezvousSize // bytes
)

// ReduceFunction is how elements are combined: an index into the functions of an ArithConfig.
type ReduceFunction uint32

// The functions of the default ArithConfigs.
const (
	Sum ReduceFunction = iota
	Max
)

// CompressionFlags say which operands of a call have the compressed type.
type CompressionFlags uint32

// The compression flags.
const (
	Op0Compressed CompressionFlags = 1 << iota
	Op1Compressed
	ResCompressed
	EthCompressed // what goes over the wire
)

// StreamFlags say which operands of a call are streams of a kernel.
type StreamFlags uint32

// The stream flags.
const (
	Op0Stream StreamFlags = 1 << iota
	ResStream
)

// HostFlags say which operands of a call lie in the host's memory.
type HostFlags uint32

// The host flags.
const (
	Op0Host HostFlags = 1 << iota
	Op1Host
	ResHost
)

// TagAny matches every tag, on either side.
const TagAny = 0xFFFFFFFF

// MaxStream is the highest id of a kernel's stream.
const MaxStream = 246

// Call is a call of an engine.
type Call struct {
	Scenario    Scenario
	Count       uint32 // elements
	Comm        uint32 // of the communicator in exchange memory
	Root        uint32 // or source, or destination
	Function    uint32 // a ConfigFunction or ReduceFunction
	Tag         uint32
	ArithConfig uint32 // in exchange memory
	Compression CompressionFlags
	Stream      StreamFlags
	Host        HostFlags
	Addr        [3]uint64 // of op0, op1 and the result
}

// CallWords is the length of a call.
const CallWords = 15

// Words returns the call as it goes to the engine.
func (c Call) Words() (w [CallWords]uint32) {
	w = [CallWords]uint32{uint32(c.Scenario), c.Count, c.Comm, c.Root, c.Function, c.Tag, c.ArithConfig,
		uint32(c.Compression), uint32(c.Stream) | uint32(c.Host)<<8}
	for i, a := range c.Addr {
		w[9+2*i], w[10+2*i] = uint32(a), uint32(a>>32)
	}
	return w
}

// ParseCall returns the call of some words. Any words are a call; the engine says what it thinks of it.
func ParseCall(w [CallWords]uint32) Call {
	c := Call{Scenario(w[0]), w[1], w[2], w[3], w[4], w[5], w[6], CompressionFlags(w[7]), StreamFlags(w[8] & 0xff),
		HostFlags(w[8] >> 8), [3]uint64{}}
	for i := range c.Addr {
		c.Addr[i] = uint64(w[9+2*i]) | uint64(w[10+2*i])<<32
	}
	return c
}
