package comm

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chorus-comms/chorus/bootstrap"
	"github.com/chorus-comms/chorus/comm/backend"
	_ "github.com/chorus-comms/chorus/comm/native" // the default backend
	"github.com/chorus-comms/chorus/comm/regroup"
	"github.com/chorus-comms/chorus/config"
	"github.com/chorus-comms/chorus/hostmem"
	"github.com/chorus-comms/chorus/observe/record"
	"github.com/chorus-comms/chorus/secure"
	"github.com/chorus-comms/chorus/store"
)

// Comm is one rank's part of a communicator. See the package comment.
type Comm struct {
	own call // the synchronous collective under way; belongs to the lane's owner; begins a cache line

	b            backend.Backend
	opHints      backend.OpHints // that b knows
	name         string
	backend      string
	device       string
	rank, size   int
	abortOnError bool
	abortBehind  bool
	log          *slog.Logger
	opened       newOptions // as New had them, for another world

	timeout atomic.Int64                      // nanoseconds
	hints   atomic.Pointer[map[string]string] // for every operation; never modified
	hooks   atomic.Pointer[hookSet]
	hooksMu sync.Mutex
	ids     atomic.Uint64 // of operations, for hooks
	rec     *record.Recorder

	lane      lane
	rounds    sync.Pool                 // of one message each
	gate      gate                      // of what runs beside the lane: transfers, window operations
	placement atomic.Pointer[placement] // where its operations run

	finalizer *finalizer
	cleanup   runtime.Cleanup
}

// A finalizer is what a communicator's end needs even when the Comm itself was collected.
type finalizer struct {
	mu        sync.Mutex
	finalized bool
	done      chan struct{}
	b         backend.Backend
	name      string
	log       *slog.Logger
	leave     func() error // of the launcher's store; may be nil
	rec       *record.Recorder
	endpoint  *regroup.Endpoint // where other members find this rank; nil until it's needed
}

// watch has the rank dumped when the communicator breaks, though this rank may be in no operation of it.
func (e *finalizer) watch() {
	select {
	case <-e.done:
	case <-e.b.Broken():
	}
	e.rec.Broken(e.b.Cause())
}

// New joins a communicator. All of its ranks call it; it returns when they have
// found each other, or with an error that names the missing ranks. Rank, world size and store come
// from the options or else from the launcher's environment; without either it's a world of one.
func New(ctx context.Context, opts ...NewOption) (*Comm, error) {
	if ctx == nil {
		ctx = context.Background()
	}
	o := newOptions{device: "cpu", name: "world", log: slog.Default()}
	none := 0 // which option is nil, from 1
	for i, f := range opts {
		if f == nil {
			none = i + 1
			continue
		}
		f(&o)
	}
	if none != 0 {
		return nil, o.failure(nil, fmt.Errorf("%w: option %d is nil", ErrInvalidArgument, none))
	}
	c, st, err := o.new(ctx)
	if err != nil {
		return nil, o.failure(st, err)
	}
	return c, nil
}

// failure is the error of New.
func (o *newOptions) failure(st store.Store, err error) error {
	if cause := o.besideCause(); cause != nil {
		return cause
	}
	if e := o.storeHostLost(st, err); e != nil {
		return e
	}
	if !strings.Contains(err.Error(), backend.Beginning) {
		return joinTimeout(o.name, fmt.Errorf(backend.Beginning+"communicator %q: %w", o.name, err))
	}
	return joinTimeout(o.name, &locatedError{err})
}

// new makes the communicator. With an error it returns the store in which the ranks meet, once there is one.
func (o *newOptions) new(ctx context.Context) (*Comm, store.Store, error) {
	cfg, err := config.Load(nil)
	if err != nil {
		return nil, nil, err
	}
	if o.backend == "" {
		o.backend = cfg.Backend
	}
	if o.timeout == 0 {
		o.timeout = cfg.Timeout
	}
	if o.timeout < 0 {
		return nil, nil, fmt.Errorf("%w: negative timeout %v", ErrInvalidArgument, o.timeout)
	}
	abort := cfg.AbortOnError
	if o.abortOnError != nil {
		abort = *o.abortOnError
	}
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	ctx, alone := o.whileBeside(ctx)
	defer alone()
	if o.newcomer {
		return o.openWorldless(abort), nil, nil
	}
	launched, err := o.place(ctx, cfg)
	if err != nil {
		return nil, nil, err
	}
	if o.job == "" {
		o.job = cfg.Run // of a rank whose options have its place, as PyTorch's do
	}
	if err := checkName(o.name); err != nil {
		return nil, nil, err
	}
	b, dev, st, err := o.meet(ctx)
	if err != nil {
		return nil, st, err
	}
	c := o.join(cfg, abort, b, dev)
	if o.beside != nil {
		go shareFailures(b, o.beside.b)
	}
	if launched && st != nil && !b.Capabilities().Foreign {
		c.finalizer.leave = func() error { return leave(st, o.rank) }
	}
	return c, st, nil
}

// meet opens the backend, and waits until all ranks have. It returns the store in which they meet, if there
// is one, even with an error.
func (o *newOptions) meet(ctx context.Context) (b backend.Backend, dev *streams, st store.Store, err error) {
	if o.size > 1 {
		st = store.NewPrefix(fmt.Sprintf("chorus/%s/%d", o.name, o.size), o.store)
	}
	o.world = o.name
	rendezvous := o.rendezvous(st)
	b, dev, err = o.open(ctx, st, rendezvous)
	if rendezvous != nil {
		st = rendezvous.Store()
	}
	if errors.Is(err, ErrUnsupported) && rendezvous.Met() && o.hosted {
		leaveRefused(ctx, rendezvous, o.host)
	}
	if err != nil || st == nil || b.Capabilities().Foreign { // whose ranks don't say that they have arrived
		return b, dev, st, err
	}
	if err = completeRendezvous(ctx, rendezvous); store.Gone(err) {
		err = nil // it's not needed any more: the ranks have found each other
	}
	if err != nil {
		b.Finalize(ctx)
	}
	return b, dev, st, err
}

// A locatedError is an error whose text says where it happened: the text before that is left out.
type locatedError struct{ error }

func (e *locatedError) Error() string {
	_, text, _ := strings.Cut(e.error.Error(), backend.Beginning)
	return backend.BeginsOnce(backend.Beginning + text)
}
func (e *locatedError) Unwrap() error { return e.error }

// rendezvous is where the ranks find each other in st; nil if there is none, for a world of one.
func (o *newOptions) rendezvous(st store.Store) *bootstrap.Rendezvous {
	if st == nil {
		return nil
	}
	m := bootstrap.NewRendezvous(st, o.rank, o.size)
	m.Members, m.Again = o.jobRanks, o.again
	return m
}

// open begins this rank's part in the backend, and on the device, of a world whose ranks meet at st.
func (o *newOptions) open(ctx context.Context, st store.Store, rendezvous *bootstrap.Rendezvous) (backend.Backend,
	*streams, error) {
	if p, given, err := takePriority(o.hints); err != nil {
		return nil, nil, err
	} else if given {
		o.priority = p
	}
	if pause, given, err := takeReplays(o.hints); err != nil {
		return nil, nil, err
	} else if given {
		o.replays = pause
	}
	known := backend.HintsOf(o.backend)
	own, each := known.Split(o.hints)
	if err := known.Check(Where{Comm: o.name, Reporter: o.rank, Op: "new"}, each); err != nil {
		return nil, nil, err
	}
	hostmem.SetColor(o.rank)
	d, without := openDevice(ctx, o.device) // a device that isn't there: not every backend needs it
	if without == nil {
		o.device = d.Name()
	}
	b, err := backend.Open(ctx, o.backend, backend.Config{Name: o.name, Rank: o.rank, Size: o.size,
		Rendezvous: rendezvous, Store: st, Job: bootstrap.Launchers(o.store), Device: o.device, Timeout: o.timeout,
		Hints: own, MasterAddr: o.masterAddr, Log: o.log, Old: o.old})
	if err != nil {
		return nil, nil, fmt.Errorf("rank %d of %d: %w", o.rank, o.size, err)
	}
	dev, err := newStreams(d, o.priority, o.replays, b)
	if without != nil && len(b.Capabilities().Devices) > 0 {
		err = fmt.Errorf("%w: device %q: %w", ErrUnsupported, o.device, without)
	}
	if err != nil {
		b.Finalize(ctx)
		return nil, nil, err
	}
	return b, dev, nil
}

// join makes the communicator of what open returned.
func (o *newOptions) join(cfg *config.Config, abort bool, b backend.Backend, dev *streams) *Comm {
	s := record.Settings{Entries: cfg.Record, Dir: cfg.DumpDir, Attempt: bootstrap.Attempt(os.Getenv)}
	if o.jobRanks == nil {
		o.recorder = record.Open(s, o.job, o.name, o.rank, o.size)
	} else {
		o.recorder = record.OpenPart(s, o.job, o.name, o.rank, o.jobRanks, o.jobSize)
	}
	o.engines = !cfg.DeviceInline
	c := newComm(b, o, abort)
	c.placement.Store(c.placementOn(dev))
	if _, each := c.opHints.Split(o.hints); len(each) > 0 {
		c.hints.Store(&each)
	}
	return c
}

func checkName(name string) error {
	if name == "" || strings.ContainsAny(name, "/\x00") {
		return fmt.Errorf("%w: a name must not be empty or contain a slash", ErrInvalidArgument)
	}
	return nil
}

// checkJobRanks refuses what can't be the communicator's ranks in the job.
func (o *newOptions) checkJobRanks() error {
	if !o.explicit || len(o.jobRanks) != o.size {
		return fmt.Errorf("%w: %d ranks of the job for a communicator of %d", ErrInvalidArgument, len(o.jobRanks), o.size)
	}
	seen := make(map[int]bool, len(o.jobRanks))
	for _, r := range o.jobRanks {
		if r < 0 || r >= o.jobSize || seen[r] {
			return fmt.Errorf("%w: ranks %v of a job of %d", ErrInvalidArgument, o.jobRanks, o.jobSize)
		}
		seen[r] = true
	}
	return nil
}

// place finds out rank, size and store where the options don't say; launched
// tells that the store is the launcher's.
func (o *newOptions) place(ctx context.Context, cfg *config.Config) (launched bool, err error) {
	if o.explicit {
		if err := bootstrap.CheckWorld(o.rank, o.size); err != nil {
			return false, fmt.Errorf("%w: %w", ErrInvalidArgument, err)
		}
	}
	if o.jobRanks != nil {
		if err := o.checkJobRanks(); err != nil {
			return false, err
		}
	}
	if o.explicit && (o.store != nil || o.size == 1) {
		// On the loopback is who relays to the store, which may be on another host.
		if host := bootstrap.MasterHost(os.Getenv); o.size > 1 && !secure.Loopback(host) {
			o.masterAddr = host
		}
		return false, nil
	}
	info, err := bootstrap.Detect(os.Getenv)
	switch {
	case errors.Is(err, bootstrap.ErrNoLauncher) && !o.explicit:
		o.rank, o.size = 0, 1
		return false, nil
	case err != nil:
		return false, err
	}
	if o.explicit {
		info.Rank, info.Size = o.rank, o.size
	}
	o.rank, o.size, o.masterAddr, o.job = info.Rank, info.Size, info.MasterAddr, info.RunID
	if o.store != nil || o.size == 1 {
		return false, nil
	}
	o.host, o.hosted = 0, !info.AgentStore && cfg.Store == ""
	o.store, err = openShared(ctx, info, bootstrap.Options{Timeout: o.timeout, Store: cfg.Store})
	return err == nil, err
}

func newComm(b backend.Backend, o *newOptions, abort bool) *Comm {
	c := &Comm{b: b, opHints: backend.HintsOf(o.backend), opened: *o, name: o.name, backend: o.backend,
		device: o.device, rank: o.rank, size: o.size, abortOnError: abort, abortBehind: o.abortBehind,
		log: o.log, rec: o.recorder,
		gate:      gate{shut: make(chan struct{})},
		finalizer: &finalizer{b: b, name: o.name, log: o.log, done: make(chan struct{}), rec: o.recorder}}
	c.opened.store, c.opened.recorder, c.opened.old = nil, nil, nil // another world has its own
	c.opened.beside = nil
	c.own.owner = true
	c.timeout.Store(int64(o.timeout))
	c.placement.Store(c.placementOn(nil))
	c.rounds.New = func() any { return new(round) }
	c.cleanup = runtime.AddCleanup(c, warnNotFinalized, c.finalizer)
	c.rec.Attach(b)
	if c.rec.Watches() {
		go c.finalizer.watch()
	}
	return c
}

// warnNotFinalized runs when a communicator was dropped without Finalize.
func warnNotFinalized(e *finalizer) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.finalized {
		return
	}
	e.finalized = true
	close(e.done)
	e.rec.Close()
	e.log.Warn("chorus: communicator was not finalized before it was dropped", "comm", e.name)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		e.b.Finalize(ctx)
		if e.leave != nil {
			e.leave()
		}
		e.closeEndpoint()
	}()
}

// Rank returns this rank, from 0.
func (c *Comm) Rank() int { return c.rank }

// Size returns the number of ranks.
func (c *Comm) Size() int { return c.size }

// Name returns the communicator's name.
func (c *Comm) Name() string { return c.name }

// Backend returns the name of the backend.
func (c *Comm) Backend() string { return c.backend }

// Device returns the device of the communicator's tensors, such as "cpu" or "accinte:1".
func (c *Comm) Device() string {
	if d := c.dev(); d != nil {
		return d.dev.Name()
	}
	if w, ok := c.b.(*worldless); ok && w.device.Load() != nil {
		return w.device.Load().Name()
	}
	return c.device
}

// Capabilities says what the backend can do.
func (c *Comm) Capabilities() Capabilities { return c.b.Capabilities() }

// Options are a communicator's settings, as they stand now.
type Options struct {
	Backend      string
	Device       string
	Timeout      time.Duration
	AbortOnError bool
	Hints        map[string]string // those that apply to operations
}

// Options returns the settings.
func (c *Comm) Options() Options {
	o := Options{Backend: c.backend, Device: c.Device(), Timeout: time.Duration(c.timeout.Load()),
		AbortOnError: c.abortOnError, Hints: map[string]string{}}
	if h := c.hints.Load(); h != nil {
		maps.Copy(o.Hints, *h)
	}
	return o
}

// SetTimeout changes the timeout of the operations issued from now on.
func (c *Comm) SetTimeout(d time.Duration) error {
	if d <= 0 {
		return c.invalid("", "timeout %v", d)
	}
	c.timeout.Store(int64(d))
	return nil
}

// SetHints replaces the hints that apply to the operations issued from now on, those that the backend's operations may
// have. Every rank must set the same at the same point of its program.
func (c *Comm) SetHints(hints map[string]string) error {
	for k := range hints {
		if !c.opHints.Has(k) {
			return c.invalid("", "hint %q cannot be changed after New; of backend %q can: %v", k, c.backend, c.opHints)
		}
	}
	if len(hints) == 0 {
		c.hints.Store(nil)
		return nil
	}
	if err := c.opHints.Check(c.at(""), hints); err != nil {
		return err
	}
	h := maps.Clone(hints)
	c.hints.Store(&h)
	return nil
}

// Finalize ends this rank's part of the communicator, after the operations that
// were issued before; if ctx ends first it aborts them. Windows that are still open end with it. It
// does not wait for the other ranks' Finalize. A second call returns *FinalizedError;
// forgetting it logs a warning once the Comm is garbage.
//
// A deferred Finalize that runs because the program panics breaks the communicator first. Operations of the other ranks
// return a *PeerLostError then, whose Cause says so, as if this rank had died.
func (c *Comm) Finalize(ctx context.Context) error {
	return c.leave(ctx, c.b.Finalize, "finalize gave up")
}

// Leave is Finalize for a program that ends early. Ranks that wait for this one afterwards get a *PeerLostError whose
// Cause is why, such as "it raised ValueError: bad batch (train.py:12)", cut at 200 bytes. An empty why stands for a
// process that exited with the communicator open. Backends other than native don't pass it on.
func (c *Comm) Leave(ctx context.Context, why string) error {
	gaveUp := "finalize gave up"
	if why != "" {
		gaveUp = why + "; " + gaveUp
	}
	return c.leave(ctx, func(ctx context.Context) error {
		if b, ok := c.b.(backend.Leaver); ok {
			b.Leaving(why)
		}
		return c.b.Finalize(ctx)
	}, gaveUp)
}

func (c *Comm) leave(ctx context.Context, last func(context.Context) error, gaveUp string) error {
	if ctx == nil {
		ctx = context.Background()
	}
	if panicking() && !c.gate.closed() {
		c.rec.Panicked()
		if b, ok := c.b.(backend.Ender); ok {
			b.Ending(panickedReason)
		} else {
			c.Abort(errors.New(panickedReason))
		}
		// In case that the program goes on; this rank must not end later than the ranks that hear of it.
		go c.finalize(ctx, last, gaveUp)
		return nil
	}
	return c.finalize(ctx, last, gaveUp)
}

// finalize ends this rank's part by last, the backend's; gaveUp is the reason that the others get if ctx
// ends before.
func (c *Comm) finalize(ctx context.Context, last func(context.Context) error, gaveUp string) error {
	_ = c.placement.Load().quiesce(ctx) // if ctx ends, so does the rest
	e := c.finalizer
	e.mu.Lock()
	if e.finalized {
		e.mu.Unlock()
		return &FinalizedError{Where: c.at("finalize")}
	}
	e.finalized = true
	c.gate.close()
	close(e.done)
	e.mu.Unlock()
	defer c.rec.Close()
	c.cleanup.Stop()
	var err error
	finished := c.lane.after(func() {
		<-c.gate.shut
		c.attempt("finalize", nil, func() error { return last(ctx) }, func(e error) { err = e })
	})
	select {
	case <-finished:
	case <-ctx.Done():
		c.b.Abort(fmt.Errorf("%s: %w", gaveUp, context.Cause(ctx)))
		<-finished
	}
	c.placement.Load().close()
	if e.leave != nil {
		err = errors.Join(err, e.leave())
	}
	return errors.Join(err, e.closeEndpoint())
}

// Abort breaks the communicator at once: every operation under way or issued
// later, on every rank, returns *AbortedError with the reason. Finalize is still due.
func (c *Comm) Abort(reason error) {
	if reason == nil {
		reason = errors.New("no reason given")
	}
	c.b.Abort(reason)
}

// Err returns why the communicator is broken, or nil. The rank's flight record, if it's to be written at a failure, is
// there by then, as the program may end next.
func (c *Comm) Err() error {
	cause := c.b.Cause()
	c.rec.Broken(cause)
	return cause
}

// Broken is closed when the communicator is broken, by whichever rank.
func (c *Comm) Broken() <-chan struct{} { return c.b.Broken() }

// at says where an error that concerns no numbered operation happened.
func (c *Comm) at(op string) Where { return Where{Comm: c.name, Reporter: c.rank, Op: op} }

func (c *Comm) invalid(op, format string, args ...any) error {
	return &InvalidArgumentError{Where: c.at(op), Detail: fmt.Sprintf(format, args...)}
}
