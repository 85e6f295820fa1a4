package backend

import (
	"context"
	"fmt"
	"log/slog"
	"sort"
	"sync"
	"time"

	"github.com/chorus-comms/chorus/store"
	"github.com/chorus-comms/chorus/tensor"
)

// Backend carries out the operations of one communicator on one rank.
type Backend interface {
	// Capabilities says what the backend can do. It never changes.
	Capabilities() Capabilities

	// Submit begins an operation. Collectives are complete when it returns;
	// the communicator calls it for one of them at a time, in issue order. A Send or
	// Recv is only posted, in issue order among those of its goroutine; Wait completes it.
	Submit(op *Op) error
	// Wait completes a posted Send or Recv. It's called once, from any goroutine.
	Wait(op *Op) error

	// Split makes communicators of parts of this one. It is collective over all
	// ranks; group lists this rank's part, in the order of the new ranks, and is empty
	// for a rank that takes part in none, which gets a nil Backend.
	Split(ctx context.Context, name string, group []int, timeout time.Duration, hints map[string]string) (Backend, error)

	// Abort breaks the communicator on this rank and tells the others why. It
	// returns at once; what waits returns the cause soon. Only the first cause counts.
	Abort(cause error)
	// Broken is closed when the communicator has been broken, by whichever side, and Cause says why.
	Broken() <-chan struct{}
	Cause() error

	// Finalize ends this rank's part after its operations are done.
	Finalize(ctx context.Context) error
}

// Launcher is implemented by backends whose Submit of a collective can be had in two parts, so that what a rank has to do on its own
// account happens while its word is on the way to the others.
type Launcher interface {
	// Launch is as much of Submit as waits for nobody. If it fails, so has the operation.
	Launch(op *Op) error
	// Complete is the rest, on the same goroutine.
	Complete(op *Op) error
}

// Windower is implemented by backends with one-sided windows.
type Windower interface {
	// NewWindow is collective. t is this rank's exposed memory, at least shaped alike
	// in dtype on every rank; sizes may differ.
	NewWindow(ctx context.Context, t *tensor.Tensor, timeout time.Duration) (Window, error)
}

// Refuser is implemented by backends that can say, to ranks which wait for a collective of
// this one, why it doesn't come.
type Refuser interface {
	// Refused reports that a collective, such as "all_reduce" or "split", ended with an error before it
	// reached the backend. Like Submit it's called for one of them at a time, in issue order.
	Refused(op string, why error)
}

// Teller is implemented by backends that can say, to ranks which wait for this one in vain, what it does instead.
type Teller interface {
	// Tell gives the backend a function that says so, as in Attendance.Doing. It may be called from any goroutine at any
	// time, and takes no lock that an operation holds.
	Tell(doing func() string)
}

// Courier is implemented by backends whose ranks can send each other word also when the communicator is broken, which is
// how its survivors find each other. Its methods may be called from any goroutine.
type Courier interface {
	// Word sends a payload of at most MaxWord bytes to a rank. It doesn't wait for it.
	Word(rank int, payload []byte) error
	// Words returns what has come since the last call. news is closed when there is more, or a rank is gone that wasn't.
	Words() (words []Word, news <-chan struct{})
	// Gone says which ranks are lost, and why.
	Gone() map[int]string
}

// Word is what a rank has sent.
type Word struct {
	From    int
	Payload []byte
}

// MaxWord is the most bytes of a Word.
const MaxWord = 2048

// Registrar is implemented by backends that prepare memory before its first use.
type Registrar interface {
	Register(t *tensor.Tensor) error
	Deregister(t *tensor.Tensor) error
}

// HintChecker is implemented by backends that know, before there is an operation, which of its hints' values they will refuse.
type HintChecker interface {
	// CheckHints returns an *InvalidArgumentError that names the hint, its value, and what is allowed.
	CheckHints(hints map[string]string) error
}

// Counter is implemented by backends that count how the data of collectives moved.
type Counter interface {
	Traffic() Traffic
}

// Traffic counts the collectives of several ranks on this rank.
type Traffic struct {
	Mapped uint64 // that read and wrote the ranks' own memory in place
	Staged uint64 // whose data went through memory of the backend, or messages
}

// Capabilities is what a backend can do.
type Capabilities struct {
	Name       string
	Devices    []string // device types, such as "cpu"
	Windows    bool
	SharedMem  bool // some peers' memory can be mapped
	Abort      bool
	AnySource  bool
	Tags       bool
	InProcess  bool // ranks may be goroutines of one process
	MaxWorld   int  // 0: no limit
	LocalSize  int  // how many of the ranks are on this rank's host, with itself; 0: not known
	NoOp       bool // operations succeed without moving data (fake)
	Reductions []ReduceKind
}

// Config is what a backend needs to begin.
type Config struct {
	Name       string
	Rank, Size int
	Store      store.Store // keys are this communicator's own; nil if Size is 1
	Device     string
	Timeout    time.Duration // for start-up and for operations without their own
	Hints      map[string]string
	OpHints    map[string]string // those that every operation will have; for a HintChecker to refuse
	MasterAddr string            // host that the route to the peers is chosen by; may be empty
	Log        *slog.Logger
}

// Opener begins this rank's part of a communicator; every rank calls it.
type Opener func(ctx context.Context, c Config) (Backend, error)

var (
	mu      sync.RWMutex
	openers = map[string]Opener{}
)

// Register makes a backend available under a name. It panics if the name is taken.
func Register(name string, open Opener) {
	mu.Lock()
	defer mu.Unlock()
	if open == nil {
		panic("backend: Register with a nil opener for " + name)
	}
	if _, dup := openers[name]; dup {
		panic("backend: Register called twice for " + name)
	}
	openers[name] = open
}

// Names returns the registered backends, sorted.
func Names() []string {
	mu.RLock()
	defer mu.RUnlock()
	names := make([]string, 0, len(openers))
	for n := range openers {
		names = append(names, n)
	}
	sort.Strings(names)
	return names
}

// Open begins a communicator with the named backend.
func Open(ctx context.Context, name string, c Config) (Backend, error) {
	mu.RLock()
	open := openers[name]
	mu.RUnlock()
	if open == nil {
		return nil, fmt.Errorf("unknown backend %q; registered are %v (a backend registers when its package is imported)", name, Names())
	}
	return open(ctx, c)
}
