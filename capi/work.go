//go:build cgo

package capi

// #include "shim.h"
import "C"

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/comm/backend"
)

// part is something under way: a comm.Work or an eventual.
type part interface {
	Done() <-chan struct{}
	Err() error
}

// work is what a chorus_work stands for: done when all of its parts are.
type work struct {
	m        *communicator
	canceled cancelContext // the context of messages, and of operations on windows
	parts    []part
	ops      []*call // in the order of submission; none of a window
	notified atomic.Bool
}

// eventual is the end of something that a goroutine of this package does.
type eventual struct {
	done chan struct{}
	err  error
}

func (e *eventual) Done() <-chan struct{} { return e.done }
func (e *eventual) Err() error            { return e.err }

// run calls f, and keeps a panic from the process.
func (e *eventual) run(f func() error) {
	defer close(e.done)
	defer func() {
		if r := recover(); r != nil {
			poison(r)
			e.err = errPanicked
		}
	}()
	e.err = f()
}

func giveWork(w *work, out *C.chorus_work) error {
	h := works.put(w)
	if h == 0 {
		return errors.New("chorus: too many works; release those that are done")
	}
	*out = C.chorus_work(h)
	return nil
}

func findWork(h C.chorus_work) (*work, error) {
	if w := works.get(uint64(h)); w != nil {
		return w, nil
	}
	return nil, refused("%#x is no work; it may have been released", uint64(h))
}

// completed reports whether all parts are done.
func (w *work) completed() bool {
	for _, p := range w.parts {
		select {
		case <-p.Done():
		default:
			return false
		}
	}
	return true
}

// err returns the first failure; all parts are done.
func (w *work) err() error {
	for _, p := range w.parts {
		if err := p.Err(); err != nil {
			return err
		}
	}
	return nil
}

//export goWorkTest
func goWorkTest(h C.chorus_work) (status C.chorus_status) {
	defer contain(&status)
	w, err := findWork(h)
	if err == nil {
		if !w.completed() {
			return C.CHORUS_PENDING
		}
		err = w.err()
	}
	return fail(err)
}

//export goWorkWait
func goWorkWait(h C.chorus_work, ns C.int64_t, checked C.int32_t) (status C.chorus_status) {
	defer contain(&status)
	w, err := findWork(h)
	if err != nil {
		return fail(err)
	}
	var expired <-chan time.Time
	if ns >= 0 {
		t := time.NewTimer(time.Duration(ns))
		defer t.Stop()
		expired = t.C
	}
	for _, p := range w.parts {
		switch interrupted, late := attend(p.Done(), expired, checked); {
		case interrupted:
			return fail(errInterrupted)
		case late:
			return C.CHORUS_PENDING
		}
	}
	return fail(w.err())
}

//export goWorkExpire
func goWorkExpire(h C.chorus_work, ns C.int64_t, checked C.int32_t) (status C.chorus_status) {
	defer contain(&status)
	w, err := findWork(h)
	if err != nil {
		return fail(err)
	}
	return fail(running(checked, func(context.Context) error {
		for _, p := range w.parts {
			expirer, ok := p.(interface {
				Expire(elapsed time.Duration) error
			})
			if !ok {
				return fmt.Errorf("%w: this work can't be declared overdue", comm.ErrUnsupported)
			}
			if err := expirer.Expire(time.Duration(ns)); err != nil {
				return err
			}
		}
		return nil
	}, nil))
}

//export goWorkGet
func goWorkGet(h C.chorus_work, info *C.chorus_work_info) (status C.chorus_status) {
	defer contain(&status)
	w, err := findWork(h)
	if err == nil && info == nil {
		err = refused("chorus_work_get got NULL")
	}
	if err == nil {
		err = sized("chorus_work_info", info.size, unsafe.Sizeof(*info))
	}
	if err != nil {
		return fail(err)
	}
	*info = C.chorus_work_info{size: info.size, status: C.CHORUS_PENDING, source: -1, n_ops: C.int32_t(len(w.ops))}
	if !w.completed() {
		return C.CHORUS_OK
	}
	info.status = C.CHORUS_OK
	if err := w.err(); err == errPanicked {
		info.status = C.CHORUS_PANICKED
	} else if err != nil {
		info.status = statusOf(err)
	}
	for _, k := range w.ops {
		if k.op.Kind == backend.Recv && len(w.ops) == 1 {
			info.source = C.int32_t(k.op.From)
		}
		if !k.op.Kind.PointToPoint() {
			info.seq = C.uint64_t(k.op.Seq)
		}
	}
	return C.CHORUS_OK
}

//export goWorkSources
func goWorkSources(h C.chorus_work, sources *C.int32_t, n C.int32_t) (status C.chorus_status) {
	defer contain(&status)
	w, err := findWork(h)
	if err == nil && (sources == nil || int(n) != len(w.ops)) {
		err = refused("chorus_work_sources: room for %d of %d operations at %p", n, len(w.ops), sources)
	}
	if err != nil {
		return fail(err)
	}
	if !w.completed() {
		return C.CHORUS_PENDING
	}
	for i, k := range w.ops {
		s := C.int32_t(-1)
		if k.op.Kind == backend.Recv {
			s = C.int32_t(k.op.From)
		}
		unsafe.Slice(sources, int(n))[i] = s
	}
	return C.CHORUS_OK
}

//export goWorkNotify
func goWorkNotify(h C.chorus_work, done C.chorus_done_fn, user unsafe.Pointer) (status C.chorus_status) {
	defer contain(&status)
	w, err := findWork(h)
	if err == nil && w.notified.Swap(true) {
		err = refused("this work has a notification already")
	}
	if err != nil {
		return fail(err)
	}
	announce := func() { tell(done, user, w.err()) }
	if done == nil {
		announce = func() { finished.put(h) }
	}
	if w.completed() {
		announce()
		return C.CHORUS_OK
	}
	go func() {
		for _, p := range w.parts {
			<-p.Done()
		}
		announce()
	}()
	return C.CHORUS_OK
}

// tell calls a caller's function with an error. The error becomes the last one of the thread it's called on.
func tell(f C.chorus_done_fn, user unsafe.Pointer, err error) {
	status := statusOf(err)
	if err == errPanicked {
		status = C.CHORUS_PANICKED
	}
	C.shim_done(f, user, status, errorOf(err))
}

//export goWorkRelease
func goWorkRelease(h C.chorus_work) (status C.chorus_status) {
	defer contain(&status)
	if works.take(uint64(h)) == nil {
		_, err := findWork(h)
		return fail(err)
	}
	return C.CHORUS_OK
}
