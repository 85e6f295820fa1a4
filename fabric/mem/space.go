package mem

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"unsafe"

	"github.com/chorus-comms/chorus/fabric"
)

// spaceKey names a space while it's being joined. Ranks that share none may use
// the same communicator number at once.
type spaceKey struct {
	comm  uint32
	first int
}

// spaceMemory is the memory of a space, laid out by the first member that comes.
type spaceMemory struct {
	members    []int
	stageBytes int
	control    []unsafe.Pointer
	stages     []unsafe.Pointer
	joined     []bool
	missing    int
	waiters    fabric.GoroutineWaiters
}

const page = 4096

// colours bounds how many different places within their pages' cycle stages take.
const colours = 32

func newSpaceMemory(members []int, stageBytes int) *spaceMemory {
	n := len(members)
	s := &spaceMemory{members: slices.Clone(members), stageBytes: stageBytes, joined: make([]bool, n), missing: n,
		control: make([]unsafe.Pointer, n), stages: make([]unsafe.Pointer, n)}
	for i, r := range members {
		s.control[i] = aligned(fabric.ControlBytes, 0, 128)
		// Equal address bits 12 to 27 of buffers streamed together collide in
		// the first cache's way predictor; so every rank starts on another page.
		s.stages[i] = aligned(stageBytes, r*3%colours*page, 64)
	}
	return s
}

// aligned returns size bytes of zeroed memory whose address is lead past a multiple of align.
func aligned(size, lead, align int) unsafe.Pointer {
	p := unsafe.Pointer(unsafe.SliceData(make([]byte, lead+size+align)))
	return unsafe.Add(p, lead+int(-uintptr(p)&uintptr(align-1)))
}

// Space implements fabric.Sharer.
func (f *Rank) Space(_ context.Context, comm uint32, members []int, stageBytes int) (*fabric.Space, error) {
	self, ok := slices.BinarySearch(members, f.Rank())
	if !ok || !slices.IsSorted(members) || members[0] < 0 || members[len(members)-1] >= f.Size() {
		return nil, fmt.Errorf("mem: rank %d: space members %v are not ascending ranks that include it", f.Rank(), members)
	}
	for _, r := range members {
		if f.world.hosts[r] != f.world.hosts[f.Rank()] {
			return nil, fmt.Errorf("mem: ranks %d and %d are on different hosts and share no memory", f.Rank(), r)
		}
	}
	if stageBytes < 0 {
		return nil, fmt.Errorf("mem: stage of %d bytes", stageBytes)
	}
	w, k := f.world, spaceKey{comm, members[0]}
	w.mu.Lock()
	s := w.spaces[k]
	if s == nil {
		s = newSpaceMemory(members, stageBytes)
		w.spaces[k] = s
	}
	if !slices.Equal(s.members, members) || s.stageBytes != stageBytes || s.joined[self] {
		w.mu.Unlock()
		return nil, fmt.Errorf("mem: rank %d opens the space of communicator %d with members %v and %d bytes; another rank did with %v and %d",
			f.Rank(), comm, members, stageBytes, s.members, s.stageBytes)
	}
	s.joined[self] = true
	if s.missing--; s.missing == 0 {
		delete(w.spaces, k)
	}
	w.mu.Unlock()

	policy := fabric.Policy{Yields: 2000, InProcess: true}
	switch {
	case w.wait == "block":
		policy.Yields = 0
	case w.wait == "spin" || w.wait != "yield" && len(members) <= runtime.GOMAXPROCS(0):
		policy.Spins = 200
	}
	return fabric.NewSpace(fabric.SpaceConfig{
		Members: s.members, Self: self, Control: s.control, Stages: s.stages, StageBytes: stageBytes,
		Resolve: resolve, Policy: policy, Waiters: &s.waiters,
	}), nil
}

// segment marks places that are addresses of this process.
const segment = ^uint64(0)

// Place implements fabric.Placer.
func (f *Rank) Place(p unsafe.Pointer, n int) fabric.Place {
	if p == nil {
		return fabric.Place{}
	}
	return fabric.Place{Segment: segment, Offset: uint64(uintptr(p))}
}

// resolve turns a place back into the address that it was made of. The owner's
// goroutine, which is in the same operation, keeps the memory alive.
func resolve(_ *fabric.Waiter, member int, p fabric.Place, n int) (unsafe.Pointer, error) {
	if p.Segment != segment {
		return nil, fmt.Errorf("mem: segment %d does not exist", p.Segment)
	}
	return *(*unsafe.Pointer)(unsafe.Pointer(&p.Offset)), nil
}
