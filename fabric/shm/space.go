package shm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"unsafe"

	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/hostmem"
	"github.com/chorus-comms/chorus/internal/wire"
)

// offers are the peers' parts of Spaces that this rank has not opened yet. A
// member offers its part to all others as soon as it calls Space.
type offers struct {
	mu      sync.Mutex
	changed sync.Cond
	waiting map[offerKey][]*offer
	failed  map[int]error // by rank
	closed  bool
}

func newOffers() *offers {
	o := &offers{waiting: map[offerKey][]*offer{}, failed: map[int]error{}}
	o.changed.L = &o.mu
	return o
}

type offerKey struct {
	comm uint32
	from int
}

type offer struct {
	fields
	fd  int
	err error
}

// maxOffers bounds what a peer may offer ahead.
const maxOffers = 1024

// put keeps an offer, with its descriptor.
func (o *offers) put(from int, fr *frame, fd int) {
	of := &offer{fields: fr.fields, fd: fd}
	if fr.Kind == frameRefuse {
		of.err = &fabric.UnableError{Peer: from, Reason: string(fr.payload)}
	} else if fd < 0 {
		of.err = errStarved
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	k := offerKey{fr.Comm, from}
	if o.closed || len(o.waiting[k]) >= maxOffers {
		closeFD(of.fd)
		return
	}
	o.waiting[k] = append(o.waiting[k], of)
	o.changed.Broadcast()
}

func (o *offers) fail(rank int, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.failed[rank] = err
	o.changed.Broadcast()
}

// await takes the member's oldest offer.
func (o *offers) await(ctx context.Context, comm uint32, from int) (*offer, error) {
	defer context.AfterFunc(ctx, func() {
		o.mu.Lock() // or it could come right before the wait
		defer o.mu.Unlock()
		o.changed.Broadcast()
	})()
	k := offerKey{comm, from}
	o.mu.Lock()
	defer o.mu.Unlock()
	for {
		list := o.waiting[k]
		switch {
		case len(list) == 1:
			delete(o.waiting, k)
			return list[0], list[0].err
		case len(list) > 1:
			o.waiting[k] = list[1:]
			return list[0], list[0].err
		case o.closed:
			return nil, fabric.ErrClosed
		case o.failed[from] != nil:
			return nil, o.failed[from]
		case ctx.Err() != nil:
			if err := context.Cause(ctx); !errors.Is(err, context.DeadlineExceeded) {
				return nil, err
			}
			return nil, errLate
		}
		o.changed.Wait()
	}
}

// errLate says that a member's offer did not come in time.
var errLate = errors.New("it has not opened its part in time")

// absent names the members from the i-th on whose offers have not come.
func (s *opening) absent(i int) error {
	o := s.f.offers
	o.mu.Lock()
	defer o.mu.Unlock()
	e := &fabric.AbsentError{Err: errLate}
	for _, r := range s.members[i:] {
		if r == s.members[i] || r != s.f.rank && len(o.waiting[offerKey{s.comm, r}]) == 0 {
			e.Peers = append(e.Peers, r)
		}
	}
	return e
}

func (o *offers) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	for _, list := range o.waiting {
		for _, of := range list {
			closeFD(of.fd)
		}
	}
	clear(o.waiting)
	o.changed.Broadcast()
}

// Space implements fabric.Sharer. Each member's part is one segment: its control
// block, then its stage, which gets memory as it's used. hostmem maps it where no other rank's memory aliases it.
func (f *Fabric) Space(ctx context.Context, comm uint32, members []int, stageBytes int) (*fabric.Space, error) {
	self, err := f.checkMembers(members, stageBytes)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	s := &opening{f: f, comm: comm, members: members, self: self, stage: stageBytes}
	sp, err := s.open(ctx)
	if err != nil {
		s.release()
		return nil, err
	}
	return sp, nil
}

func (f *Fabric) checkMembers(members []int, stageBytes int) (self int, err error) {
	if stageBytes < 0 || stageBytes > maxMessage {
		return 0, fmt.Errorf("shm: a stage of %d bytes", stageBytes)
	}
	for i, r := range members {
		if i > 0 && r <= members[i-1] {
			return 0, fmt.Errorf("shm: the members %v of a space are not ascending", members)
		}
		if r != f.rank {
			if _, err := f.peer(r); err != nil {
				return 0, err
			}
		}
	}
	if self = slices.Index(members, f.rank); self < 0 {
		return 0, fmt.Errorf("shm: rank %d is not among the members %v", f.rank, members)
	}
	return self, nil
}

// opening is a Space on its way, and later what has to be given back.
type opening struct {
	f       *Fabric
	comm    uint32
	members []int
	self    int
	stage   int
	mine    *hostmem.Segment
	theirs  []*hostmem.Mapping
}

func (s *opening) open(ctx context.Context) (*fabric.Space, error) {
	f := s.f
	if err := s.offer(); err != nil {
		return nil, err
	}
	c := fabric.SpaceConfig{
		Members: slices.Clone(s.members), Self: s.self,
		Control: make([]unsafe.Pointer, len(s.members)), Stages: make([]unsafe.Pointer, len(s.members)),
		StageBytes: s.stage, Resolve: s.resolver(), Policy: f.policy, Release: s.release, Commit: s.commit,
	}
	for i, r := range s.members {
		base := s.mine.Base()
		if i != s.self {
			m, err := s.accept(ctx, r)
			if err == errLate {
				err = s.absent(i)
			}
			if err != nil {
				lost, absent, unable := (*fabric.PeerError)(nil), (*fabric.AbsentError)(nil), (*fabric.UnableError)(nil)
				if err != context.Cause(ctx) && !fabric.Exhausted(err) && !errors.As(err, &lost) && !errors.As(err, &absent) &&
					!errors.As(err, &unable) {
					err = &fabric.PeerError{Peer: r, Err: err}
				}
				return nil, fmt.Errorf("shm: space of ranks %v: rank %d: %w", s.members, r, err)
			}
			base = m.Base()
		}
		c.Control[i] = base
		if s.stage > 0 {
			c.Stages[i] = unsafe.Add(base, fabric.ControlBytes)
		}
	}
	return fabric.NewSpace(c), nil
}

// commit puts memory behind a range of this rank's stage.
func (s *opening) commit(offset, n int) error {
	start, end := fabric.ControlBytes+offset, fabric.ControlBytes+offset+n
	start &^= pageBytes - 1
	end = min((end+pageBytes-1)&^(pageBytes-1), s.mine.Size())
	return s.mine.Commit(start, end-start)
}

// offer makes this rank's part, with memory behind the control block, and sends it to the other members; or tells them
// that it couldn't.
func (s *opening) offer() error {
	f := s.f
	seg, err := hostmem.NewSparse(fabric.ControlBytes + s.stage)
	if s.mine = seg; err == nil {
		err = seg.Commit(0, fabric.ControlBytes)
	}
	for i, r := range s.members {
		if i == s.self {
			continue
		}
		p := f.peers[r]
		if err != nil {
			p.link.send(fields{Kind: frameRefuse, Comm: s.comm}.encode(text(err.Error())), -1)
			continue
		}
		e := hostmem.Share(seg.ID(), func(fd, size, color int) error {
			mine := fields{Kind: frameOffer, Comm: s.comm, Members: wire.HashInts(s.members), Stage: int64(s.stage),
				Size: int64(size), Color: int32(color)}
			return p.link.send(mine.encode(nil), fd)
		})
		if e != nil {
			return fmt.Errorf("shm: offer memory to rank %d: %w", r, e)
		}
	}
	return err
}

func (s *opening) accept(ctx context.Context, rank int) (*hostmem.Mapping, error) {
	of, err := s.f.offers.await(ctx, s.comm, rank)
	if err != nil {
		return nil, err
	}
	defer closeFD(of.fd)
	if of.Members != wire.HashInts(s.members) || of.Stage != int64(s.stage) {
		return nil, fmt.Errorf("it opens the space with other members, or with a stage of %d bytes instead of %d", of.Stage,
			s.stage)
	}
	if of.Size < int64(fabric.ControlBytes+s.stage) {
		return nil, fmt.Errorf("it offers only %d bytes", of.Size)
	}
	m, err := hostmem.Map(of.fd, of.Size, int(of.Color))
	if err != nil {
		return nil, err
	}
	s.theirs = append(s.theirs, m)
	return m, nil
}

// resolver finds the members' buffers without a look-up by rank.
func (s *opening) resolver() fabric.Resolver {
	peers := make([]*peer, len(s.members))
	for i, r := range s.members {
		peers[i] = s.f.peers[r]
	}
	return func(w *fabric.Waiter, member int, at fabric.Place, n int) (unsafe.Pointer, error) {
		if p := peers[member]; p != nil {
			return p.resolve(w, at, n)
		}
		g := hostmem.ByID(at.Segment)
		if g == nil {
			return nil, fmt.Errorf("shm: this process has no segment %d", at.Segment)
		}
		return within(g.Base(), uint64(g.Size()), at, n)
	}
}

func (s *opening) release() error {
	var errs []error
	for _, m := range s.theirs {
		errs = append(errs, m.Unmap())
	}
	if s.mine != nil {
		errs = append(errs, s.mine.Close())
	}
	s.theirs, s.mine = nil, nil
	return errors.Join(errs...)
}
