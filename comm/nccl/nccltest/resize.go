//go:build linux

package nccltest

import (
	"context"
	"fmt"
	"slices"
	"unsafe"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/comm/nccl/abi"
	"github.com/chorus-comms/chorus/store"
)

// part is a communicator that comes of another one's, or of an id, whose configuration is p.
func (l *Library) part(rank, n int, id abi.UniqueID, p unsafe.Pointer) (*communicator, error) {
	set, err := abi.Unpack(l.version, p)
	if err != nil {
		return nil, err
	}
	part := newCommunicator(rank, n, id)
	part.blocking = set["blocking"] != "0"
	part.windows.configure(set)
	return part, nil
}

// shrink meets at the store of the first rank that's left. As the library, it doesn't survive a call without a
// communicator.
func (l *Library) shrink(h abi.Comm, exclude *int32, n int32, child *abi.Comm, p unsafe.Pointer,
	flags int32) abi.Result {
	if h == 0 {
		panic("ncclCommShrink without a communicator: segmentation violation")
	}
	return l.with("ncclCommShrink", h, func(c *communicator) abi.Result {
		without := slices.Clone(unsafe.Slice(exclude, n))
		var left []int
		for q := range c.n {
			if !slices.Contains(without, int32(q)) {
				left = append(left, q)
			}
		}
		me := slices.Index(left, c.rank)
		if me < 0 || len(left) == c.n || flags != abi.ShrinkDefault {
			return l.wrong(abi.InvalidArgument, "ncclCommShrink: rank %d of %d without %v, flags %d", c.rank, c.n, without,
				flags)
		}
		c.resizes++
		_, name := text(c.id)
		id := idOf(c.meet[left[0]], fmt.Sprintf("%s/shrink/%d%v", name, c.resizes, without))
		part, err := l.part(me, len(left), id, p)
		if err != nil {
			return l.wrong(abi.InvalidArgument, "%v", err)
		}
		*child = l.add(part)
		return l.run(c, part.open)
	})
}

// revoke is this rank's alone, and leaves what others are made of.
func (l *Library) revoke(h abi.Comm, flags int32) abi.Result {
	return l.with("ncclCommRevoke", h, func(c *communicator) abi.Result {
		if flags != abi.RevokeDefault {
			return l.wrong(abi.InvalidArgument, "ncclCommRevoke: flags %d", flags)
		}
		c.revoked.Store(true)
		c.quit("ncclCommRevoke")
		return l.run(c, func() error { c.running.Wait(); return nil })
	})
}

// commUniqueID is of a communicator that's to grow.
func (l *Library) commUniqueID(h abi.Comm, id *abi.UniqueID) abi.Result {
	return l.with("ncclCommGetUniqueId", h, func(*communicator) abi.Result { return l.uniqueID(id) })
}

// grow passes the id, which one of the old ranks has, on to the others' processes.
func (l *Library) grow(h abi.Comm, n int32, id *abi.UniqueID, rank int32, child *abi.Comm,
	p unsafe.Pointer) abi.Result {
	if h == 0 {
		if id == nil {
			return l.wrong(abi.InvalidArgument, "ncclCommGrow: neither a communicator nor an id")
		}
		if r := l.fail("ncclCommGrow", int(rank)); r != abi.Success {
			return r
		}
		return l.initRankConfig(child, n, *id, rank, p)
	}
	return l.with("ncclCommGrow", h, func(c *communicator) abi.Result {
		if rank != -1 || int(n) <= c.n {
			return l.wrong(abi.InvalidArgument, "ncclCommGrow: rank %d, from %d to %d ranks", rank, c.n, n)
		}
		part, err := l.part(c.rank, int(n), abi.UniqueID{}, p)
		if err != nil {
			return l.wrong(abi.InvalidArgument, "%v", err)
		}
		c.resizes++
		addr, name := text(c.id)
		key := fmt.Sprintf("ncclsim/grow/%s/%s/%d", addr, name, c.resizes)
		*child = l.add(part)
		var given *abi.UniqueID
		if id != nil {
			copied := *id
			given = &copied
		}
		return l.run(c, func() (err error) {
			if part.id, err = c.passID(part.ctx, key, given); err != nil {
				return err
			}
			return part.open()
		})
	})
}

// passID gives an id to the processes of all ranks, or takes it from this one's store.
func (c *communicator) passID(ctx context.Context, key string, id *abi.UniqueID) (got abi.UniqueID, err error) {
	if id == nil {
		s, err := idStore()
		if err != nil {
			return got, err
		}
		b, err := s.Local().Get(ctx, key)
		copy(unsafe.Slice((*byte)(unsafe.Pointer(&got)), unsafe.Sizeof(got)), b)
		return got, err
	}
	b := slices.Clone(unsafe.Slice((*byte)(unsafe.Pointer(id)), unsafe.Sizeof(*id)))
	places := slices.Clone(c.meet)
	slices.Sort(places)
	for _, addr := range slices.Compact(places) {
		st, err := store.DialTCP(ctx, addr, store.TCPOptions{})
		if err == nil {
			err = st.Set(ctx, key, b)
			st.Close()
		}
		if err != nil {
			return got, err
		}
	}
	return *id, nil
}

// suspend and resume are collective. There is no memory to be released here; what the library refuses meanwhile is.
func (l *Library) suspend(h abi.Comm, flags int32) abi.Result {
	return l.with("ncclCommSuspend", h, func(c *communicator) abi.Result {
		if flags != abi.SuspendMemory || c.asleep.Load() {
			return l.wrong(abi.InvalidUsage, "ncclCommSuspend: flags %d, suspended %v", flags, c.asleep.Load())
		}
		return l.run(c, func() error { return c.together(true) })
	})
}

func (l *Library) resume(h abi.Comm) abi.Result {
	return l.with("ncclCommResume", h, func(c *communicator) abi.Result {
		if !c.asleep.Load() {
			return l.wrong(abi.InvalidUsage, "ncclCommResume: the communicator is not suspended")
		}
		return l.run(c, func() error { return c.together(false) })
	})
}

// together has all ranks suspended, or awake.
func (c *communicator) together(asleep bool) error {
	if !c.enter() {
		return backend.ErrAborted
	}
	defer c.running.Done()
	op := &backend.Op{Kind: backend.Barrier, Ctx: c.ctx, Timeout: ever}
	err := c.collective(*c.b.Load(), op, nil)
	if err == nil {
		c.asleep.Store(asleep)
	}
	return err
}
