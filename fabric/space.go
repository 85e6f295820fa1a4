package fabric

import (
	"errors"
	"fmt"
	"math/bits"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/chorus-comms/chorus/internal/sys"
	"github.com/chorus-comms/chorus/internal/wire"
	"github.com/chorus-comms/chorus/kern"
)

// Space is the memory that the ranks of one host share for one communicator. It
// carries a sequence of operations that all members take part in, one at a time
// and in the same order. Each member owns a control block and a stage (scratch)
// that all members can load and store.
//
// An operation with sequence number seq runs like this on each member:
//
//	sp.Begin(w, seq, desc, in, out)   // my slot says what I do and where my buffers are
//	sp.Notify(phase)                  // raise my flag; what I wrote before is visible
//	sp.AwaitAll(w, phase)             // the others' flags; the first look also compares descriptions
//	...                               // loads and stores of sp.Stage(member), sp.Resolve(...)
//	sp.End()                          // I no longer look at any member's slot or stage
//
// Slots and stages are used in turn (four slots, two halves of the stage), so
// that End needs no second synchronization: Begin waits until every member has
// ended the operation before the last one, which in a steady state it already knows.
//
// The flag of a slot is seq<<24 | phase. It only grows, so nothing is ever reset while the member
// takes part. A member that gives up in the middle of an operation, or takes part in no more of
// them, calls Leave, which ends every wait for it. Settle then tells which members can still touch
// the buffers that it had announced. A Space is used by one goroutine of each member at a time.
type Space struct {
	self    int
	members []int
	blocks  []*controlBlock
	next    *controlBlock    // of the member that AwaitAll awaits first; nil if there's none
	stages  []unsafe.Pointer // nil where a member has none
	half    int              // bytes of half a stage
	resolve Resolver
	policy  Policy
	release func() error
	commit  func(offset, n int) error
	waiters *GoroutineWaiters
	patient bool // a wait polls for long before it sleeps
	backed  int  // bytes of each half of this member's stage that have memory

	// The operation under way.
	seq     uint64
	desc    Desc
	in, out Place
	said    uint64        // how often what this member says of its operations has changed
	written [slots]uint64 // what it was then that its slots hold
	print   uint64        // of desc; the lowest bit is the vote
	vote    uint64
	raised  bool            // its flag, and with it the print
	awaited int             // the member that a wait is for, during the waiter's Check; else -1
	checked [][slots]uint64 // per member: the operations for which its description was compared
	ended   []uint64        // up to which operation a member is known to have ended
}

// Place says where a buffer lies: in which of its owner's segments and at which
// offset. The zero Place is memory that cannot be mapped.
type Place struct{ Segment, Offset uint64 }

// Mappable reports whether peers can reach the place.
func (p Place) Mappable() bool { return p.Segment != 0 }

// Resolver turns a member's Place into an address of this process, for which it may have to wait for that member. It
// must check that n bytes from there lie inside the segment.
type Resolver func(w *Waiter, member int, p Place, n int) (unsafe.Pointer, error)

// InlineBytes is how much scratch lies in the same cache line as the flag, and in the one that follows.
const InlineBytes = 48 + 64

const slots = 4

// secondLine is where in a slot's inline scratch the second cache line begins.
const secondLine = 48

// slot is one operation's announcement of one member: three cache lines, of which
// small operations touch the first, or the first pair. A fourth is empty, so that no pair is of two slots.
type slot struct {
	flag   atomic.Uint64
	print  uint64
	inline [InlineBytes]byte
	desc   Desc
	in     Place
	out    Place
	_      [64]byte
}

// controlBlock is a member's page. Words that different members write lie in
// different pairs of cache lines, because processors prefetch lines in pairs.
type controlBlock struct {
	// No member writes here: a check for nil reads a block's first byte, which would take the cache line
	// from a writer.
	_        [128]byte
	slots    [slots]slot
	ended    atomic.Uint64 // last operation that this member has ended
	_        [120]byte
	sleepers atomic.Uint32 // members asleep on one of this block's words
	coreHint sys.CoreHint  // where the member runs that this block belongs to
	gone     atomic.Uint64 // 0, or how this member has left: see departure
	_        [104]byte
	why      [MaxWhy]byte // the reason that it gave, and zeros
	_        [256 - MaxWhy]byte
}

// ControlBytes is the size of a member's control block, rounded up to pages.
const ControlBytes = 4096

var _ [ControlBytes - int(unsafe.Sizeof(controlBlock{}))]struct{}

// SpaceConfig is what a fabric lays out before it calls NewSpace.
type SpaceConfig struct {
	Members    []int            // ascending ranks
	Self       int              // index of this rank in Members
	Control    []unsafe.Pointer // per member: ControlBytes of zeroed shared memory, aligned to 128 bytes
	Stages     []unsafe.Pointer // per member: StageBytes of shared memory, aligned to 64 bytes
	StageBytes int
	Resolve    Resolver
	Policy     Policy
	Release    func() error // called by Close
	// Commit puts memory behind n bytes at an offset of this member's stage; nil if all of it has some.
	Commit func(offset, n int) error
	// Waiters is where waits sleep if all members are goroutines of this process, which share it; nil: on a futex.
	Waiters *GoroutineWaiters
}

// NewSpace puts a Space together from memory that a fabric has mapped.
func NewSpace(c SpaceConfig) *Space {
	s := &Space{
		self: c.Self, members: c.Members, stages: c.Stages, half: c.StageBytes / 2 &^ 63,
		resolve: c.Resolve, release: c.Release, commit: c.Commit, waiters: c.Waiters, awaited: -1,
		blocks:  make([]*controlBlock, len(c.Members)),
		checked: make([][slots]uint64, len(c.Members)), ended: make([]uint64, len(c.Members)),
	}
	for i, p := range c.Control {
		s.blocks[i] = (*controlBlock)(p)
		if i != c.Self && s.next == nil {
			s.next = s.blocks[i]
		}
	}
	if s.commit == nil {
		s.backed = s.half
	}
	s.SetPolicy(c.Policy)
	return s
}

// Members returns the ranks that share the space, ascending. Not to be modified.
func (s *Space) Members() []int { return s.members }

// Self returns this rank's index among the members.
func (s *Space) Self() int { return s.self }

// StageBytes returns how much stage one operation may use.
func (s *Space) StageBytes() int { return s.half }

// minBacked is the least memory that is put behind half a stage, in bytes; more comes by doubling.
const minBacked = 64 << 10

// Reserve makes sure that there is memory behind n bytes of this member's stage, for this
// operation and those that follow. A member calls it before Begin of an operation that uses its stage,
// so that lack of memory is an error here, and not a signal at a store; what no operation uses costs nothing.
func (s *Space) Reserve(n int) error {
	if n = s.window(n); n <= s.backed {
		return nil
	}
	n = min(s.half, max(minBacked, 1<<bits.Len(uint(n-1))))
	for _, half := range [2]int{0, s.half} {
		if err := s.commit(half+s.backed, n-s.backed); err != nil {
			return err
		}
	}
	s.backed = n
	return nil
}

// Policy returns how waits on this space spend their time.
func (s *Space) Policy() Policy { return s.policy }

// SetPolicy changes it, for the calls that follow.
func (s *Space) SetPolicy(p Policy) {
	s.policy = p
	s.patient = s.waiters == nil && p.Spins >= SpinPolicy.Spins && p.Yields >= SpinPolicy.Yields
}

// words returns a description as words, which compare faster than bytes.
func words(d *Desc) [4]uint64 { return *(*[4]uint64)(unsafe.Pointer(d)) }

// print64 condenses a description into the word beside the flag.
func print64(d *Desc) uint64 {
	h := wire.HashStart
	for _, v := range words(d) {
		h = wire.HashAdd(h, v)
	}
	return h
}

// Begin enters operation seq, which must be one more than the last one's. It
// fills this member's slot but raises no flag: Arrive or Notify does.
func (s *Space) Begin(w *Waiter, seq uint64, desc *Desc, in, out Place) error {
	if err := s.advance(w, seq); err != nil {
		return err
	}
	if same := words(desc) == words(&s.desc); !same || in != s.in || out != s.out || seq == 1 {
		if !same || seq == 1 {
			s.desc, s.print = *desc, print64(desc)
		}
		s.in, s.out = in, out
		s.said++
	}
	s.fillSlot()
	return nil
}

// BeginAgain is Begin of an operation of which this member has the same to say as of the one before.
func (s *Space) BeginAgain(w *Waiter, seq uint64) error {
	if err := s.advance(w, seq); err != nil {
		return err
	}
	s.fillSlot()
	return nil
}

// advance makes operation seq the one under way, as soon as no member is in an earlier one that uses
// the same slots.
func (s *Space) advance(w *Waiter, seq uint64) error {
	if seq > 2 {
		for m := range s.blocks {
			if m == s.self {
				continue
			}
			if s.ended[m] < seq-2 {
				if err := s.awaitEnded(w, m, seq-2); err != nil {
					return err
				}
			}
			// A rank that waited for no other in two operations, such as a broadcast's root, compares
			// now whether the others ran the same operation.
			if s.checked[m][(seq-2)%slots] != seq-2 {
				if err := s.compareOne(m, seq-2); err != nil {
					return err
				}
			}
		}
	}
	s.seq = seq
	return nil
}

// fillSlot fills the slot of the operation under way.
func (s *Space) fillSlot() {
	s.print, s.raised = s.print&^1|s.vote, false
	// Values that are there already aren't stored again. So peers that have read the line, or whose processor has
	// fetched it along with the flag, keep it, and the flag's store doesn't wait for it.
	if i := s.seq % slots; s.written[i] != s.said {
		if b := &s.blocks[s.self].slots[i]; b.desc != s.desc || b.in != s.in || b.out != s.out {
			b.desc, b.in, b.out = s.desc, s.in, s.out
		}
		s.written[i] = s.said
	}
}

// Ready reports whether Begin of operation seq would return without a wait.
func (s *Space) Ready(seq uint64) bool {
	for m, ended := range s.ended {
		if m != s.self && ended+2 < seq && s.blocks[m].ended.Load()+2 < seq {
			return false
		}
	}
	return true
}

// SetVote sets the bit that this member publishes with each operation from the next one on. By these
// bits members agree on how later operations run.
func (s *Space) SetVote(v bool) {
	s.vote = 0
	if v {
		s.vote = 1
	}
}

// Vote returns the bit that a member published with this operation, in which it has arrived.
func (s *Space) Vote(member int) bool {
	if member == s.self {
		return s.print&1 != 0
	}
	return s.blocks[member].slots[s.seq%slots].print&1 != 0
}

// Arrive raises this member's flag to phase 0: it's here, and its slot can be read.
// Phases of Notify follow.
func (s *Space) Arrive() { s.raise(s.seq << 24) }

// Notify raises this member's flag to the phase, from 1 up: all that it wrote before is
// visible to members that await it.
func (s *Space) Notify(phase uint32) { s.raise(s.seq<<24 | uint64(phase)) }

// raise writes the print only now, right before the flag: a line that was written while a member polls it is taken away
// in between, and must come back for the next store. For the same reason the flag isn't stored atomically, which would
// wait for all stores before it. It may therefore become visible after this member has looked for sleepers; End looks
// again, and so does who goes to sleep itself; and Settle waits before it looks for flags.
func (s *Space) raise(v uint64) {
	me := s.blocks[s.self]
	sl := &me.slots[s.seq%slots]
	first := !s.raised
	if first {
		sl.print, s.raised = s.print, true
	}
	if s.waiters != nil { // its sleepers don't look by themselves
		sl.flag.Store(v)
	} else {
		sys.StoreRelaxed((*uint64)(unsafe.Pointer(&sl.flag)), v)
	}
	if me.sleepers.Load() != 0 {
		s.wake(&sl.flag)
	}
	// If this member is the last one, what it waits for next is the way of another's flag, which may as well begin now.
	if first && s.next != nil {
		other := &s.next.slots[s.seq%slots]
		sys.Prefetch((*uint64)(unsafe.Pointer(&other.flag)))
		sys.Prefetch((*uint64)(unsafe.Pointer(&other.inline[secondLine])))
	}
}

// End leaves the operation: this member reads no slot, stage or buffer of
// another one on its account any more.
//
// Where waits are patient, it too stores without waiting until all can see it. A member that falls asleep at that very
// moment, after a millisecond of looking, may miss it and sleep on until it looks by itself.
func (s *Space) End() {
	me := s.blocks[s.self]
	if !s.raised {
		me.slots[s.seq%slots].print = s.print // some look now, for the first time
	}
	if s.patient {
		sys.StoreRelaxed((*uint64)(unsafe.Pointer(&me.ended)), s.seq)
	} else {
		me.ended.Store(s.seq)
	}
	// The next slot's lines are still with the members that polled them four operations ago. They come back while the
	// program goes on.
	next := &me.slots[(s.seq+1)%slots]
	sys.PrefetchWrite((*uint64)(unsafe.Pointer(&next.flag)))
	sys.PrefetchWrite((*uint64)(unsafe.Pointer(&next.inline[secondLine])))
	if me.sleepers.Load() != 0 {
		s.wake(&me.ended)
		s.wakeForFlag()
	}
}

// wake wakes the members that sleep on a word of this one.
func (s *Space) wake(word *atomic.Uint64) {
	if s.waiters != nil {
		s.waiters.wake()
		return
	}
	sys.FutexWake(low32(word))
}

// wakeForFlag wakes who may have gone to sleep while the flag was on its way.
func (s *Space) wakeForFlag() {
	if me := s.blocks[s.self]; s.waiters == nil && me.sleepers.Load() != 0 {
		s.wake(&me.slots[s.seq%slots].flag)
	}
}

// Await blocks until the member has reached the phase (0: has arrived) in this
// operation. The first time it compares the member's description with this
// rank's and returns *MismatchError if they differ.
func (s *Space) Await(w *Waiter, member int, phase uint32) error {
	want := s.seq<<24 | uint64(phase)
	sl := &s.blocks[member].slots[s.seq%slots]
	if sl.flag.Load() < want {
		if err := s.wait(w, member, &sl.flag, want); err != nil {
			return err
		}
	}
	if s.checked[member][s.seq%slots] != s.seq {
		return s.compare(member, s.seq)
	}
	return nil
}

// AwaitAll awaits every other member.
func (s *Space) AwaitAll(w *Waiter, phase uint32) error {
	want, at := s.seq<<24|uint64(phase), s.seq%slots
	for m, b := range s.blocks {
		if m == s.self || b.slots[at].flag.Load() >= want && s.checked[m][at] == s.seq {
			continue
		}
		if err := s.Await(w, m, phase); err != nil {
			return err
		}
	}
	return nil
}

// Assembled reports whether all members have arrived in this operation, or have left. It looks as often as a wait does
// before it gives its core away.
func (s *Space) Assembled() bool {
	want, m := s.seq<<24, 0
	for i := 0; ; i++ {
		for ; m < len(s.blocks); m++ {
			b := s.blocks[m]
			if m != s.self && b.slots[s.seq%slots].flag.Load() < want && b.gone.Load() == 0 {
				break
			}
		}
		switch {
		case m == len(s.blocks):
			return true
		case i >= s.policy.Spins:
			if i > 0 && s.waiters == nil {
				sys.MigrateOffSharedCore(&s.blocks[s.self].coreHint, &s.blocks[m].coreHint)
			}
			return false
		}
		kern.Pause(1)
	}
}

// compare demands that a member's description of an operation equals this rank's. The member has
// announced it, and its slot can't have been reused yet. In the operation before it the two may not have waited for
// each other, as in broadcasts of which both were root: so that is compared first.
func (s *Space) compare(member int, seq uint64) error {
	if last := seq - 1; last > 0 && s.checked[member][last%slots] != last {
		if err := s.compareOne(member, last); err != nil {
			return err
		}
	}
	return s.compareOne(member, seq)
}

// compareOne is compare without the operation before it.
func (s *Space) compareOne(member int, seq uint64) error {
	s.checked[member][seq%slots] = seq
	s.ended[member] = max(s.ended[member], seq-1) // it could not have begun this one otherwise
	mine, theirs := &s.blocks[s.self].slots[seq%slots], &s.blocks[member].slots[seq%slots]
	print := s.print // this member may not have raised its flag yet
	if seq != s.seq {
		print = mine.print
	}
	if print&^1 == theirs.print&^1 {
		return nil
	}
	return &MismatchError{Peer: s.members[member], Seq: seq, Local: mine.desc, Remote: theirs.desc}
}

// CheckLast compares, without waiting, the last two operations with those of the members
// that have arrived in them. Operations before are Begin's to compare, which a member that
// begins no more would miss. It's called after End, or in the operation once this member has arrived.
func (s *Space) CheckLast() error {
	for seq := max(s.seq, 2) - 1; seq <= s.seq; seq++ {
		for m, b := range s.blocks {
			if m == s.self || s.checked[m][seq%slots] == seq || b.slots[seq%slots].flag.Load()>>24 != seq {
				continue
			}
			if err := s.compareOne(m, seq); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *Space) awaitEnded(w *Waiter, member int, seq uint64) error {
	word := &s.blocks[member].ended
	if word.Load() < seq {
		if err := s.wait(w, member, word, seq); err != nil {
			return err
		}
	}
	s.ended[member] = word.Load()
	return nil
}

// maxSleep bounds one sleep, so that an abort or a dead peer is noticed even if no peer wakes the
// sleeper.
const maxSleep = 5 * time.Millisecond

// wait blocks until *word >= want. The word belongs to the member's block.
func (s *Space) wait(w *Waiter, member int, word *atomic.Uint64, want uint64) error {
	p := s.policy
	for i := 1; ; i++ {
		v := word.Load()
		if v >= want {
			return nil
		}
		if i == p.Spins && s.waiters == nil {
			sys.MigrateOffSharedCore(&s.blocks[s.self].coreHint, &s.blocks[member].coreHint)
		}
		switch {
		case i < p.Spins:
			// If the word is a flag, what is in the line after it comes along with it, and not when it's needed.
			sys.Prefetch((*uint64)(unsafe.Add(unsafe.Pointer(word), 64)))
			kern.Pause(1)
			continue
		case i < p.Spins+p.Yields:
			if p.Yield(i); i%32 != 0 {
				continue
			}
		default:
			b := s.blocks[member]
			b.sleepers.Add(1)
			s.wakeForFlag()
			if s.waiters != nil {
				s.waiters.sleep(w, func() bool {
					v = word.Load()
					return v < want && b.gone.Load() == 0 && !s.uncompared(member, v)
				})
				v = word.Load()
			} else if v = word.Load(); v < want {
				sys.FutexWait(low32(word), uint32(v), maxSleep)
			}
			b.sleepers.Add(^uint32(0))
		}
		// The order matters: what the member did before it left, it did for good.
		if gone := s.blocks[member].gone.Load(); gone != 0 && word.Load() < want {
			return s.leftError(member, gone)
		}
		s.awaited = member
		err := w.Check()
		s.awaited = -1
		if err != nil {
			if word.Load() >= want {
				return nil // it came after all, before whatever is wrong
			}
			return err
		}
		if s.uncompared(member, v) {
			if err := s.compare(member, s.seq); err != nil {
				return err
			}
		}
		// Nor will a member that is still in the previous operation, if this rank waited for no other in its own
		// previous operation and the two differ.
		if last := s.seq - 1; last > 0 && s.checked[member][last%slots] != last &&
			s.blocks[member].slots[last%slots].flag.Load()>>24 == last {
			if err := s.compareOne(member, last); err != nil {
				return err
			}
		}
	}
}

// uncompared reports whether the flag v says that a member has arrived whose description was not compared yet: if it's
// in another operation, it will never get where it's waited for.
func (s *Space) uncompared(member int, v uint64) bool {
	return v>>24 == s.seq && s.checked[member][s.seq%slots] != s.seq
}

// low32 returns the half of a 64-bit counter that changes with every step: the word
// that a futex can wait for. Little-endian, as every platform that Chorus supports.
func low32(p *atomic.Uint64) *uint32 { return (*uint32)(unsafe.Pointer(p)) }

// Inline returns a member's scratch beside its flag, InlineBytes long, for this operation.
func (s *Space) Inline(member int) unsafe.Pointer {
	return unsafe.Pointer(&s.blocks[member].slots[s.seq%slots].inline)
}

// Stage returns n bytes of a member's scratch for this operation, n being at most StageBytes and the
// same for all members.
func (s *Space) Stage(member, n int) unsafe.Pointer {
	offset := int(s.seq&1) * s.half
	if turns := s.window(n) / stride(n); turns > 1 {
		offset += int(s.seq>>1) % turns * stride(n)
	}
	return unsafe.Add(s.stages[member], offset)
}

// turnBytes is how much of each half of a stage operations take turns in. Lines that a member has just read
// lie in its nearest caches, and must be taken from there before they can be written again. By the time
// that operations have gone round, the lines have moved to the cache that the cores share.
const turnBytes = 1 << 20

// window returns how many bytes from the start of each half operations that need n bytes use.
func (s *Space) window(n int) int {
	if n < minTurnBytes {
		return n
	}
	return min(s.half, max(n, turnBytes))
}

// minTurnBytes is the least need, in bytes, from which on operations take turns.
const minTurnBytes = 2 << 10

// stride is the distance between two turns: whole pages, which keeps the segment's color.
func stride(n int) int { return max(1, (n+4095)&^4095) }

// Places returns where an arrived member says its buffers are. The values come
// from another process: Resolve checks them.
func (s *Space) Places(member int) (in, out Place) {
	sl := &s.blocks[member].slots[s.seq%slots]
	return sl.in, sl.out
}

// Resolve returns the address in this process of n bytes of a member's buffer. If it's not known yet, its owner is
// asked.
func (s *Space) Resolve(w *Waiter, member int, p Place, n int) (unsafe.Pointer, error) {
	if !p.Mappable() {
		return nil, fmt.Errorf("fabric: memory of rank %d cannot be mapped", s.members[member])
	}
	return s.resolve(w, member, p, n)
}

// Arrived reports which operation a member has last arrived at, and its phase,
// for messages that explain a wait. seq is 0 if it has not arrived at any yet.
func (s *Space) Arrived(member int) (seq uint64, phase uint32) {
	var top uint64
	for i := range s.blocks[member].slots {
		top = max(top, s.blocks[member].slots[i].flag.Load())
	}
	if gone := s.blocks[member].gone.Load(); gone>>2 > top>>24 { // it has taken back its flag
		return gone >> 2, 0
	}
	return top >> 24, uint32(top & (1<<24 - 1))
}

// Awaited returns the member that the wait is for whose waiter calls its Slow, from there; -1 if that wait is none of
// this space's.
func (s *Space) Awaited() int { return s.awaited }

// Close releases the mappings. No operation may be under way.
func (s *Space) Close() error {
	if s.release == nil {
		return nil
	}
	r := s.release
	s.release = nil
	return r()
}

// NewSoloSpace returns the space of a rank that has no other on its host, for
// plans that treat every host alike. Its memory is this process's own.
func NewSoloSpace(rank, stageBytes int) *Space {
	const align = 128
	mem := make([]byte, ControlBytes+stageBytes+align)
	start := unsafe.Pointer(unsafe.SliceData(mem))
	start = unsafe.Add(start, -uintptr(start)&(align-1))
	return NewSpace(SpaceConfig{
		Members: []int{rank}, Control: []unsafe.Pointer{start}, Stages: []unsafe.Pointer{unsafe.Add(start, ControlBytes)},
		StageBytes: stageBytes,
		Resolve: func(*Waiter, int, Place, int) (unsafe.Pointer, error) {
			return nil, errors.New("fabric: no other rank shares memory")
		},
	})
}
