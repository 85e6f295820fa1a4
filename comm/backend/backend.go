package backend

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/chorus-comms/chorus/bootstrap"
	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/device/cache"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/secure"
	"github.com/chorus-comms/chorus/store"
	"github.com/chorus-comms/chorus/tensor"
)

// Backend carries out the operations of one communicator on one rank.
type Backend interface {
	// Capabilities says what the backend can do. It never changes.
	Capabilities() Capabilities

	// Submit begins an operation: it does as much of it as it can without waiting for another rank. If it fails, so
	// has the operation. The communicator calls it for one collective at a time, in issue order, and for a Send or
	// Recv in issue order among those of its goroutine.
	Submit(op *Op) error
	// Wait completes an operation that Submit has begun. It's called once, on any goroutine; for a collective before
	// the next one begins.
	Wait(op *Op) error

	// Split makes communicators of parts of this one. It is collective over all
	// ranks; group lists this rank's part, in the order of the new ranks, and is empty
	// for a rank that takes part in none, which gets a nil Backend.
	Split(ctx context.Context, name string, group []int, timeout time.Duration,
		hints map[string]string) (Backend, error)

	// Abort breaks the communicator on this rank and tells the others why. It
	// returns at once; what waits returns the cause soon. Only the first cause counts.
	Abort(cause error)
	// Broken is closed when the communicator has been broken, by whichever side, and Cause says why.
	Broken() <-chan struct{}
	Cause() error

	// Finalize ends this rank's part after its operations are done.
	Finalize(ctx context.Context) error
}

// Enqueuer is implemented by backends of devices whose library puts operations on a stream by itself, as NCCL does.
// The library carries them out with no more help, and gives a stream that is captured nodes of its graph.
type Enqueuer interface {
	// Enqueue puts operations on their Stream, the same one for all, sets their Seq, Algorithm and From, and returns
	// when they are there; it waits no longer than their Timeout. They are collectives, one or several, or sends and
	// receives that are done together, whichever of them come first. Several are one group of the library: none is
	// there if it fails. It is called in issue order, for one communicator of a rank at a time, and never during a
	// Split. Tensors are the device's; a factor may be on the host. A later failure breaks the communicator, and ends
	// the operations' part in their stream.
	Enqueue(ops ...*Op) error
	// Overdue reports that an operation isn't done although its stream reached it elapsed ago, which is more than its
	// Timeout. The backend breaks the communicator with a *TimeoutError, in which it says what it knows of the others.
	// An operation on a window, which at names, is passed as a message from or to its Peer. An operation that a graph
	// has captured, which has Running, is passed without its tensors: a run of the graph is overdue.
	Overdue(at Where, op *Op, elapsed time.Duration)
	// BeforeStop sets a function that the backend calls when the communicator is broken, before it ends operations under
	// way: those that are done by then have their results. It's called once, before the first Enqueue.
	BeforeStop(f func())
}

// Parter is implemented by backends that tell the other ranks of a failure beside the program.
type Parter interface {
	// Part returns when the others know of the failure that has broken the communicator, or after a moment. The process
	// ends then.
	Part()
}

// Assembler is implemented by backends that know when a collective waits for no program any more.
type Assembler interface {
	// Assembled reports whether all ranks have come to the collective that Submit has begun: what Wait takes then is
	// the time that its data takes. It looks for some microseconds at most, as long as it takes to wake a thread.
	Assembled() bool
}

// Piecewise is implemented by backends that can begin with the first bytes of large operands while the others come.
type Piecewise interface {
	// InPieces reports whether it heeds the Pieces of an operation.
	InPieces(op *Op) bool
}

// Pieces are the operands of an operation that come, and the result that goes, one piece after the other.
type Pieces interface {
	// Await waits until so many bytes of In are there, from the first on, or all if it has fewer. It's due before those
	// are read, and before what has the same place in Out is written. Submit and Wait return its error as a failure.
	Await(bytes int) error
	// Final says that so many bytes of Out, from the first on, will not change any more.
	Final(bytes int)
}

// Windower is implemented by backends with one-sided windows.
type Windower interface {
	// NewWindow is collective. t is this rank's exposed memory, at least shaped alike
	// in dtype on every rank; sizes may differ. A backend whose Capabilities have no Windows returns an
	// *UnsupportedError.
	NewWindow(ctx context.Context, t *tensor.Tensor, timeout time.Duration) (Window, error)
}

// Failer is implemented by backends that can be broken by a failure of another communicator.
type Failer interface {
	// Fail is Abort with a typed error that this rank, and the others, get as it is.
	Fail(cause error)
}

// Leaver is implemented by backends whose ranks can say why they leave a communicator that is not broken.
type Leaver interface {
	// Leaving comes right before Finalize. Ranks that wait for this one later fail with a *PeerLostError, whose Cause
	// is why, shortened, or if that's empty, that this rank's process exited with the communicator open.
	Leaving(why string)
}

// Ender is implemented by backends that can tell the other ranks that this rank's program ends, whatever it is doing.
type Ender interface {
	// Ending breaks the communicator at once, before Finalize: this rank's operations fail as after Abort, and the other
	// ranks' with a *PeerLostError whose Cause is why.
	Ending(why string)
}

// Messenger is implemented by backends whose ranks can send each other control payloads beside their operations.
// They can do so when the communicator is broken, too: this is how its survivors find each other. Its methods may
// be called from any goroutine.
type Messenger interface {
	// SendControl sends a payload of at most MaxControl bytes to a rank. It doesn't wait for it.
	SendControl(rank int, payload []byte) error
	// Controls returns the payloads that have come since the last call. news is closed when there are more, or
	// another rank is lost or has closed its end.
	Controls() (words []Control, news <-chan struct{})
	// Gone says which ranks are lost, and why.
	Gone() map[int]string
	// Closed says which ranks have closed their ends without a fault. They may go on elsewhere.
	Closed() []int
	// Refused reports that a collective, such as "all_reduce" or "split", ended with an error before it reached the
	// backend. The errors of ranks that wait for it then say why it doesn't come. Like Submit it's called for one of
	// them at a time, in issue order.
	Refused(op string, why error)
	// SetDoing gives the backend a function that says what this rank does, as in Attendance.Doing, for ranks
	// whose waits for it time out. The backend may call it from any goroutine at any time; it takes no lock that an
	// operation holds.
	SetDoing(doing func() string)
}

// Control is a payload that a rank has sent.
type Control struct {
	From    int
	Payload []byte
}

// MaxControl is the most bytes of a Control's payload.
const MaxControl = 2048

// Registrar is implemented by backends that prepare memory before its first use.
type Registrar interface {
	Register(t *tensor.Tensor) error
	Deregister(t *tensor.Tensor) error
}

// Symmetric is implemented by backends whose library is faster with memory that lies alike on all ranks.
type Symmetric interface {
	// RegisterSymmetric prepares blocks of the library's own memory ([Pooled]), each of them a whole allocation. Every
	// rank gives as many blocks of the same sizes, in any order. DeregisterSymmetric ends that for blocks of which
	// nothing is under way. Both are collective.
	RegisterSymmetric(ctx context.Context, blocks []*tensor.Tensor, timeout time.Duration) error
	DeregisterSymmetric(ctx context.Context, blocks []*tensor.Tensor, timeout time.Duration) error
}

// Pooled is implemented by backends whose library gives device memory of its own, with which it's fastest.
type Pooled interface {
	// Pool is where the device's allocator has that memory; an *UnsupportedError if this library has none.
	Pool() (cache.PoolID, error)
}

// Suspender is implemented by backends that can give up memory that they hold for a communicator, and take it again.
type Suspender interface {
	// Suspend gives it up, and Resume takes it again. They are collective, and called when nothing is under way.
	Suspend(ctx context.Context) error
	Resume(ctx context.Context) error
}

// TrafficCounter is implemented by backends that count how the data of collectives and windows moved.
type TrafficCounter interface {
	Traffic() Traffic
}

// Traffic counts the collectives of several ranks on this rank, and what it puts into, gets from and accumulates in
// windows.
type Traffic struct {
	Mapped uint64 // that read and wrote the ranks' own memory in place
	Staged uint64 // whose data went through memory of the backend, or messages
}

// Capabilities is what a backend can do.
type Capabilities struct {
	Name      string
	Devices   []string // types of device, such as "cpu", or single devices, such as "cuda:1"
	Windows   bool
	PutOnly   bool // windows have Put, Signal and WaitSignal alone
	SharedMem bool // some peers' memory can be mapped
	Abort     bool
	AnySource bool
	Tags      bool
	InProcess bool // ranks may be goroutines of one process
	MaxWorld  int  // 0: no limit
	LocalSize int  // how many of the ranks are on this rank's host, with itself; 0: not known
	NoOp      bool // operations succeed without moving data (fake)
	Foreign   bool // members may be no programs of Chorus: the wire compares no operations, and messages have no dtype
	// Reduces says whether it has a reduction on a dtype on which that is defined; nil: it has all.
	Reduces func(k ReduceKind, dt dtype.DType) bool
}

// Reductions are those that the backend has on some dtype.
func (c *Capabilities) Reductions() (all []ReduceKind) {
	for k := SumKind; k <= PremulSumKind; k++ {
		has := func(dt dtype.DType) bool { return k.Defined(dt) && (c.Reduces == nil || c.Reduces(k, dt)) }
		if slices.ContainsFunc(dtype.All(), has) {
			all = append(all, k)
		}
	}
	return all
}

// Serves reports whether the backend works for a device, such as "cuda:1": by its name, or by its type.
func (c *Capabilities) Serves(device string) bool {
	kind, _, _ := strings.Cut(device, ":")
	return slices.Contains(c.Devices, device) || slices.Contains(c.Devices, kind)
}

// Config is what a backend needs to begin.
type Config struct {
	Name       string
	Rank, Size int
	Rendezvous *bootstrap.Rendezvous // of the communicator's ranks, for Meet; nil: one in Store
	Store      store.Store           // keys are this communicator's own; nil if Size is 1
	// The same store, with all keys of the job: where programs meet that aren't Chorus; stays open.
	Job        store.Store
	Device     string        // with its index, as device.Get takes it; "cpu" is the host
	Timeout    time.Duration // for start-up and for operations without their own
	Hints      map[string]string
	MasterAddr string // host that the route to the peers is chosen by; may be empty
	Log        *slog.Logger
	// Old is this rank's part of a communicator whose survivors are among the members of this one; nil if there is
	// none. It's broken, or has nothing under way. A backend may make the new communicator from it. Package comm
	// finalizes it.
	Old Backend
}

// Exchange gives every rank what each has brought, in order of rank. An Opener calls it before it uses the Store, which
// is that of this attempt from then on: what a failed attempt to make the same communicator has left is out of sight. A
// backend that doesn't call it meets whatever is there.
func (c *Config) Exchange(ctx context.Context, payload []byte) ([][]byte, error) {
	if c.Size == 1 {
		return [][]byte{payload}, nil
	}
	policy, err := secure.Environment()
	if err != nil {
		return nil, err
	}
	if c.Rendezvous == nil {
		c.Rendezvous = bootstrap.NewRendezvous(c.Store, c.Rank, c.Size)
	}
	at := Where{Comm: c.Name, Reporter: c.Rank, Op: "new"}
	all, err := c.Rendezvous.Exchange(ctx, policy.Secret, payload)
	if twice, ok := errors.AsType[*bootstrap.DuplicateRankError](err); ok {
		return nil, &InvalidArgumentError{Where: at, Detail: twice.Error(), Err: twice}
	}
	if x, ok := errors.AsType[*bootstrap.CrossedError](err); ok {
		return nil, &MismatchError{Where: at, RankA: x.RankA, RankB: x.RankB, OpA: "new(ranks " + x.A + " of the job)",
			OpB: "new(ranks " + x.B + " of the job)"}
	}
	if errors.Is(err, bootstrap.ErrCompleted) {
		return nil, c.Used()
	}
	c.Store = c.Rendezvous.Store()
	return all, err
}

// Used is the error of an Opener that finds another communicator of the name.
func (c *Config) Used() error {
	return &InvalidArgumentError{Where: Where{Comm: c.Name, Reporter: c.Rank, Op: "new"}, Detail: fmt.Sprintf("the name was "+
		"used on this store before, or more than %d ranks join; give each communicator a name of its own (WithName), and each "+
		"run of a job at a store that stays (TORCHELASTIC_RUN_ID)", c.Size)}
}

// Opener begins this rank's part of a communicator; every rank calls it.
type Opener func(ctx context.Context, c Config) (Backend, error)

type registration struct {
	open  Opener
	hints OpHints
}

var (
	mu         sync.RWMutex
	registered = map[string]registration{}
	pools      = map[string]func(d *device.Device) (cache.PoolID, error){}
)

// Register makes a backend available under a name, with the hints that each of its operations may have. It panics if
// the name is taken.
func Register(name string, open Opener, hints ...OpHint) {
	mu.Lock()
	defer mu.Unlock()
	if open == nil {
		panic("backend: Register with a nil opener for " + name)
	}
	if _, dup := registered[name]; dup {
		panic("backend: Register called twice for " + name)
	}
	registered[name] = registration{open, hints}
}

// RegisterPool makes a backend's Pooled memory available before there is a communicator. It's called beside Register.
func RegisterPool(name string, open func(d *device.Device) (cache.PoolID, error)) {
	mu.Lock()
	defer mu.Unlock()
	pools[name] = open
}

// PoolOf returns the pool of a backend's own memory of a device; the zero one if it has no own.
func PoolOf(name string, d *device.Device) (cache.PoolID, error) {
	mu.RLock()
	open := pools[name]
	mu.RUnlock()
	if open == nil {
		return cache.PoolID{}, nil
	}
	return open(d)
}

// Names returns the registered backends, sorted.
func Names() []string {
	mu.RLock()
	defer mu.RUnlock()
	return slices.Sorted(maps.Keys(registered))
}

// Open begins a communicator with the named backend.
func Open(ctx context.Context, name string, c Config) (Backend, error) {
	mu.RLock()
	open := registered[name].open
	mu.RUnlock()
	if open == nil {
		return nil, errors.New(Unknown(name))
	}
	return open(ctx, c)
}

// packages are where this module's backends are, which register when they are imported.
var packages = map[string]string{"native": "native", "gloo": "gloo", "nccl": "nccl", "ncclx": "nccl", "rccl": "nccl",
	"accl": "accl", "mpi": "mpi", "fake": "fake"}

// Unknown says that no such backend is registered, and which import would register it.
func Unknown(name string) string {
	if p, ours := packages[name]; ours {
		return fmt.Sprintf("backend %q registers when its package is imported: import _ %q; registered are %v", name,
			"github.com/chorus-comms/chorus/comm/"+p, Names())
	}
	return fmt.Sprintf("unknown backend %q; registered are %v (a backend registers when its package is imported)", name,
		Names())
}
