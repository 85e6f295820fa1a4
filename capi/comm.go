//go:build cgo

package capi

// #include <stdlib.h>
// #include "shim.h"
import "C"

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/chorus-comms/chorus/comm"
	_ "github.com/chorus-comms/chorus/comm/accl"
	"github.com/chorus-comms/chorus/comm/backend"
	_ "github.com/chorus-comms/chorus/comm/fake"
	_ "github.com/chorus-comms/chorus/comm/gloo"
	_ "github.com/chorus-comms/chorus/comm/mpi"
	_ "github.com/chorus-comms/chorus/comm/nccl"
	_ "github.com/chorus-comms/chorus/fabric/ucx"
	"github.com/chorus-comms/chorus/internal/release"
)

// communicator is what a chorus_comm stands for.
type communicator struct {
	*comm.Comm
	caps    C.uint32_t
	reds    C.uint32_t
	aborts  C.int32_t
	strings [4]*C.char // name, backend, device, and the handle for reconfigure once it was asked for
	before  *C.char    // the device before chorus_comm_bind
	asked   sync.Mutex // for the handle and the device
	// idle is a call that synchronous operations use in turn, so that they allocate nothing.
	idle atomic.Pointer[call]
	home atomic.Pointer[home]
}

func newCommunicator(c *comm.Comm) *communicator {
	m := &communicator{Comm: c, strings: [4]*C.char{C.CString(c.Name()), C.CString(c.Backend()), C.CString(c.Device())}}
	caps := c.Capabilities()
	for i, can := range []bool{caps.Windows, caps.SharedMem, caps.Abort, caps.AnySource, caps.Tags,
		caps.InProcess, caps.SharedMem, caps.NoOp} {
		if can {
			m.caps |= 1 << i
		}
	}
	for _, k := range caps.Reductions() {
		m.reds |= 1 << k
	}
	if c.Options().AbortOnError {
		m.aborts = 1
	}
	return m
}

// give makes a handle for a communicator that was made.
func give(c *comm.Comm, out *C.chorus_comm) error {
	h := comms.put(newCommunicator(c))
	if h == 0 {
		return errors.New("chorus: too many communicators")
	}
	*out = C.chorus_comm(h)
	return nil
}

// find returns the communicator of a handle.
func find(h C.chorus_comm) (*communicator, error) {
	if m := comms.get(uint64(h)); m != nil {
		return m, nil
	}
	return nil, refused("%#x is no communicator; it may have been released", uint64(h))
}

// cString makes a C string once, for functions that return the library's own.
func cString(f func() string) func() *C.char {
	return sync.OnceValue(func() *C.char { return C.CString(f()) })
}

var versionText = cString(release.Version)

var backendsText = cString(func() string { return strings.Join(backend.Names(), ",") })

//export goVersion
func goVersion() *C.char { return versionText() }

//export goBackends
func goBackends() *C.char { return backendsText() }

//export goCommCreate
func goCommCreate(o *C.chorus_comm_options, out *C.chorus_comm, checked C.int32_t) (status C.chorus_status) {
	defer contain(&status)
	return fail(create(o, out, checked))
}

func create(o *C.chorus_comm_options, out *C.chorus_comm, checked C.int32_t) error {
	if o == nil || out == nil {
		return refused("chorus_comm_create got NULL")
	}
	*out = 0
	if err := sized("chorus_comm_options", o.size, unsafe.Sizeof(*o)); err != nil {
		return err
	}
	h, err := hints(o.hints, o.n_hints)
	if err != nil {
		return err
	}
	opts := []comm.NewOption{comm.WithBackend(text(o.backend, "")), comm.WithDevice(text(o.device, "cpu")),
		comm.WithName(text(o.name, "world")), comm.WithTimeout(timeout(o.timeout_ns)), comm.WithHints(h)}
	if o.rank == C.CHORUS_NO_WORLD {
		opts = append(opts, comm.WithoutWorld())
	} else if o.rank != -1 {
		opts = append(opts, comm.WithRank(int(o.rank), int(o.world_size)))
	}
	if o.job_size != 0 {
		if o.rank < 0 || o.job_ranks == nil {
			return refused("chorus_comm_options.job_size is %d, without job_ranks or rank", o.job_size)
		}
		ranks := make([]int, 0, max(0, o.world_size))
		for _, r := range slice(o.job_ranks, o.world_size) {
			ranks = append(ranks, int(r))
		}
		opts = append(opts, comm.WithJobRanks(ranks, int(o.job_size)))
	}
	if o.name_again != 0 {
		opts = append(opts, comm.WithNameAgain())
	}
	if o.beside != 0 {
		other, err := find(o.beside)
		if err != nil {
			return err
		}
		opts = append(opts, comm.WithBeside(other.Comm))
	}
	if o.abort_on_error >= 0 {
		opts = append(opts, comm.WithAbortOnError(o.abort_on_error == 1),
			comm.WithAbortBehind(o.abort_on_error == C.CHORUS_ABORT_BEHIND))
	}
	release := func() {}
	if o.store != 0 {
		ref := stores.get(uint64(o.store))
		if ref == nil || !ref.use() {
			return refused("%#x is no store; it may have been released", uint64(o.store))
		}
		release = ref.drop
		opts = append(opts, comm.WithStore(ref.Store))
	}
	var c *comm.Comm
	err = running(checked, func(ctx context.Context) (err error) {
		defer release()
		c, err = comm.New(ctx, opts...)
		return err
	}, func() { discard(c) })
	if err != nil {
		return err
	}
	return give(c, out)
}

// discard ends a communicator whose caller has stopped waiting for it.
func discard(c *comm.Comm) {
	if c == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	c.Finalize(ctx)
}

//export goCommGet
func goCommGet(h C.chorus_comm, info *C.chorus_comm_info) (status C.chorus_status) {
	defer contain(&status)
	m, err := find(h)
	if err == nil && info == nil {
		err = refused("chorus_comm_get got NULL")
	}
	if err == nil {
		err = sized("chorus_comm_info", info.size, unsafe.Sizeof(*info))
	}
	if err != nil {
		return fail(err)
	}
	size, traffic := info.size, m.Traffic()
	m.asked.Lock()
	defer m.asked.Unlock()
	*info = C.chorus_comm_info{size: size, rank: C.int32_t(m.Rank()), world_size: C.int32_t(m.Size()),
		capabilities: m.caps, reductions: m.reds,
		abort_on_error: m.aborts, timeout_ns: C.int64_t(m.Options().Timeout),
		name: m.strings[0], backend: m.strings[1], device: m.strings[2],
		local_size: C.int32_t(m.Capabilities().LocalSize),
		mapped:     C.uint64_t(traffic.Mapped), staged: C.uint64_t(traffic.Staged)}
	return C.CHORUS_OK
}

//export goCommBind
func goCommBind(h C.chorus_comm, device C.chorus_device) (status C.chorus_status) {
	defer contain(&status)
	m, err := find(h)
	if err != nil {
		return fail(err)
	}
	d, err := findDevice(device)
	if err != nil {
		return fail(err)
	}
	m.asked.Lock()
	defer m.asked.Unlock()
	if err = m.Bind(d); err == nil && C.GoString(m.strings[2]) != d.Name() {
		m.before, m.strings[2] = m.strings[2], C.CString(d.Name())
	}
	return fail(err)
}

//export goCommStatus
func goCommStatus(h C.chorus_comm) (status C.chorus_status) {
	defer contain(&status)
	m, err := find(h)
	if err == nil {
		err = m.Err()
	}
	return fail(err)
}

//export goCommSplit
func goCommSplit(h C.chorus_comm, o *C.chorus_split_options, out *C.chorus_comm,
	checked C.int32_t) (status C.chorus_status) {
	defer contain(&status)
	return fail(split(h, o, out, checked))
}

func split(h C.chorus_comm, o *C.chorus_split_options, out *C.chorus_comm, checked C.int32_t) error {
	m, err := find(h)
	if err != nil {
		return err
	}
	if o == nil || out == nil {
		return refused("chorus_comm_split got NULL")
	}
	*out = 0
	if err := sized("chorus_split_options", o.size, unsafe.Sizeof(*o)); err != nil {
		return err
	}
	if err := counted("ranks", o.ranks, o.n_ranks, max(m.Size(), 1)); err != nil {
		return err
	}
	ranks := make([]int, 0, o.n_ranks)
	for _, r := range slice(o.ranks, o.n_ranks) {
		ranks = append(ranks, int(r))
	}
	var opts []comm.SplitOption
	if o.name != nil {
		opts = append(opts, comm.SplitName(C.GoString(o.name)))
	}
	if o.timeout_ns != 0 {
		opts = append(opts, comm.SplitTimeout(timeout(o.timeout_ns)))
	}
	if o.hints != nil {
		hs, err := hints(o.hints, o.n_hints)
		if err != nil {
			return err
		}
		if hs == nil {
			hs = map[string]string{} // none, not the parent's
		}
		opts = append(opts, comm.SplitHints(hs))
	}
	if o.beside != 0 {
		other, err := find(o.beside)
		if err != nil {
			return err
		}
		opts = append(opts, comm.SplitBeside(other.Comm))
	}
	var part *comm.Comm
	err = running(checked, func(ctx context.Context) (err error) {
		part, err = m.Split(ctx, ranks, opts...)
		return err
	}, func() { discard(part) })
	if err != nil || part == nil {
		return err
	}
	return give(part, out)
}

//export goCommSetTimeout
func goCommSetTimeout(h C.chorus_comm, ns C.int64_t) (status C.chorus_status) {
	defer contain(&status)
	m, err := find(h)
	if err == nil {
		err = m.SetTimeout(timeout(ns))
	}
	return fail(err)
}

//export goCommSetHints
func goCommSetHints(h C.chorus_comm, p *C.chorus_hint, n C.int32_t) (status C.chorus_status) {
	defer contain(&status)
	m, err := find(h)
	if err != nil {
		return fail(err)
	}
	hs, err := hints(p, n)
	if err == nil {
		err = m.SetHints(hs)
	}
	return fail(err)
}

//export goCommAbort
func goCommAbort(h C.chorus_comm, reason *C.char) (status C.chorus_status) {
	defer contain(&status)
	m, err := find(h)
	if err == nil {
		m.Abort(errors.New(text(reason, "no reason given")))
	}
	return fail(err)
}

//export goCommSuspend
func goCommSuspend(h C.chorus_comm, resume C.int32_t, checked C.int32_t) (status C.chorus_status) {
	defer contain(&status)
	m, err := find(h)
	if err != nil {
		return fail(err)
	}
	f := m.Suspend
	if resume != 0 {
		f = m.Resume
	}
	return fail(running(checked, f, nil))
}

//export goCommFinalize
func goCommFinalize(h C.chorus_comm, ns C.int64_t, checked C.int32_t) (status C.chorus_status) {
	defer contain(&status)
	return end(h, ns, checked, (*comm.Comm).Finalize)
}

//export goCommLeave
func goCommLeave(h C.chorus_comm, why *C.char, ns C.int64_t, checked C.int32_t) (status C.chorus_status) {
	defer contain(&status)
	reason := text(why, "")
	return end(h, ns, checked, func(c *comm.Comm, ctx context.Context) error { return c.Leave(ctx, reason) })
}

// end ends this rank's part of a communicator.
func end(h C.chorus_comm, ns C.int64_t, checked C.int32_t, by func(*comm.Comm, context.Context) error) C.chorus_status {
	m, err := find(h)
	if err != nil {
		return fail(err)
	}
	limit := timeout(ns)
	if limit <= 0 {
		limit = m.Options().Timeout
	}
	return fail(running(checked, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		return by(m.Comm, ctx)
	}, nil))
}

//export goCommRelease
func goCommRelease(h C.chorus_comm) (status C.chorus_status) {
	defer contain(&status)
	m := comms.take(uint64(h))
	if m == nil {
		_, err := find(h)
		return fail(err)
	}
	for _, s := range append(m.strings[:], m.before) {
		C.free(unsafe.Pointer(s))
	}
	return C.CHORUS_OK
}
