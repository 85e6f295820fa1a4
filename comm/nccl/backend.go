package nccl

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chorus-comms/chorus/bootstrap"
	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/comm/backend/base"
	"github.com/chorus-comms/chorus/comm/nccl/abi"
	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/device/cache"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/internal/sys"
	"github.com/chorus-comms/chorus/store"
	"github.com/chorus-comms/chorus/tensor"
)

func init() {
	for _, f := range abi.Families {
		backend.Register(f.Name, func(ctx context.Context, c backend.Config) (backend.Backend, error) {
			return open(ctx, f.Name, c)
		}, operationHints()...)
		backend.RegisterPool(f.Name, func(d *device.Device) (cache.PoolID, error) { return openPool(f.Name, d) })
	}
}

// rank is one rank's part of a communicator.
type rank struct {
	base.Life
	lib      *Library
	family   string
	rank     int
	size     int
	dev      *device.Device
	st       store.Store       // of this communicator alone, which its rank 0 serves; nil if size is 1
	hosted   *bootstrap.Hosted // the store that this rank serves, of rank 0 the communicator's; nil if size is 1
	controls controlLinks
	master   string          // whose route other hosts are on
	splits   int             // so far
	compares bool            // before each collective
	regroups regroups        // how one is made of it
	world    string          // which communicator it is of all that there have ever been
	watching context.Context // ends with stop; nil before this rank hears of the others' failures
	stop     context.CancelFunc
	// report tells the others why this rank can't begin, before it aborts what the library has made, which makes calls of
	// the others fail.
	report func(why error)
	token  *tensor.Tensor // of barriers

	ended      chan struct{} // closed when watch has
	beforeStop atomic.Value  // the func() of BeforeStop
	record     record

	windows windowSet

	mu         sync.Mutex       // one call of the library at a time
	c          abi.Comm         // 0: destroyed, aborted or revoked
	revoked    abi.Comm         // 0: it isn't
	blocking   bool             // its calls block, and are made on goroutines of their own
	asleep     bool             // suspended
	captured   bool             // some operation was, so that a graph may have it
	kept       []*tensor.Tensor // memory that graphs of others use
	opened     time.Time
	registered map[extent]uintptr
	known      known
	symmetric  []symmetric
	symmetrics int // calls that registered or deregistered some
}

// extent is memory.
type extent struct {
	p     uintptr
	bytes int
}

func extentOf(t *tensor.Tensor) extent { return extent{address(t), t.NBytes()} }

var (
	_ backend.Enqueuer  = (*rank)(nil)
	_ backend.Registrar = (*rank)(nil)
	_ backend.Windower  = (*rank)(nil)
	_ backend.Messenger = (*rank)(nil)
	_ backend.Suspender = (*rank)(nil)
	_ backend.Pooled    = (*rank)(nil)
	_ backend.Symmetric = (*rank)(nil)
	_ backend.Parter    = (*rank)(nil)
)

// greeting is what ranks tell each other before the library begins.
type greeting struct {
	Version abi.Version       `json:"v"`
	ID      abi.UniqueID      `json:"id"` // of the communicator whose rank 0 this is going to be
	Store   bootstrap.Address `json:"s"`  // that this rank serves; of its rank 0, the communicator's
	List    []int             `json:"l,omitempty"`
	World   string            `json:"w,omitempty"`  // what rank 0 calls the communicator
	Was     *place            `json:"o,omitempty"`  // in an old communicator, of which one can be made
	Shrinks bool              `json:"sh,omitempty"` // the library can do that
	Grows   bool              `json:"gr,omitempty"`
	Unable  string            `json:"u,omitempty"` // why this rank can't begin
}

func open(ctx context.Context, family string, c backend.Config) (backend.Backend, error) {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	at := backend.Where{Comm: c.Name, Reporter: c.Rank, Op: "new"}
	r, config, err := prepare(at, family, &c)
	if err != nil {
		tellUnable(ctx, &c, err)
		return nil, err
	}
	defer config.free()
	mine := greeting{Version: r.lib.version, Shrinks: r.lib.Shrink != nil, Grows: r.lib.Grow != nil}
	old, _ := c.Old.(*rank)
	if old != nil && old.lib == r.lib && r.regroups != anew {
		mine.Was = old.asParent(ctx)
	}
	err = r.offer(&mine, true)
	if err == nil {
		err = r.open(ctx, at, &c, &mine, old, config)
	}
	if err != nil {
		if r.stop != nil {
			r.stop()
		}
		r.leave()
		return nil, err
	}
	return r, nil
}

// prepare finds the library and the device, and turns the hints into the library's configuration.
func prepare(at backend.Where, family string, c *backend.Config) (*rank, *config, error) {
	hints := maps.Clone(c.Hints)
	place := hints["library"]
	delete(hints, "library")
	lib, err := Load(family, place)
	if err != nil {
		return nil, nil, &backend.UnsupportedError{Where: at, Detail: err.Error()}
	}
	dev, err := device.Get(c.Device)
	if err != nil {
		return nil, nil, err
	}
	caps := backend.Capabilities{Devices: lib.devices}
	if !caps.Serves(dev.Name()) {
		return nil, nil, &backend.UnsupportedError{Where: at,
			Detail: fmt.Sprintf("%v has no device %q, only %v", lib, dev.Name(), lib.devices)}
	}
	r := newRank(lib, family, c.Name, c.Rank, c.Size, dev)
	r.master = c.MasterAddr
	config, err := r.config(at, c.Name, hints)
	if err != nil {
		return nil, nil, err
	}
	r.windows.signals, r.blocking = config.signals, config.blocking
	return r, config, nil
}

const (
	// unableTime bounds how long a rank that can't begin waits for the others, to tell them.
	unableTime = 2 * time.Second
	// maxUnable is how many bytes of its reason it tells.
	maxUnable = 600
)

// tellUnable tells the other ranks, if they come soon, why this one can't start.
func tellUnable(ctx context.Context, c *backend.Config, why error) {
	if c.Size == 1 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, unableTime)
	defer cancel()
	text := strings.TrimPrefix(backend.BeginsOnce(why.Error()), backend.Beginning)
	if payload, err := json.Marshal(greeting{Unable: text[:min(len(text), maxUnable)]}); err == nil {
		_, _ = c.Exchange(ctx, payload)
	}
}

func newRank(lib *Library, family, name string, me, size int, dev *device.Device) *rank {
	r := &rank{lib: lib, family: family, rank: me, size: size, dev: dev, ended: make(chan struct{}),
		registered: map[extent]uintptr{}, opened: time.Now()}
	r.Begin(name, me, r.tell)
	return r
}

// open meets the others in a store that need not last, and begins.
func (r *rank) open(ctx context.Context, at backend.Where, c *backend.Config, mine *greeting, old *rank,
	config *config) error {
	all, err := tellBy(r, *mine, func(payload []byte) ([][]byte, error) { return c.Exchange(ctx, payload) })
	if err != nil {
		return err
	}
	for q, g := range all {
		if g.Unable != "" {
			return &backend.UnsupportedError{Where: at, Detail: fmt.Sprintf("rank %d can't begin: %s", q, g.Unable)}
		}
		if g.Version != all[0].Version {
			return &backend.MismatchError{Where: at, RankA: 0, RankB: q, OpA: fmt.Sprintf("%s %v", r.lib.name, all[0].Version),
				OpB: fmt.Sprintf("%s %v", r.lib.name, g.Version)}
		}
	}
	if err = r.meet(ctx, all); err != nil {
		return err
	}
	r.hear()
	r.report = r.failUnlessReported
	err = r.startFrom(ctx, at, c.Store, old, all, config)
	switch {
	case err == nil:
		return r.begin(ctx)
	case errors.Is(err, backend.ErrUnsupported): // on all ranks
		return err
	}
	r.failUnlessReported(err)
	r.awaitHeard()
	if err = r.Err(at); errors.Is(err, backend.ErrTimeout) {
		return r.unstarted(at) // whichever rank's time was over first: this one knows of itself that it has come
	}
	return err
}

// awaitHeard gives the other ranks time to notice a failure, if this one serves the store that has it.
func (r *rank) awaitHeard() {
	if r.rank > 0 || r.st == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), answerTime)
	defer cancel()
	var al alarm
	if text, err := r.st.Get(ctx, alarmKey); err != nil || json.Unmarshal(text, &al) != nil {
		return
	}
	var keys []string
	for q := 1; q < r.size; q++ {
		if q != al.By {
			keys = append(keys, fmt.Sprint(answerKey, q))
		}
	}
	_ = r.st.Wait(ctx, keys...)
}

// hear has this rank take failures that others report for its own, until stop is called.
func (r *rank) hear() {
	if r.watching != nil {
		return
	}
	r.watching, r.stop = context.WithCancel(context.Background())
	if r.st != nil {
		go r.listen(r.watching)
	}
}

// offer adds to a greeting what this rank has for the others: a store, and an ID if it's rank 0 of what the library is
// to begin anew.
func (r *rank) offer(mine *greeting, id bool) (err error) {
	if r.rank == 0 {
		mine.World = rand.Text()
	}
	if id && r.rank == 0 {
		err = r.lib.failed("ncclGetUniqueId", r.lib.GetUniqueID(&mine.ID), 0)
	}
	if r.size > 1 && err == nil {
		if r.hosted, err = bootstrap.Host(r.master, bootstrap.Options{}); err == nil {
			mine.Store = r.hosted.Address()
		}
	}
	return err
}

// meet opens the store that rank 0 serves. all are the greetings of the communicator's ranks.
func (r *rank) meet(ctx context.Context, all []greeting) (err error) {
	addresses := make([]bootstrap.Address, len(all))
	for q := range all {
		addresses[q] = all[q].Store
	}
	r.controls.begin(addresses)
	r.world = all[0].World
	switch {
	case r.size == 1:
	case r.rank == 0:
		r.st = r.hosted.Local()
	default:
		r.st, err = bootstrap.Reach(ctx, addresses[0], bootstrap.Options{})
	}
	return err
}

// leave lets go of the stores. While rank 0 serves one of a communicator that is broken, the others may not know yet by
// what.
func (r *rank) leave() {
	r.controls.end()
	if r.rank > 0 && r.st != nil {
		r.st.Close()
	}
	if r.hosted == nil {
		return
	}
	defer r.hosted.Close()
	if r.rank > 0 {
		return
	}
	if _, healthy := errors.AsType[*backend.FinalizedError](r.Cause()); !healthy && r.Cause() != nil {
		ctx, cancel := context.WithTimeout(context.Background(), answerTime)
		defer cancel()
		_ = r.hosted.Drain(ctx)
	}
}

// tellAll gives every rank what all say, in a store under a key that was never used.
func tellAll[T any](ctx context.Context, r *rank, st store.Store, key string, mine T) ([]T, error) {
	return tellBy(r, mine, func(payload []byte) ([][]byte, error) {
		return bootstrap.Exchange(ctx, store.NewPrefix(key, st), r.rank, r.size, payload)
	})
}

// tellBy gives every rank what all say, by a function that does so with text.
func tellBy[T any](r *rank, mine T, exchange func(payload []byte) ([][]byte, error)) ([]T, error) {
	if r.size == 1 {
		return []T{mine}, nil
	}
	payload, err := json.Marshal(mine)
	if err != nil {
		return nil, err
	}
	payloads, err := exchange(payload)
	all := make([]T, r.size)
	for q, text := range payloads {
		if err := json.Unmarshal(text, &all[q]); err != nil {
			return nil, fmt.Errorf("rank %d says %q: %w", q, text, err)
		}
	}
	return all, err
}

// start begins the library's communicator, within the time of ctx.
func (r *rank) start(ctx context.Context, at backend.Where, id abi.UniqueID, config *config) error {
	c, call := new(abi.Comm), "ncclCommInitRankConfig"
	if config.packed == nil {
		call = "ncclCommInitRank"
	}
	err := r.make(ctx, config, c, func() error {
		if config.packed != nil {
			return r.lib.failed(call,
				r.lib.CommInitRankConfig(c, int32(r.size), id, int32(r.rank), config.packed.Pointer()), *c)
		}
		return r.lib.failed(call, r.lib.CommInitRank(c, int32(r.size), id, int32(r.rank)), *c)
	})
	switch {
	case errors.Is(err, errHeld):
		return r.unstarted(at)
	case err != nil:
		return &backend.InternalError{Where: at, Err: err}
	}
	r.c = *c
	return r.started(ctx, at, call, *c)
}

// make has the library make a communicator, which may take as long as the other ranks do. When ctx ends, or r is
// broken, what there is of it is aborted, and the error is errHeld.
func (r *rank) make(ctx context.Context, config *config, c *abi.Comm, f func() error) error {
	err := r.apart(ctx, r.Broken(), config.used(f))
	if errors.Is(err, errHeld) {
		_ = r.abort(abi.Comm(atomic.LoadUintptr((*uintptr)(c)))) // which the library stores early
	}
	return err
}

// started waits until the library has made c, or aborts it when ctx ends.
func (r *rank) started(ctx context.Context, at backend.Where, call string, c abi.Comm) error {
	err := r.await(ctx, call, c)
	if err == nil {
		return nil
	}
	if err = error(&backend.InternalError{Where: at, Err: err}); ctx.Err() != nil {
		err = r.unstarted(at)
	}
	if r.report != nil {
		r.report(err)
	}
	_ = r.abort(c)
	r.c = 0
	return err
}

// unstarted is the error of a start that took too long.
func (r *rank) unstarted(at backend.Where) error {
	a := backend.Attendance{Elapsed: time.Since(r.opened)}
	for q := range r.size { // all have come as far as this, and the library doesn't say which rank is stuck
		a.Unknown = append(a.Unknown, q)
	}
	a.Unknown = slices.DeleteFunc(a.Unknown, func(q int) bool { return q == r.rank })
	a.Arrived = []int{r.rank}
	return &backend.TimeoutError{Where: at, Attendance: a}
}

// await waits while a communicator that doesn't block is in progress, and returns what that ends with, or what the
// communicator of this rank is broken by.
func (r *rank) await(ctx context.Context, call string, c abi.Comm) error {
	return r.progress(ctx, call, c, r.Broken())
}

func (r *rank) progress(ctx context.Context, call string, c abi.Comm, broken <-chan struct{}) error {
	for pace := (sys.Backoff{}); ; pace.Pause() {
		result := new(abi.Result)
		if err := r.lib.failed("ncclCommGetAsyncError", r.lib.GetAsyncError(c, result), c); err != nil {
			return err
		}
		if *result != abi.InProgress {
			return r.lib.failed(call, *result, c)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-broken:
			return r.Cause()
		default:
		}
	}
}

// begin makes what a communicator needs that the library has made.
func (r *rank) begin(ctx context.Context) (err error) {
	if r.token, err = tensor.ZerosOn(ctx, r.dev, dtype.Uint8, 1); err != nil {
		_ = r.abort(r.c)
		return err
	}
	r.meetPool()
	r.hear()
	go r.watch(r.watching)
	return nil
}

// Capabilities implements backend.Backend.
func (r *rank) Capabilities() backend.Capabilities {
	return backend.Capabilities{Name: r.family, Devices: []string{r.dev.Name()}, Abort: true, InProcess: true,
		Windows: r.lacksWindows() == nil, PutOnly: true, Reduces: r.reduces}
}

// Submit implements backend.Backend. Nothing comes this way: no tensor is on the host.
func (r *rank) Submit(op *backend.Op) error {
	return &backend.UnsupportedError{Where: r.Of(op), Detail: r.lib.name + " works on streams only"}
}

// Wait implements backend.Backend.
func (r *rank) Wait(*backend.Op) error { return nil }

// Register implements backend.Registrar.
func (r *rank) Register(t *tensor.Tensor) error {
	at := r.In("register")
	if err := r.lib.need(at, "registration"); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch _, twice := r.registered[extentOf(t)]; {
	case r.c == 0 || r.asleep:
		return r.unusable(at)
	case twice:
		return &backend.InvalidArgumentError{Where: at, Detail: "the tensor is registered"}
	}
	unbind, err := r.dev.Bind()
	if err != nil {
		return &backend.InternalError{Where: at, Err: err}
	}
	defer unbind()
	handle := new(uintptr)
	if err := r.lib.failed("ncclCommRegister", r.lib.CommRegister(r.c, address(t), uint64(t.NBytes()), handle),
		r.c); err != nil {
		return &backend.InvalidArgumentError{Where: at, Detail: err.Error(), Err: err}
	}
	r.registered[extentOf(t)] = *handle
	return nil
}

// Deregister implements backend.Registrar.
func (r *rank) Deregister(t *tensor.Tensor) error {
	at := r.In("deregister")
	r.mu.Lock()
	defer r.mu.Unlock()
	handle, ok := r.registered[extentOf(t)]
	switch {
	case !ok:
		return &backend.InvalidArgumentError{Where: at, Detail: "the tensor is not registered"}
	case r.c == 0 || r.asleep:
		return r.unusable(at)
	}
	unbind, err := r.dev.Bind()
	if err != nil {
		return &backend.InternalError{Where: at, Err: err}
	}
	defer unbind()
	delete(r.registered, extentOf(t))
	return r.lib.failed("ncclCommDeregister", r.lib.CommDeregister(r.c, handle), r.c)
}

// Split implements backend.Backend: the lists are compared in the store, and the library makes the communicator of its
// own, where it can, or a new one.
func (r *rank) Split(ctx context.Context, name string, list []int, timeout time.Duration,
	hints map[string]string) (backend.Backend, error) {
	at := r.In("split")
	config, err := r.config(at, name, hints)
	if err != nil {
		return nil, err
	}
	defer config.free()
	if err := r.usable(at); err != nil {
		return nil, err
	}
	r.splits++
	start := time.Now()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	mine, native := greeting{List: list}, r.lib.CommSplit != nil
	var child *rank
	if len(list) > 0 {
		child = newRank(r.lib, r.family, name, slices.Index(list, r.rank), len(list), r.dev)
		child.compares, child.master, child.regroups = r.compares, r.master, r.regroups // as this one does
		child.windows.signals, child.blocking = config.signals, config.blocking
		child.report = r.failUnlessReported
		if err := child.offer(&mine, !native); err != nil {
			return nil, &backend.InternalError{Where: at, Err: err}
		}
	}
	part, err := r.split(ctx, at, child, &mine, config, start)
	if err != nil && child != nil {
		child.leave()
	}
	if part == nil {
		return nil, err
	}
	return part, nil
}

// split is Split of a rank that is in a part, or in none: child is nil then.
func (r *rank) split(ctx context.Context, at backend.Where, child *rank, mine *greeting, config *config,
	start time.Time) (*rank, error) {
	all, err := tellAll(ctx, r, r.st, fmt.Sprintf("split/%d", r.splits), *mine)
	if err != nil {
		return nil, r.absent(at, time.Since(start), err)
	}
	offers := make([]base.Offer, r.size)
	for q := range offers {
		offers[q].List = all[q].List
	}
	if err := r.Agreed(offers); err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go func() { // another rank may have failed to begin
		select {
		case <-r.Broken():
			stop()
		case <-ctx.Done():
		}
	}()
	if child != nil {
		var members []greeting
		for _, q := range mine.List {
			members = append(members, all[q])
		}
		err = child.meet(ctx, members)
	}
	switch {
	case err != nil:
	case r.lib.CommSplit != nil:
		err = r.divide(ctx, at, child, mine.List, config)
	case child != nil:
		err = child.start(ctx, at, all[mine.List[0]].ID, config)
	}
	if err != nil {
		r.failUnlessReported(err)
		return nil, r.Err(at)
	}
	if child != nil {
		err = child.begin(ctx)
	}
	return child, err
}

// absent is the error of a rank whose wait for the others' data in the store has ended early.
func (r *rank) absent(at backend.Where, waited time.Duration, err error) error {
	e := &backend.TimeoutError{Where: at, Attendance: backend.Attendance{Elapsed: waited}}
	if m, ok := errors.AsType[*bootstrap.MissingRanksError](err); ok {
		e.Missing = m.Missing
	}
	r.Fail(e)
	return r.Err(at)
}

// divide has the library make a communicator of a part of this one. child is nil for a rank that is in none.
func (r *rank) divide(ctx context.Context, at backend.Where, child *rank, list []int, config *config) error {
	color, key := abi.NoColor, int32(0)
	if child != nil {
		color, key = int32(slices.Min(list)), int32(child.rank)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	c, of := new(abi.Comm), r.c
	err := r.make(ctx, config, c, func() error {
		return r.lib.failed("ncclCommSplit", r.lib.CommSplit(of, color, key, c, config.pointer()), of)
	})
	if err == nil {
		err = r.await(ctx, "ncclCommSplit", r.c)
	}
	if err != nil {
		return &backend.InternalError{Where: at, Err: err}
	}
	if child == nil {
		return nil
	}
	child.c = *c
	return child.started(ctx, at, "ncclCommSplit", *c)
}
