package gloo

import (
	"fmt"

	"github.com/chorus-comms/chorus/comm/backend"
)

// A slot names what frames belong to. A collective's is its kind, a number that all ranks count, and a byte that's 0;
// that of a message between two ranks is its tag.

// The kinds of collectives on the wire.
const (
	slotGather = iota + 1
	slotAllGather
	slotReduce
	slotAllReduce
	slotScatter
	slotBroadcast
	slotBarrier
	slotAllToAll
	slotScan // ranks of Chorus alone have it
)

var slotKinds = [...]string{slotGather: "a gather", slotAllGather: "an all-gather", slotReduce: "a reduce",
	slotAllReduce: "an all-reduce", slotScatter: "a scatter", slotBroadcast: "a broadcast",
	slotBarrier: "a barrier", slotAllToAll: "an all-to-all", slotScan: "a scan"}

// slots are the kinds of the families of collectives.
var slots = map[backend.Kind]uint64{
	backend.Gather: slotGather, backend.AllGather: slotAllGather, backend.Reduce: slotReduce,
	backend.AllReduce: slotAllReduce, backend.ReduceScatter: slotAllReduce, backend.Scatter: slotScatter,
	backend.Broadcast: slotBroadcast,
	backend.Barrier:   slotBarrier, backend.Scan: slotScan, backend.AllToAll: slotAllToAll,
}

// slotOf names a collective.
func slotOf(kind uint64, tag uint32) uint64 { return kind<<56 | uint64(tag)<<24 }

// collective reports whether a slot is a collective's.
func collective(slot uint64) bool { return slot>>56 > 0 && slot>>56 < uint64(len(slotKinds)) }

// tagOf returns the number of a collective.
func tagOf(slot uint64) uint32 { return uint32(slot >> 24) }

// slotName says what a collective is, for an error.
func slotName(slot uint64) string {
	return fmt.Sprintf("%s, number %d", slotKinds[slot>>56], tagOf(slot))
}

// ownTags are above what programs may use: tags of package comm's own messages. maxTag is the greatest tag of PyTorch.
const (
	ownTags = 1 << 62
	maxTag  = 1<<31 - 1
)
