package comm

import (
	"cmp"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/observe/record"
	"github.com/chorus-comms/chorus/store"
	"github.com/chorus-comms/chorus/tensor"
)

// NewOption configures a new communicator.
type NewOption func(*newOptions)

type newOptions struct {
	backend      string
	device       string
	name         string
	rank, size   int
	explicit     bool
	store        store.Store
	host         int  // whose process serves the store; -1 if that is none of the ranks
	hosted       bool // host is known
	timeout      time.Duration
	hints        map[string]string
	abortOnError *bool
	abortBehind  bool
	log          *slog.Logger
	masterAddr   string
	priority     device.Priority // of the streams of asynchronous operations
	replays      time.Duration   // between looks at the runs of graphs; 0: there are none
	engines      bool            // do all that is on a device
	job          string          // the launcher's name for it
	jobRanks     []int           // by rank of the communicator, if they are others
	jobSize      int
	again        bool // the name may have been used before
	recorder     *record.Recorder
	newcomer     bool
	beside       *Comm           // of the same ranks, whose failures are this one's
	old          backend.Backend // whose successor it's going to be, if that can be of use; nil otherwise
	world        string          // which it is of those that a process may have been in, for handles
}

// WithoutWorld makes New return at once, with a communicator of no ranks: Rank is -1, Size 0, and nothing works but
// Handle, Reconfigure, Regroup and Finalize. It's how a process asks to be taken into a world that others are in
// already. Rank, size and store are ignored.
func WithoutWorld() NewOption { return func(o *newOptions) { o.newcomer = true } }

// WithBackend chooses the backend by its registered name; the default is that of CHORUS_BACKEND, or else "native".
func WithBackend(name string) NewOption { return func(o *newOptions) { o.backend = name } }

// WithDevice names the device of the tensors: a type and perhaps an index, as in "accinte:1". Without an index it's the
// current device of that type ([device.Current]). The default is "cpu", the host.
// On a device, operations are enqueued on streams; see the package comment.
func WithDevice(device string) NewOption { return func(o *newOptions) { o.device = device } }

// WithName names the communicator in messages and keeps its keys in the store
// apart from those of others. The name must be the same on all ranks and fresh
// on its store; the default is "world".
func WithName(name string) NewOption { return func(o *newOptions) { o.name = name } }

// WithNameAgain lets the communicator have a name that others had on its store, which have ended: it is the next one
// with the name. All ranks pass it, for each of them. A New that has failed needs no such option to be tried again.
func WithNameAgain() NewOption { return func(o *newOptions) { o.again = true } }

// WithRank sets rank and world size, of at most a million (bootstrap.MaxRanks). It wins over every launcher's.
func WithRank(rank, size int) NewOption {
	return func(o *newOptions) { o.rank, o.size, o.explicit = rank, size, true }
}

// WithJobRanks says that the communicator's ranks are some of a job's, which has size of them: ranks lists them, by
// rank of the communicator. Flight records and what is explained of them speak of the job's ranks. Without it the
// communicator's are the job's.
func WithJobRanks(ranks []int, size int) NewOption {
	return func(o *newOptions) { o.jobRanks, o.jobSize = slices.Clone(ranks), size }
}

// WithStore sets the store through which the ranks find each other. The caller
// keeps it open until New returns and closes it.
func WithStore(s store.Store) NewOption { return func(o *newOptions) { o.store = s } }

// WithStoreHost says that the store of WithStore is served by the process of a rank of the new communicator; -1: by one
// that is not among them, but may die like them. If the store is lost, New's error is a *[PeerLostError] with that
// rank.
func WithStoreHost(rank int) NewOption { return func(o *newOptions) { o.host, o.hosted = rank, true } }

// WithBeside says that the communicator is a second one of c's ranks, or of some of them, for the tensors of another
// device. A failure that breaks one of the two on a rank breaks the other one there, with the same cause, and New gives
// up when c breaks. Each of the two is finalized by itself.
func WithBeside(c *Comm) NewOption { return func(o *newOptions) { o.beside = c } }

// WithTimeout bounds New and every operation without a Timeout of its own. The
// default is TORCHCOMM_TIMEOUT_SECONDS, or 600 seconds.
func WithTimeout(d time.Duration) NewOption { return func(o *newOptions) { o.timeout = d } }

// WithHints passes settings to the backend; unknown names are an error.
func WithHints(hints map[string]string) NewOption {
	return func(o *newOptions) {
		if o.hints == nil {
			o.hints = map[string]string{}
		}
		maps.Copy(o.hints, hints)
	}
}

// WithFabric is short for the hint "fabric": auto, shm, tcp, mem.
func WithFabric(name string) NewOption { return WithHints(map[string]string{"fabric": name}) }

// WithAbortOnError makes a failure that breaks the communicator, and a message that doesn't come in
// time, abort the process. The default is TORCHCOMM_ABORT_ON_ERROR, or false.
func WithAbortOnError(abort bool) NewOption {
	return func(o *newOptions) { o.abortOnError = &abort }
}

// WithAbortBehind makes the process abort when an operation fails that a backend's library has on a stream, as NCCL's
// do: what the program has enqueued behind it goes on without its results. The error, with the place of the call, is
// printed first, and the flight record is written. An error that a call or a wait returns doesn't end the process.
func WithAbortBehind(abort bool) NewOption { return func(o *newOptions) { o.abortBehind = abort } }

// WithLogger sets where warnings go; the default is slog.Default.
func WithLogger(l *slog.Logger) NewOption {
	return func(o *newOptions) { o.log = cmp.Or(l, slog.Default()) }
}

// Option changes one operation.
type Option func(*call)

// Async makes the operation return as soon as it is issued; w tells when it's
// done. The tensors belong to the operation until then.
func Async(w *Work) Option { return func(c *call) { c.work = w } }

// Timeout bounds this operation; it counts from the operation's start.
func Timeout(d time.Duration) Option { return func(c *call) { c.Timeout = d } }

// Messages of the communicator itself have tags from ownTags on; those of objects have objectTag.
const (
	ownTags   = 1 << 62
	objectTag = ownTags + 1
)

// Tag distinguishes messages between the same ranks; a Recv matches a Send with the same tag. It's less than 1<<62, and
// with backend gloo less than 1<<31.
func Tag(tag int) Option { return func(c *call) { c.Tag = tag } }

// Site records the operation as called at a place in a program of another language, by its number of record.Site.
func Site(n uint16) Option { return func(c *call) { c.Op.Site = n } }

// Into puts the result of AllReduce or Reduce (at the root) into out and leaves the input as it is.
func Into(out *tensor.Tensor) Option { return func(c *call) { c.into, c.hasInto = out, true } }

// From receives the source's rank once a Recv from AnySource is done.
func From(rank *int) Option { return func(c *call) { c.from = rank } }

// Hint passes a setting to the backend for this operation; every rank must pass the same.
func Hint(name, value string) Option {
	return func(c *call) {
		h := make(map[string]string, len(c.Hints)+1)
		maps.Copy(h, c.Hints)
		h[name] = value
		c.Hints = h
	}
}

// Algorithm is short for Hint("algorithm", name).
func Algorithm(name string) Option { return Hint("algorithm", name) }
