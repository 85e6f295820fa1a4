package abi

import (
	"fmt"
	"net/netip"
	"strings"
)

// Places in exchange memory, in bytes. Communicators and arithmetic configurations lie behind the RX descriptors, in
// the order in which the driver made them.
const (
	ExchangeSize = 0x2000

	NumRXBuffers  = 0x0 // what an engine waits for: it's written last
	RXBufferSize  = 0x4 // bytes
	RXDescriptors = 0x8

	// DirectMaxRanks is a register of Chorus: up to so many ranks, all of whose engines are Chorus's, reduce as ACCL's
	// engines can't. 0, as with ACCL's driver: none do.
	DirectMaxRanks = 0x1FC0

	GatherFlatMaxFanIn = 0x1FC4
	GatherFlatMaxCount = 0x1FC8 // bytes
	BcastFlatMaxRanks  = 0x1FCC
	ReduceFlatMaxRanks = 0x1FD0
	ReduceFlatMaxCount = 0x1FD4 // bytes
	SpareBuffers       = 0x1FD8 // three addresses
	PerfCounter        = 0x1FF0 // cycles of the last call
	ConfigReady        = 0x1FF4
	HardwareID         = 0x1FF8
	ReturnValue        = 0x1FFC

	// ConfigEnd is where what the driver may place ends.
	ConfigEnd = DirectMaxRanks
)

// NumSpares is how many spare buffers a rendezvous has.
const NumSpares = 3

// CycleNS is how long a cycle is, in nanoseconds.
const CycleNS = 4

// RXStatus is the state of an RX buffer.
type RXStatus uint32

// The states.
const (
	RXIdle     RXStatus = 0
	RXEnqueued RXStatus = 1 // a message may land in it
	RXReserved RXStatus = 2 // it holds a message
	RXError    RXStatus = 4
)

func (s RXStatus) String() string {
	switch s {
	case RXIdle:
		return "IDLE"
	case RXEnqueued:
		return "ENQUEUED"
	case RXReserved:
		return "RESERVED"
	case RXError:
		return "ERROR"
	}
	return fmt.Sprintf("status(%d)", uint32(s))
}

// RXDescriptor describes an RX buffer.
type RXDescriptor struct {
	Status   RXStatus
	Addr     uint64
	Tag, Len uint32
	Src, Seq uint32
}

// RXWords is the length of a descriptor.
const RXWords = 7

// RXDescriptorAt returns where descriptor i lies.
func RXDescriptorAt(i int) uint32 { return uint32(RXDescriptors + 4*RXWords*i) }

// Words returns the descriptor as it lies in exchange memory.
func (d RXDescriptor) Words() [RXWords]uint32 {
	return [RXWords]uint32{uint32(d.Status), uint32(d.Addr), uint32(d.Addr >> 32), d.Tag, d.Len, d.Src, d.Seq}
}

// ParseRXDescriptor is the other way round.
func ParseRXDescriptor(w [RXWords]uint32) RXDescriptor {
	return RXDescriptor{RXStatus(w[0]), uint64(w[1]) | uint64(w[2])<<32, w[3], w[4], w[5], w[6]}
}

// Rank is a member of a communicator.
type Rank struct {
	IP             uint32 // 127.0.0.1 is 0x7F000001
	Port           uint32
	Inbound        uint32 // number of the next message from the rank
	Outbound       uint32 // and to it
	Session        uint32 // what the network knows the rank's engine by
	MaxSegmentSize uint32 // bytes of a message; 0: no limit of the network's
}

// Addr returns the rank's address in the usual form.
func (r Rank) Addr() string {
	ip := netip.AddrFrom4([4]byte{byte(r.IP >> 24), byte(r.IP >> 16), byte(r.IP >> 8), byte(r.IP)})
	return netip.AddrPortFrom(ip, uint16(r.Port)).String()
}

// Words of a Rank's row, and where the numbers are in it.
const (
	RankWords    = 6
	InboundWord  = 2
	OutboundWord = 3
	CommHead     = 2 // words before the rows: size, local rank
)

// Communicator is a group of ranks, as it lies in exchange memory.
type Communicator struct {
	Local int // this engine's rank
	Ranks []Rank
}

// Words returns the communicator as it lies in exchange memory.
func (c Communicator) Words() []uint32 {
	w := []uint32{uint32(len(c.Ranks)), uint32(c.Local)}
	for _, r := range c.Ranks {
		w = append(w, r.IP, r.Port, r.Inbound, r.Outbound, r.Session, r.MaxSegmentSize)
	}
	return w
}

// ParseCommunicator returns the communicator that begins with w, which may be longer.
func ParseCommunicator(w []uint32) (c Communicator, err error) {
	if len(w) < CommHead || w[0] == 0 || uint64(w[0])*RankWords > uint64(len(w)-CommHead) || w[1] >= w[0] {
		return c, fmt.Errorf("no communicator: size and rank are %v", w[:min(len(w), CommHead)])
	}
	c.Local, c.Ranks = int(w[1]), make([]Rank, w[0])
	for i := range c.Ranks {
		r := w[CommHead+RankWords*i:]
		c.Ranks[i] = Rank{r[0], r[1], r[2], r[3], r[4], r[5]}
	}
	return c, nil
}

// ID is a number for the communicator on which all its members agree: a hash of its members, without the fields that
// change. It's never 0.
func (c Communicator) ID() uint32 {
	h := uint32(2166136261)
	for _, r := range c.Ranks {
		for _, w := range [3]uint32{r.IP, r.Port, r.Session} {
			for range 4 {
				h = (h ^ w&0xff) * 16777619
				w >>= 8
			}
		}
	}
	return max(h, 1)
}

// String shows the communicator as the driver's dumps do.
func (c Communicator) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "local rank: %d, size: %d", c.Local, len(c.Ranks))
	for i, r := range c.Ranks {
		fmt.Fprintf(&b, "\nrank %d: %s, session %d, max segment size %d, inbound seq %d, outbound seq %d", i, r.Addr(),
			r.Session, r.MaxSegmentSize, r.Inbound, r.Outbound)
	}
	return b.String()
}

// ArithConfig is a way through the arithmetic and compression of the engine, for one pair of types.
type ArithConfig struct {
	UncompressedBytes, CompressedBytes uint32 // of an element
	RatioLog                           uint32 // compressed elements of an uncompressed one
	Compressor, Decompressor           uint32 // lanes
	ArithCompressed                    bool   // elements are combined in the compressed type
	Functions                          []uint32
}

// MaxFunctions is how many functions a configuration has at most.
const MaxFunctions = 10

// The compression lanes.
const (
	Float32To16 = 0
	Float16To32 = 1
)

// arithHead is how many words come before the functions.
const arithHead = 7

// Words returns the configuration as it lies in exchange memory.
func (a ArithConfig) Words() []uint32 {
	w := []uint32{a.UncompressedBytes, a.CompressedBytes, a.RatioLog, a.Compressor, a.Decompressor,
		uint32(len(a.Functions)), 0}
	if a.ArithCompressed {
		w[6] = 1
	}
	return append(w, a.Functions...)
}

// ParseArithConfig returns the configuration that begins with w, which may be longer.
func ParseArithConfig(w []uint32) (a ArithConfig, err error) {
	if len(w) < arithHead || w[5] > MaxFunctions || int(w[5]) > len(w)-arithHead {
		return a, fmt.Errorf("no arithmetic configuration: it has a wrong number of functions")
	}
	a = ArithConfig{w[0], w[1], w[2], w[3], w[4], w[6] != 0, append([]uint32(nil), w[arithHead:arithHead+w[5]]...)}
	if !width(a.UncompressedBytes) || !width(a.CompressedBytes) || a.RatioLog != 0 {
		return a, fmt.Errorf("no arithmetic configuration: elements of %d bytes, compressed to %d by 2^%d",
			a.UncompressedBytes, a.CompressedBytes, a.RatioLog)
	}
	return a, nil
}

func width(bytes uint32) bool { return bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8 }

// Types are those of a buffer, and of what is smaller: the key of a configuration.
type Types struct{ Uncompressed, Compressed DataType }

// lanes of sums and maxima in the arithmetic unit, by type.
var lanes = map[DataType]uint32{Float32: 0, Float64: 1, Int32: 2, Int64: 3, Float16: 4}

// numLanes is how far the maxima are behind the sums.
const numLanes = 5

// Lane says what a function of the arithmetic unit is.
func Lane(function uint32) (f ReduceFunction, t DataType) {
	for t, n := range lanes {
		switch function {
		case n:
			return Sum, t
		case n + numLanes:
			return Max, t
		}
	}
	return Sum, Float32
}

// Bytes is the configuration of elements that are only moved.
var Bytes = ArithConfig{UncompressedBytes: 1, CompressedBytes: 1}

// DefaultArithConfigs returns the configurations that a driver writes, in its order.
func DefaultArithConfigs() ([]Types, map[Types]ArithConfig) {
	order := []Types{{Float16, Float16}, {Float32, Float16}, {Float32, Float32}, {Float64, Float64}, {Int32, Int32},
		{Int64, Int64}}
	all := map[Types]ArithConfig{}
	for _, t := range order {
		a := ArithConfig{UncompressedBytes: uint32(t.Uncompressed.Size()), CompressedBytes: uint32(t.Compressed.Size())}
		if t.Uncompressed != t.Compressed {
			a.Compressor, a.Decompressor, a.ArithCompressed = Float32To16, Float16To32, true
		}
		n := lanes[t.Compressed]
		a.Functions = []uint32{n, n + numLanes}
		all[t] = a
	}
	return order, all
}
