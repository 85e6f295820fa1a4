//go:build linux

package nccltest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/chorus-comms/chorus/bootstrap"
	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/comm/native"
	"github.com/chorus-comms/chorus/comm/nccl/abi"
	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/store"
)

// Levels are releases that differ in what they have.
var Levels = []string{"2.18", "2.19", "2.27", "2.28", "2.29", "2.32"}

// Options say what a library is like.
type Options struct {
	Version string // the functions and configurations that it has
	// Driver is whose streams and memory it works on. It must be device.HostKernels.
	Driver device.Driver
	// Current, if not nil, is asked for the calling thread's device; where it knows none, and if it's nil, the driver is.
	Current func() (dev int, ok bool)
	// Fail, if not nil, is asked at each call of a function, "ncclAllReduce" for example, of a rank (-1: of none yet):
	// a result other than success is the call's, which does nothing else then. It's called from any goroutine.
	Fail func(call string, rank int) abi.Result
	// WaitsForSignal, if not nil, is called when a stream comes to a ncclWaitSignal whose signals haven't come. It's
	// called from any goroutine.
	WaitsForSignal func(rank int)
}

// A Library is a stand-in.
type Library struct {
	opts    Options
	version abi.Version
	kernels device.HostKernels

	mu     sync.Mutex
	comms  map[abi.Comm]*communicator
	groups map[int]*group // by the thread that has begun them
	redOps map[abi.RedOp]factor
	regs   map[uintptr]uintptr
	given  map[uintptr]uint64 // bytes of ncclMemAlloc, by address
	next   uintptr            // the last handle
	last   atomic.Pointer[string]
}

// New makes a stand-in.
func New(opts Options) (*Library, error) {
	v, err := abi.ParseVersion(opts.Version)
	if err != nil {
		return nil, err
	}
	k, ok := opts.Driver.(device.HostKernels)
	if !ok {
		return nil, errors.New("nccltest: the driver's memory can't be touched by engines of the process")
	}
	return &Library{opts: opts, version: v, kernels: k, comms: map[abi.Comm]*communicator{}, groups: map[int]*group{},
		redOps: map[abi.RedOp]factor{}, regs: map[uintptr]uintptr{}, given: map[uintptr]uint64{}}, nil
}

// Table returns the functions that the version has.
func (l *Library) Table() abi.Table {
	t := abi.Table{
		GetVersion:           func(v *int32) abi.Result { *v = int32(l.version); return abi.Success },
		GetUniqueID:          l.uniqueID,
		GetErrorString:       errorString,
		GetLastError:         func(abi.Comm) string { return l.lastError() },
		GetAsyncError:        l.asyncError,
		CommInitRank:         l.initRank,
		CommInitRankConfig:   l.initRankConfig,
		CommFinalize:         l.finalize,
		CommDestroy:          l.destroy,
		CommAbort:            l.abort,
		CommSplit:            l.split,
		GroupStart:           l.groupStart,
		GroupEnd:             l.groupEnd,
		RedOpCreatePreMulSum: l.premul,
		RedOpDestroy:         l.redOpDestroy,
		AllReduce:            l.allReduce,
		Reduce:               l.reduce,
		ReduceScatter:        l.reduceScatter,
		Broadcast:            l.broadcast,
		AllGather:            l.allGather,
		Send:                 l.send,
		Recv:                 l.recv,
		AllToAll:             l.allToAll,
		Gather:               l.gather,
		Scatter:              l.scatter,
		MemAlloc:             l.memAlloc,
		MemFree:              l.memFree,
		CommRegister:         l.register,
		CommDeregister:       l.deregister,
		WindowRegister:       l.windowRegister,
		WindowDeregister:     l.windowDeregister,
		PutSignal:            l.putSignal,
		Signal:               l.signal,
		WaitSignal:           l.waitSignal,
		Shrink:               l.shrink,
		Revoke:               l.revoke,
		Grow:                 l.grow,
		CommGetUniqueID:      l.commUniqueID,
		Suspend:              l.suspend,
		Resume:               l.resume,
		AllReduceWith: func(in, out uintptr, n uint64, dt abi.DataType, red abi.RedOp, h abi.Comm, s abi.Stream,
			p unsafe.Pointer) abi.Result {
			return l.configured("ncclAllReduceConfig", h, p, func() abi.Result { return l.allReduce(in, out, n, dt, red, h, s) })
		},
		ReduceWith: func(in, out uintptr, n uint64, dt abi.DataType, red abi.RedOp, root int32, h abi.Comm, s abi.Stream,
			p unsafe.Pointer) abi.Result {
			return l.configured("ncclReduceConfig", h, p, func() abi.Result { return l.reduce(in, out, n, dt, red, root, h, s) })
		},
		ReduceScatterWith: func(in, out uintptr, n uint64, dt abi.DataType, red abi.RedOp, h abi.Comm, s abi.Stream,
			p unsafe.Pointer) abi.Result {
			return l.configured("ncclReduceScatterConfig", h, p, func() abi.Result {
				return l.reduceScatter(in, out, n, dt, red, h, s)
			})
		},
		BroadcastWith: func(in, out uintptr, n uint64, dt abi.DataType, root int32, h abi.Comm, s abi.Stream,
			p unsafe.Pointer) abi.Result {
			return l.configured("ncclBroadcastConfig", h, p, func() abi.Result {
				return l.broadcast(in, out, n, dt, root, h, s)
			})
		},
		AllGatherWith: func(in, out uintptr, n uint64, dt abi.DataType, h abi.Comm, s abi.Stream,
			p unsafe.Pointer) abi.Result {
			return l.configured("ncclAllGatherConfig", h, p, func() abi.Result { return l.allGather(in, out, n, dt, h, s) })
		},
		AllToAllWith: func(in, out uintptr, n uint64, dt abi.DataType, h abi.Comm, s abi.Stream,
			p unsafe.Pointer) abi.Result {
			return l.configured("ncclAlltoAllConfig", h, p, func() abi.Result { return l.allToAll(in, out, n, dt, h, s) })
		},
		GatherWith: func(in, out uintptr, n uint64, dt abi.DataType, root int32, h abi.Comm, s abi.Stream,
			p unsafe.Pointer) abi.Result {
			return l.configured("ncclGatherConfig", h, p, func() abi.Result { return l.gather(in, out, n, dt, root, h, s) })
		},
	}
	v := reflect.ValueOf(&t).Elem()
	for i := range v.NumField() {
		if g, ok := v.Field(i).Addr().Interface().(*abi.Gate); ok && *g == nil {
			*g = func() abi.Result { return abi.InternalError }
		}
	}
	t.SparseReduce = nil // NCCLX's
	for i := range v.NumField() {
		if since := v.Type().Field(i).Tag.Get("since"); since != "" {
			if first, err := abi.ParseVersion(since); err != nil || first > l.version {
				l.drop(v, v.Type().Field(i).Tag.Get("cap"))
			}
		}
	}
	return t
}

// configured looks at an operation's configuration, which must make sense, and calls the operation itself.
func (l *Library) configured(name string, h abi.Comm, p unsafe.Pointer, call func() abi.Result) abi.Result {
	return l.with(name, h, func(*communicator) abi.Result {
		set, err := abi.UnpackOperation(l.version, p)
		if low, e := strconv.Atoi(set["minCTAs"]); err == nil && e == nil {
			if high, e := strconv.Atoi(set["maxCTAs"]); e == nil && high < low {
				err = fmt.Errorf("minCTAs %d, maxCTAs %d", low, high)
			}
		}
		if err != nil {
			return l.wrong(abi.InvalidArgument, "%s: %v", name, err)
		}
		return call()
	})
}

// drop takes out all functions of a capability.
func (l *Library) drop(table reflect.Value, capability string) {
	for i := range table.NumField() {
		if table.Type().Field(i).Tag.Get("cap") == capability {
			table.Field(i).SetZero()
		}
	}
}

// communicator is one rank's part of one.
type communicator struct {
	rank, n  int
	id       abi.UniqueID // where its parts meet
	splits   int
	resizes  int      // shrinks and grows so far
	meet     []string // where the ranks' processes have their stores
	revoked  atomic.Bool
	asleep   atomic.Bool // suspended
	sent     []int       // messages to each rank, and then from each
	async    atomic.Int32
	aborted  chan struct{}
	running  sync.WaitGroup // operations that use b, none of which begins when it's aborted
	ending   sync.Mutex
	ctx      context.Context // ends when it's aborted
	cancel   context.CancelFunc
	b        atomic.Pointer[backend.Backend]
	lane     sync.Mutex // of collectives
	blocking bool
	windows  windows
	graphs   atomic.Int32   // that have captured operations, and are there
	finals   sync.WaitGroup // ncclCommFinalize under way
}

func newCommunicator(rank, n int, id abi.UniqueID) *communicator {
	c := &communicator{rank: rank, n: n, id: id, sent: make([]int, 2*n), aborted: make(chan struct{})}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

func (l *Library) add(c *communicator) abi.Comm {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.next += 16
	l.comms[abi.Comm(l.next)] = c
	return abi.Comm(l.next)
}

func (l *Library) comm(h abi.Comm) *communicator {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.comms[h]
}

// with runs f for a communicator, unless there is none or the call is to fail.
func (l *Library) with(call string, h abi.Comm, f func(c *communicator) abi.Result) abi.Result {
	c := l.comm(h)
	if c == nil {
		return l.wrong(abi.InvalidArgument, "%s: no such communicator", call)
	}
	if r := l.fail(call, c.rank); r != abi.Success {
		return r
	}
	if f == nil {
		return abi.Success
	}
	return f(c)
}

func (l *Library) fail(call string, rank int) abi.Result {
	if l.opts.Fail == nil {
		return abi.Success
	}
	r := l.opts.Fail(call, rank)
	if r != abi.Success {
		l.wrong(r, "%s fails on purpose", call)
	}
	return r
}

// wrong notes what the last error was.
func (l *Library) wrong(r abi.Result, format string, args ...any) abi.Result {
	s := fmt.Sprintf(format, args...)
	l.last.Store(&s)
	return r
}

func (l *Library) lastError() string {
	if s := l.last.Load(); s != nil {
		return *s
	}
	return ""
}

func errorString(r abi.Result) string {
	texts := []string{"no error", "unhandled cuda error", "unhandled system error", "internal error", "invalid argument",
		"invalid usage", "remote process exited or there was a network error", "NCCL operation in progress"}
	if r >= 0 && int(r) < len(texts) {
		return texts[r]
	}
	return "unknown result code"
}

func (l *Library) asyncError(h abi.Comm, r *abi.Result) abi.Result {
	return l.with("ncclCommGetAsyncError", h, func(c *communicator) abi.Result {
		*r = abi.Result(c.async.Load())
		return abi.Success
	})
}

// idStore is the store of this process. Ranks of communicators whose unique ids come from this process meet in it. It's
// never closed.
var idStore = sync.OnceValues(func() (*store.TCPServer, error) {
	return store.ListenTCP("127.0.0.1:0", store.ServerOptions{})
})

var ids atomic.Uint64

// text is what an id says: an address and a name.
func text(id abi.UniqueID) (addr, name string) {
	b := unsafe.Slice((*byte)(unsafe.Pointer(&id.Words[0])), unsafe.Sizeof(id))
	parts := bytes.SplitN(bytes.TrimRight(b, "\x00"), []byte{' '}, 2)
	if len(parts) < 2 {
		return "", ""
	}
	return string(parts[0]), string(parts[1])
}

func idOf(addr, name string) (id abi.UniqueID) {
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&id.Words[0])), unsafe.Sizeof(id)), addr+" "+name)
	return id
}

func (l *Library) uniqueID(id *abi.UniqueID) abi.Result {
	if r := l.fail("ncclGetUniqueId", -1); r != abi.Success {
		return r
	}
	s, err := idStore()
	if err != nil {
		return l.wrong(abi.SystemError, "%v", err)
	}
	*id = idOf(s.Addr().String(), fmt.Sprint(os.Getpid(), ".", ids.Add(1))) // a part's ranks may meet at another process
	return abi.Success
}

func (l *Library) initRank(h *abi.Comm, n int32, id abi.UniqueID, rank int32) abi.Result {
	return l.initRankConfig(h, n, id, rank, nil)
}

func (l *Library) initRankConfig(h *abi.Comm, n int32, id abi.UniqueID, rank int32, config unsafe.Pointer) abi.Result {
	if r := l.fail("ncclCommInitRankConfig", int(rank)); r != abi.Success {
		return r
	}
	set, err := abi.Unpack(l.version, config)
	if err != nil || rank < 0 || rank >= n {
		return l.wrong(abi.InvalidArgument, "rank %d of %d: %v", rank, n, err)
	}
	c := newCommunicator(int(rank), int(n), id)
	c.blocking = set["blocking"] != "0"
	c.windows.configure(set)
	atomic.StoreUintptr((*uintptr)(h), uintptr(l.add(c))) // a caller that gives up looks at it meanwhile
	return l.run(c, func() error { return c.open() })
}

// run does what a call of a communicator does: at once, or behind the caller's back.
func (l *Library) run(c *communicator, f func() error) abi.Result {
	result := func() abi.Result {
		if err := f(); err != nil {
			return l.wrong(abi.SystemError, "%v", err)
		}
		return abi.Success
	}
	if c.blocking {
		r := result()
		c.async.Store(int32(r))
		return r
	}
	c.async.Store(int32(abi.InProgress))
	go func() { c.async.Store(int32(result())) }()
	return abi.InProgress
}

// ever is a time that no operation takes: the library has none.
const ever = 24 * time.Hour

// open finds the other ranks.
func (c *communicator) open() error {
	cfg := backend.Config{Name: "ncclsim", Rank: c.rank, Size: c.n, Device: device.Host, Timeout: ever}
	if c.n > 1 {
		addr, name := text(c.id)
		st, err := store.DialTCP(c.ctx, addr, store.TCPOptions{})
		if err != nil {
			return err
		}
		defer st.Close()
		cfg.Store = store.NewPrefix("ncclsim/"+name, st)
	}
	b, err := native.Open(c.ctx, cfg)
	if err != nil {
		return err
	}
	c.b.Store(&b)
	s, err := idStore()
	if err != nil {
		return err
	}
	mine := s.Addr().String()
	if c.n == 1 {
		c.meet = []string{mine}
		return nil
	}
	addr, _ := text(c.id)
	places, err := c.gather(store.NewPrefix("place", cfg.Store), addr, []byte(mine))
	for _, place := range places {
		c.meet = append(c.meet, string(place))
	}
	return err
}

// gather gives every rank what all ranks have, in order of rank. They meet in the store at an address, which is used
// once. A rank whose process serves it stays until all others have read there: it may end then.
func (c *communicator) gather(st store.Store, addr string, mine []byte) ([][]byte, error) {
	ctx, cancel := context.WithTimeout(c.ctx, ever)
	defer cancel()
	all, err := bootstrap.Exchange(ctx, st, c.rank, c.n, mine)
	if err != nil {
		return nil, err
	}
	n, err := st.Add(ctx, "read", 1)
	if err == nil && n == int64(c.n) {
		err = st.Set(ctx, "over", nil)
	}
	if s, _ := idStore(); err == nil && s != nil && s.Addr().String() == addr {
		_, err = st.Get(ctx, "over")
	}
	return all, err
}

// end takes a communicator out.
func (l *Library) end(h abi.Comm) *communicator {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.comms[h]
	delete(l.comms, h)
	return c
}

func (l *Library) destroy(h abi.Comm) abi.Result {
	if c := l.comm(h); c != nil {
		if r := l.fail("ncclCommDestroy", c.rank); r != abi.Success {
			return r
		}
	}
	c := l.comm(h)
	if c == nil {
		return abi.Success
	}
	if n := c.windows.left(); n > 0 {
		return l.wrong(abi.InvalidUsage, "ncclCommDestroy: %d windows are registered", n)
	}
	c.awaitGraphs()
	l.end(h)
	c.cancel()
	if b := c.b.Load(); b != nil {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := (*b).Finalize(ctx); err != nil {
			return l.wrong(abi.SystemError, "%v", err)
		}
	}
	return abi.Success
}

func (l *Library) abort(h abi.Comm) abi.Result {
	if c := l.comm(h); c != nil {
		if r := l.fail("ncclCommAbort", c.rank); r != abi.Success {
			return r
		}
	}
	c := l.end(h)
	if c == nil {
		return abi.Success
	}
	c.finals.Wait() // ncclGroupJobAbort joins the thread
	c.quit("ncclCommAbort")
	if b := c.b.Load(); b != nil {
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			c.running.Wait()
			_ = (*b).Finalize(ctx)
		}()
	}
	return abi.Success
}

// quit ends what is under way on this rank.
func (c *communicator) quit(call string) {
	c.ending.Lock()
	select {
	case <-c.aborted:
	default:
		close(c.aborted)
	}
	c.ending.Unlock()
	c.cancel()
	if b := c.b.Load(); b != nil {
		(*b).Abort(errors.New(call))
	}
}

func (l *Library) finalize(h abi.Comm) abi.Result {
	return l.with("ncclCommFinalize", h, func(c *communicator) abi.Result {
		if c.revoked.Load() {
			return l.wrong(abi.InvalidUsage, "ncclCommFinalize: the communicator is revoked")
		}
		c.finals.Add(1)
		return l.run(c, func() error {
			defer c.finals.Done()
			c.awaitGraphs()
			return nil
		})
	})
}

// awaitGraphs waits until no graph has an operation of the communicator, as commDestroySync of NCCL 2.26 to 2.30 does
// without end.
func (c *communicator) awaitGraphs() {
	for c.graphs.Load() > 0 {
		runtime.GC() // which finds out what is gone
		time.Sleep(20 * time.Millisecond)
	}
}

// split gives each rank's color and key to all, in the store of rank 0's process.
func (l *Library) split(h abi.Comm, color, key int32, child *abi.Comm, config unsafe.Pointer) abi.Result {
	return l.with("ncclCommSplit", h, func(c *communicator) abi.Result {
		set, err := abi.Unpack(l.version, config)
		if err != nil {
			return l.wrong(abi.InvalidArgument, "%v", err)
		}
		c.splits++
		part := newCommunicator(0, 1, c.id)
		part.blocking = set["blocking"] != "0"
		part.windows.configure(set)
		if color >= 0 {
			atomic.StoreUintptr((*uintptr)(child), uintptr(l.add(part)))
		}
		_, name := text(c.id)
		name = fmt.Sprint(name, "/split/", c.splits)
		return l.run(c, func() error { return c.divide(name, part, color, key) })
	})
}

func (c *communicator) divide(name string, part *communicator, color, key int32) error {
	said := [][]byte{fmt.Appendf(nil, "%d %d", color, key)}
	if c.n > 1 {
		st, err := store.DialTCP(c.ctx, c.meet[0], store.TCPOptions{})
		if err != nil {
			return err
		}
		defer st.Close()
		if said, err = c.gather(store.NewPrefix("ncclsim/"+name, st), c.meet[0], said[0]); err != nil {
			return err
		}
	}
	type place struct{ rank, key int }
	var places []place
	for q, b := range said {
		var theirs, k int32
		if _, err := fmt.Sscan(string(b), &theirs, &k); err != nil {
			return err
		}
		if theirs == color {
			places = append(places, place{q, int(k)})
		}
	}
	if color < 0 {
		return nil
	}
	first := slices.MinFunc(places, func(a, b place) int { return a.key - b.key })
	part.id = idOf(c.meet[first.rank], fmt.Sprintf("%s/%d", name, color))
	part.n, part.sent = len(places), make([]int, 2*len(places))
	for _, p := range places {
		if p.key < int(key) {
			part.rank++
		}
	}
	return part.open()
}
