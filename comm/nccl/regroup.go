package nccl

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unsafe"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/comm/nccl/abi"
	"github.com/chorus-comms/chorus/store"
)

// regroups says how a communicator is made of the members of another one, by the hint "regroup".
type regroups string

const (
	either  regroups = ""        // by the library, or else anew
	library regroups = "library" // by the library, or not at all
	anew    regroups = "anew"    // as if there had been none before
)

// setRegroups takes the hint, which a library can be too old for.
func (r *rank) setRegroups(at backend.Where, value string) error {
	switch r.regroups = regroups(value); r.regroups {
	case library:
		for _, capability := range []string{"shrink", "revoke", "grow"} {
			if err := r.lib.need(at, capability); err != nil {
				return err
			}
		}
	case anew:
	case "auto":
		r.regroups = either
	default:
		return &backend.InvalidArgumentError{Where: at,
			Detail: fmt.Sprintf("hint regroup=%q is none of auto, library and anew", value)}
	}
	return nil
}

// stopLibrary ends the operations under way, by revoke if the library has it, as a revoked communicator can still be
// shrunk; it's then destroyed with the communicator. The caller holds the lock.
func (r *rank) stopLibrary() {
	c := r.c
	if r.c = 0; c == 0 {
		return
	}
	if r.lib.Revoke != nil && r.regroups != anew && r.revoke(c) == nil {
		r.revoked = c
		return
	}
	_ = r.abort(c)
}

// revokeTime bounds how long the library may take to stop.
const revokeTime = 5 * time.Second

func (r *rank) revoke(c abi.Comm) error {
	ctx, cancel := context.WithTimeout(context.Background(), revokeTime)
	defer cancel()
	return r.apart(ctx, nil, func() error {
		err := r.lib.failed("ncclCommRevoke", r.lib.Revoke(c, abi.RevokeDefault), c)
		if err == nil {
			err = r.progress(ctx, "ncclCommRevoke", c, nil)
		}
		return err
	})
}

// place is a member's in an old communicator.
type place struct {
	World string `json:"w"`
	Rank  int    `json:"r"`
	Size  int    `json:"s"`
}

// asParent returns this rank's place in a communicator of which one can be made: nothing is under way, or it's revoked;
// nil if it can't.
func (r *rank) asParent(ctx context.Context) *place {
	if r.Raised() {
		select {
		case <-r.ended:
		case <-ctx.Done():
		}
	}
	if r.parent() == 0 {
		return nil
	}
	return &place{r.world, r.rank, r.size}
}

func (r *rank) parent() abi.Comm {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.asleep {
		return 0
	}
	return max(r.c, r.revoked) // one of them
}

// way is how the library makes a communicator of an old one.
type way struct {
	exclude  []int32 // old ranks; none: it isn't shrunk
	old, all int     // ranks that were in it, and all
}

// wayOf says how it can, if it can at all: survivors have to be in their old order, and others to come behind them. All
// ranks come to the same end.
func wayOf(all []greeting) (w way, err error) {
	first := all[0].Was
	if first == nil {
		return w, errors.New("no old communicator of rank 0 is left")
	}
	w.all = len(all)
	there := make([]bool, first.Size)
	last := -1
	for q, g := range all {
		switch was := g.Was; {
		case was == nil:
			continue
		case w.old < q:
			return w, fmt.Errorf("rank %d is behind one that was in no old communicator", q)
		case was.World != first.World || was.Size != first.Size || was.Rank >= was.Size || was.Rank <= last:
			return w, fmt.Errorf("rank %d was in another old communicator than rank 0, or before the one in front of it", q)
		default:
			last, there[was.Rank] = was.Rank, true
			w.old++
		}
	}
	for q, left := range there {
		if !left {
			w.exclude = append(w.exclude, int32(q))
		}
	}
	for q, g := range all {
		if g.Was != nil && w.exclude != nil && !g.Shrinks {
			return w, fmt.Errorf("rank %d's library has no ncclCommShrink", q)
		}
		if w.all > w.old && !g.Grows {
			return w, fmt.Errorf("rank %d's library has no ncclCommGrow", q)
		}
	}
	if w.exclude == nil && w.all == w.old {
		return w, errors.New("the members are the same")
	}
	return w, nil
}

// startFrom has the library begin, of an old communicator if there is one that can be of use. If that fails on a rank,
// all ranks begin anew, which they tell each other in a store.
func (r *rank) startFrom(ctx context.Context, at backend.Where, st store.Store, old *rank, all []greeting,
	config *config) error {
	w, unable := wayOf(all)
	var own error
	if unable == nil {
		var between abi.Comm
		failed := r.report
		r.report = func(why error) { r.unableToResize(st, why) }
		between, own = r.resize(ctx, at, st, old, w, config)
		r.report = failed
		said := ""
		if own != nil {
			said = own.Error()
			r.unableToResize(st, own)
		}
		ends, err := tellAll(ctx, r, st, r.family+"/resized", said)
		_ = r.abort(between) // of which others make theirs until then
		if err != nil {
			own = errors.Join(own, err)
		}
		for q, e := range ends {
			if e != "" && (unable == nil || !strings.Contains(e, context.Canceled.Error())) {
				unable = fmt.Errorf("rank %d: %s", q, e)
			}
		}
		if unable == nil && own == nil {
			return nil
		}
		if first, err := st.Get(ctx, r.family+"/"+unableKey); err == nil {
			unable = errors.New(string(first)) // what the other ranks' reasons may follow from
		}
		if r.c != 0 {
			_ = r.abort(r.c)
			r.c = 0
		}
		if err != nil {
			return own
		}
	}
	if r.regroups == library && old != nil {
		return &backend.UnsupportedError{Where: at, Detail: fmt.Sprintf(
			"hint regroup=library: %v can't make this communicator of the old one: %v", r.lib, unable)}
	}
	return r.start(ctx, at, all[0].ID, config)
}

// unableKey is set by the first rank whose library can't, for which the others needn't wait: to its reason.
const unableKey = "unable"

// unableToResize tells the other ranks why this one's library can't, unless another rank has before. A rank that
// doesn't get it has half of the time.
func (r *rank) unableToResize(st store.Store, why error) {
	ctx, cancel := context.WithTimeout(context.Background(), answerTime)
	defer cancel()
	_, _ = st.CompareSet(ctx, r.family+"/"+unableKey, nil, fmt.Appendf(nil, "rank %d: %v", r.rank, why))
}

// resize shrinks the old communicator, and lets what's left grow, in half of the time that there is. between is what
// was left then, if both is done.
func (r *rank) resize(ctx context.Context, at backend.Where, st store.Store, old *rank, w way,
	config *config) (between abi.Comm, err error) {
	if end, has := ctx.Deadline(); has {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(end)/2)
		defer cancel()
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		if _, err := await(ctx, st, r.family+"/"+unableKey); err == nil {
			stop()
		}
	}()
	unbind, err := r.dev.Bind() // the library takes the thread's device
	if err != nil {
		return 0, err
	}
	defer unbind()
	c := abi.Comm(0)
	if r.rank < w.old {
		old.mu.Lock()
		defer old.mu.Unlock()
		if c = max(old.c, old.revoked); c == 0 {
			return 0, errors.New("the old communicator is gone")
		}
	}
	if w.exclude != nil && c != 0 {
		err := r.made(ctx, at, c, "ncclCommShrink", func(child *abi.Comm) abi.Result {
			return r.lib.Shrink(c, &w.exclude[0], int32(len(w.exclude)), child, config.pointer(), abi.ShrinkDefault)
		})
		if err != nil || w.all == w.old {
			return 0, err
		}
		between, r.c = r.c, 0
		c = between
	}
	id, err := r.growthID(ctx, st, c, w)
	if err != nil {
		return between, err
	}
	me := int32(r.rank)
	if c != 0 {
		me = -1
	}
	return between, r.made(ctx, at, c, "ncclCommGrow", func(child *abi.Comm) abi.Result {
		return r.lib.Grow(c, int32(w.all), id, me, child, config.pointer())
	})
}

// growthID returns what a rank gives the library for a communicator that grows: rank 0, and those that are new, the id
// of c.
func (r *rank) growthID(ctx context.Context, st store.Store, c abi.Comm, w way) (*abi.UniqueID, error) {
	const key = "growth"
	id := new(abi.UniqueID)
	bytes := unsafe.Slice((*byte)(unsafe.Pointer(id)), unsafe.Sizeof(*id))
	switch {
	case r.rank == 0:
		if err := r.lib.failed("ncclCommGetUniqueId", r.lib.CommGetUniqueID(c, id), c); err != nil {
			return nil, err
		}
		return id, st.Set(ctx, key, bytes)
	case r.rank < w.old:
		return nil, nil
	}
	got, err := await(ctx, st, key)
	if err == nil && copy(bytes, got) != len(bytes) {
		err = fmt.Errorf("an id of %d bytes", len(got))
	}
	return id, err
}

// made makes r's communicator of one of the library's, which is 0 for a rank that's new.
func (r *rank) made(ctx context.Context, at backend.Where, of abi.Comm, call string,
	f func(child *abi.Comm) abi.Result) error {
	child := new(abi.Comm)
	err := r.lib.failed(call, f(child), of)
	if err == nil && of != 0 {
		err = r.await(ctx, call, of)
	}
	if err != nil {
		r.report(err)
		_ = r.abort(*child)
		return err
	}
	r.c = *child
	return r.started(ctx, at, call, *child)
}
