package mpi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"
	"unsafe"

	"github.com/chorus-comms/chorus/comm/mpi/abi"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/internal/dl"
	"github.com/chorus-comms/chorus/kern"
)

// table are the functions of MPI that this package calls.
type table struct {
	InitThread          dl.Func `dl:"MPI_Init_thread"`
	Initialized         dl.Func `dl:"MPI_Initialized"`
	Finalized           dl.Func `dl:"MPI_Finalized"`
	Finalize            dl.Func `dl:"MPI_Finalize"`
	QueryThread         dl.Func `dl:"MPI_Query_thread"`
	GetLibraryVersion   dl.Func `dl:"MPI_Get_library_version"`
	CommRank            dl.Func `dl:"MPI_Comm_rank"`
	CommSize            dl.Func `dl:"MPI_Comm_size"`
	CommGroup           dl.Func `dl:"MPI_Comm_group"`
	CommCreateGroup     dl.Func `dl:"MPI_Comm_create_group"`
	CommFree            dl.Func `dl:"MPI_Comm_free"`
	CommGetAttr         dl.Func `dl:"MPI_Comm_get_attr"`
	CommSetErrhandler   dl.Func `dl:"MPI_Comm_set_errhandler"`
	GroupIncl           dl.Func `dl:"MPI_Group_incl"`
	GroupFree           dl.Func `dl:"MPI_Group_free"`
	Isend               dl.Func `dl:"MPI_Isend"`
	Irecv               dl.Func `dl:"MPI_Irecv"`
	Test                dl.Func `dl:"MPI_Test"`
	Cancel              dl.Func `dl:"MPI_Cancel"`
	ErrorString         dl.Func `dl:"MPI_Error_string"`
	Ibarrier            dl.Func `dl:"MPI_Ibarrier"`
	Ibcast              dl.Func `dl:"MPI_Ibcast"`
	Iallreduce          dl.Func `dl:"MPI_Iallreduce"`
	Ireduce             dl.Func `dl:"MPI_Ireduce"`
	Iallgather          dl.Func `dl:"MPI_Iallgather"`
	IreduceScatterBlock dl.Func `dl:"MPI_Ireduce_scatter_block"`
	Ialltoall           dl.Func `dl:"MPI_Ialltoall"`
	Igather             dl.Func `dl:"MPI_Igather"`
	Iscatter            dl.Func `dl:"MPI_Iscatter"`
	Iscan               dl.Func `dl:"MPI_Iscan"`

	AbiGetVersion dl.Func `dl:"MPI_Abi_get_version" cap:"abi" since:"5"`

	// User-level failure mitigation.
	GetFailed     dl.Func `dl:"MPIX_Comm_get_failed" cap:"failures"`
	FailureAck    dl.Func `dl:"MPIX_Comm_failure_ack" cap:"failures"`
	GroupSize     dl.Func `dl:"MPI_Group_size" cap:"failures"`
	TranslateRank dl.Func `dl:"MPI_Group_translate_ranks" cap:"failures"`
}

// library is MPI in this process: there is at most one, which starts and ends once.
type library struct {
	table
	file    *dl.Library
	caps    *dl.Capabilities
	family  *abi.Family
	version string

	world, errorsReturn, byte uintptr
	types                     [dtype.Count]uintptr
	ops                       map[kern.Op]uintptr

	level      int32   // of threads: an index of Family.Threads
	mine       bool    // this package has started MPI
	thread     *thread // on which MPI was started
	rank, size int
	maxTag     int

	mu    sync.Mutex // held by exec
	out   *results   // within exec
	links map[*link]bool
	over  bool // nothing is called any more

	// tells is whether MPI's reports of failed ranks are used. Intel MPI 2021.19 reports living ranks where it was started
	// by PMIx.
	tells bool
	asked bool // whether they are true, with the first link

	common int // the lowest level of threads of all ranks that this one has met: within exec
}

// results are where calls put what they return. They are on the heap, where they stay in place.
type results struct {
	flag    int32
	n       int32
	handle  uintptr
	pointer *int32
	status  [abi.StatusBytes]byte
}

// addr is a pointer as MPI takes it, to something on the heap, which stays in place.
func addr[T any](p *T) uintptr { return uintptr(unsafe.Pointer(dl.Heap(p))) }

// A thread runs functions on one thread of the system.
type thread struct{ work chan func() }

func newThread() *thread {
	t := &thread{make(chan func())}
	go func() {
		runtime.LockOSThread()
		for f := range t.work {
			f()
		}
	}()
	return t
}

// do runs f on the thread, and returns when it has run.
func (t *thread) do(f func()) {
	done := make(chan struct{})
	t.work <- func() { f(); close(done) }
	<-done
}

// within runs f on the thread, and returns before it has run if ctx ends.
func (t *thread) within(ctx context.Context, f func() error) error {
	done := make(chan error, 1)
	select {
	case t.work <- func() { done <- f() }:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// process is what there is of MPI in this process.
var process struct {
	sync.Mutex
	lib   *library // nil: not started
	over  error    // why MPI can't be used any more
	users int      // links that are open, or being opened
}

var errEnded = errors.New("MPI has ended with this process's last communicator of backend mpi, and can't start " +
	"again: keep one of them open")

// load opens the library of this process and finds its interface.
func load(place string) (*library, error) {
	candidates := []string{place}
	if place == "" {
		candidates = abi.Candidates(os.Getenv)
	}
	file, err := dl.Source{Name: "MPI", Candidates: candidates, Global: true}.Open()
	if err != nil {
		return nil, fmt.Errorf("%w; CHORUS_MPI_LIBRARY names the file", err)
	}
	l := &library{file: file, out: new(results), links: map[*link]bool{}, common: multiple}
	if l.caps, err = file.Resolve(&l.table); err != nil {
		return nil, err
	}
	l.tells = l.caps.Has("failures")
	l.family = abi.MPICH
	if _, ok := file.Symbol("ompi_mpi_comm_world"); ok {
		l.family = abi.OpenMPI
	} else if l.caps.Has("abi") {
		major, minor := new(int32), new(int32)
		if r := l.AbiGetVersion.Call(addr(major), addr(minor)); int32(r) == 0 && *major > 0 {
			l.family = abi.Standard
		}
	}
	text, n := make([]byte, 1<<14), new(int32)
	if r := l.GetLibraryVersion.Call(addr(&text[0]), addr(n)); int32(r) == 0 {
		first, _, _ := bytes.Cut(text[:max(0, min(int(*n), len(text)))], []byte{'\n'})
		first, _, _ = bytes.Cut(first, []byte{0})
		l.version = string(bytes.TrimSpace(first))
	}
	return l, l.handles()
}

// handles finds the constants of the family.
func (l *library) handles() (err error) {
	get := func(name string) uintptr {
		if v, ok := l.family.Handles[name]; ok {
			return uintptr(v)
		}
		a, ok := l.file.Symbol(l.family.Symbols[name])
		if !ok {
			err = errors.Join(err, fmt.Errorf("%v lacks %s", l.file, l.family.Symbols[name]))
		}
		return a
	}
	l.world, l.errorsReturn, l.byte = get("MPI_COMM_WORLD"), get("MPI_ERRORS_RETURN"), get("MPI_BYTE")
	for dt, name := range map[dtype.DType]string{dtype.Float32: "MPI_FLOAT", dtype.Float64: "MPI_DOUBLE",
		dtype.Int8: "MPI_INT8_T", dtype.Int16: "MPI_INT16_T", dtype.Int32: "MPI_INT32_T", dtype.Int64: "MPI_INT64_T",
		dtype.Uint8: "MPI_UINT8_T", dtype.Uint16: "MPI_UINT16_T", dtype.Uint32: "MPI_UINT32_T",
		dtype.Uint64: "MPI_UINT64_T"} {
		l.types[dt] = get(name)
	}
	l.ops = map[kern.Op]uintptr{kern.Sum: get("MPI_SUM"), kern.Product: get("MPI_PROD"), kern.Min: get("MPI_MIN"),
		kern.Max: get("MPI_MAX"), kern.BAnd: get("MPI_BAND"), kern.BOr: get("MPI_BOR"), kern.BXor: get("MPI_BXOR")}
	return err
}

// String names the library, its interface and its file.
func (l *library) String() string {
	return fmt.Sprintf("%s (%s, interface of %s)", l.version, l.file.Path(), l.family.Name)
}

// The levels of threads, as Family.Threads has them.
const (
	single = iota
	funneled
	serialized
	multiple
)

var levels = [...]string{"single", "funneled", "serialized", "multiple"}

// start starts MPI, unless another part of this process has done so. It's collective over all ranks of the launcher.
func (l *library) start(ctx context.Context, level int) error {
	l.thread = newThread()
	err := l.thread.within(ctx, func() error {
		flag, got := new(int32), new(int32)
		if err := l.check("MPI_Finalized", l.Finalized.Call(addr(flag))); err != nil {
			return err
		}
		if *flag != 0 {
			return errors.New("another part of this process has ended MPI")
		}
		if err := l.check("MPI_Initialized", l.Initialized.Call(addr(flag))); err != nil {
			return err
		}
		if *flag != 0 {
			if err := l.check("MPI_Query_thread", l.QueryThread.Call(addr(got))); err != nil {
				return err
			}
		} else {
			if err := l.startable(os.Getenv); err != nil {
				return err
			}
			err := l.check("MPI_Init_thread", l.InitThread.Call(0, 0, uintptr(l.family.Threads[level]), addr(got)))
			if err != nil {
				return err
			}
			l.mine = true
		}
		l.level = int32(max(0, slices.Index(l.family.Threads[:], *got)))
		if !l.mine && l.level != multiple {
			return fmt.Errorf("another part of this process has started MPI with threads %q; backend mpi needs %q then",
				levels[l.level], levels[multiple])
		}
		n := new(int32)
		err := l.check("MPI_Comm_rank", l.CommRank.Call(l.world, addr(n)))
		l.rank = int(*n)
		if err == nil {
			err = l.check("MPI_Comm_size", l.CommSize.Call(l.world, addr(n)))
			l.size = int(*n)
		}
		if err == nil {
			r := l.CommGetAttr.Call(l.world, uintptr(l.family.TagUB), addr(&l.out.pointer), addr(flag))
			err = l.check("MPI_Comm_get_attr", r)
		}
		if l.maxTag = 32767; err == nil && *flag != 0 && l.out.pointer != nil {
			l.maxTag = int(*l.out.pointer)
		}
		l.out.pointer = nil
		return err
	})
	if err == nil {
		go l.serve()
	}
	return err
}

// startable says why MPI_Init_thread would end the process. MPICH 5 does so where the launcher speaks only PMIx, unless
// it's linked with a library for that: its check_MPIR_CVAR_PMI_VERSION ends the process.
func (l *library) startable(getenv func(string) string) error {
	if getenv("PMIX_NAMESPACE") == "" || getenv("PMI_FD") != "" || getenv("PMI_PORT") != "" ||
		getenv("MPIR_CVAR_PMI_VERSION") != "" || !strings.HasPrefix(l.version, "MPICH Version:") {
		return nil
	}
	if _, ok := l.file.Symbol("PMIx_Init"); ok {
		return nil
	}
	return errors.New("the launcher starts ranks by PMIx, which this library doesn't know: it isn't that of the " +
		"launcher. CHORUS_MPI_LIBRARY names another one")
}

// exec runs f while nothing else of this package calls MPI, on a thread that may.
func (l *library) exec(f func()) {
	if l.level < serialized {
		l.thread.do(f)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
}

// Error is what a function of MPI has returned.
type Error struct {
	Library string // with its version
	Call    string // the function
	Code    int
	Text    string // what the library calls the code
}

func (e *Error) Error() string {
	return fmt.Sprintf("%s: %s: %s (%d)", e.Library, e.Call, e.Text, e.Code)
}

// check makes an *Error of a result, unless that's success.
func (l *library) check(call string, r uintptr) error {
	if int32(r) == 0 {
		return nil
	}
	text, n := make([]byte, 1<<10), new(int32)
	l.ErrorString.Call(uintptr(int32(r)), addr(&text[0]), addr(n))
	return &Error{l.version, call, int(int32(r)), string(text[:max(0, min(int(*n), len(text)))])}
}

// named is an error of MPI_Test as one of the call that it has tested.
func (l *library) named(call string, err error) error {
	if e, ok := err.(*Error); ok {
		return &Error{e.Library, call, e.Code, e.Text}
	}
	return err
}

// test reports whether a request is done. It's called within exec.
func (l *library) test(request *uintptr) (done bool, err error) {
	r := l.Test.Call(addr(request), addr(&l.out.flag), addr(&l.out.status))
	if int32(r) != 0 {
		return true, l.check("MPI_Test", r)
	}
	return l.out.flag != 0, nil
}

// communicator makes a communicator of some ranks of another one, all of which call it.
func (l *library) communicator(of uintptr, ranks []int, tag int) (comm uintptr, err error) {
	list := make([]int32, len(ranks))
	for i, r := range ranks {
		list[i] = int32(r)
	}
	all, group, made := new(uintptr), new(uintptr), new(uintptr)
	if err = l.check("MPI_Comm_group", l.CommGroup.Call(of, addr(all))); err != nil {
		return 0, err
	}
	defer l.GroupFree.Call(addr(all))
	err = l.check("MPI_Group_incl", l.GroupIncl.Call(*all, uintptr(len(list)), addr(&list[0]), addr(group)))
	if err != nil {
		return 0, err
	}
	defer l.GroupFree.Call(addr(group))
	r := l.CommCreateGroup.Call(of, *group, uintptr(tag), addr(made))
	runtime.KeepAlive(list)
	if err = l.check("MPI_Comm_create_group", r); err != nil {
		return 0, err
	}
	return *made, l.check("MPI_Comm_set_errhandler", l.CommSetErrhandler.Call(*made, l.errorsReturn))
}

// blocking runs a call that waits for other ranks, and gives up waiting for it when ctx ends. With fewer threads than
// multiple nothing else of this package calls MPI meanwhile.
func (l *library) blocking(ctx context.Context, f func() error) error {
	if l.level < serialized {
		return l.thread.within(ctx, f)
	}
	done := make(chan error, 1)
	go func() {
		if l.level < multiple {
			l.mu.Lock()
			defer l.mu.Unlock()
		}
		done <- f()
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// acquire starts MPI if need be, and counts a user of it.
func acquire(ctx context.Context, place string, level int) (l *library, err error) {
	process.Lock()
	defer process.Unlock()
	if process.over != nil {
		return nil, process.over
	}
	if process.lib == nil {
		if l, err = load(place); err != nil {
			return nil, err
		}
		if err := l.start(ctx, level); err != nil {
			process.over = fmt.Errorf("%v didn't start: %w", l, err)
			return nil, process.over
		}
		process.lib = l
	}
	process.users++
	return process.lib, nil
}

// release ends a user's part. The last one waits until the links of all are free, and ends MPI if this package has
// started it.
func (l *library) release(ctx context.Context) error {
	process.Lock()
	defer process.Unlock()
	if process.users--; process.users > 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, endTime)
	defer cancel()
	if l.drain(ctx); !l.mine { // who has started MPI may end it now: nothing calls it any more
		return nil
	}
	process.over = errEnded
	err := l.thread.within(ctx, func() error {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.over = true
		return l.check("MPI_Finalize", l.Finalize.Call())
	})
	if err != nil {
		return fmt.Errorf("MPI didn't end: %w", err)
	}
	l.exit()
	return nil
}

// exit has MPICH tell its launcher that this rank has ended. MPICH 5 does so in an exit handler of the C library, which
// programs of Go don't run, and the launcher kills the other ranks if it isn't told. The handler also runs when the
// library is closed.
func (l *library) exit() {
	if l.family == abi.OpenMPI || os.Getenv("PMI_FD") == "" && os.Getenv("PMI_PORT") == "" {
		return
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "-buildmode" && s.Value != "exe" && s.Value != "pie" {
				return // the program isn't Go's
			}
		}
	}
	l.file.Close()
}

// abandon is release for a user that has failed to begin.
func (l *library) abandon() {
	ctx, cancel := context.WithTimeout(context.Background(), endTime)
	defer cancel()
	_ = l.release(ctx) // the first failure is the one to report
}

// endTime bounds how long the end of MPI waits for the other ranks.
const endTime = 10 * time.Second
