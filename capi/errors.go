//go:build cgo

package capi

// #include <stdlib.h>
// #include "shim.h"
import "C"

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unsafe"

	"github.com/chorus-comms/chorus/bootstrap"
	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/kernel/loader"
)

// errInterrupted is why a wait ends whose host wants control back.
var errInterrupted = errors.New("interrupted")

// errPanicked stands for a panic that was caught on another goroutine than the caller's.
var errPanicked = errors.New("panicked")

// statuses maps the kinds of error, in the order in which they are looked for.
var statuses = []struct {
	err    error
	status C.chorus_status
}{
	{comm.ErrInvalidArgument, C.CHORUS_INVALID_ARGUMENT},
	{comm.ErrMismatch, C.CHORUS_MISMATCH},
	{comm.ErrPeerLost, C.CHORUS_PEER_LOST},
	{comm.ErrAborted, C.CHORUS_ABORTED},
	{comm.ErrFinalized, C.CHORUS_FINALIZED},
	{comm.ErrTimeout, C.CHORUS_TIMEOUT},
	{context.DeadlineExceeded, C.CHORUS_TIMEOUT},
	{comm.ErrCanceled, C.CHORUS_CANCELED},
	{comm.ErrUnsupported, C.CHORUS_UNSUPPORTED},
	{errors.ErrUnsupported, C.CHORUS_UNSUPPORTED},
	{device.ErrOutOfMemory, C.CHORUS_OUT_OF_MEMORY},
	{device.ErrTimeout, C.CHORUS_TIMEOUT},
	{device.ErrCanceled, C.CHORUS_CANCELED},
	{device.ErrUnsupported, C.CHORUS_UNSUPPORTED},
	{device.ErrFailed, C.CHORUS_WORK_FAILED},
	{device.ErrInvalidArgument, C.CHORUS_INVALID_ARGUMENT},
	{device.ErrNoDevice, C.CHORUS_UNSUPPORTED},
	{device.ErrLoad, C.CHORUS_UNSUPPORTED},
}

func statusOf(err error) C.chorus_status {
	if err == nil {
		return C.CHORUS_OK
	}
	// Only what was interrupted itself: an operation that an interrupt of another one aborted has it among its causes.
	if _, ok := err.(*interruptedError); ok || err == errInterrupted {
		return C.CHORUS_INTERRUPTED
	}
	for _, s := range statuses {
		if errors.Is(err, s.err) {
			return s.status
		}
	}
	if _, ok := errors.AsType[*fabric.PeerError](err); ok { // while the communicator was being made
		return C.CHORUS_PEER_LOST
	}
	return C.CHORUS_INTERNAL
}

// facts is an error as C sees it.
type facts struct {
	status                    C.chorus_status
	message, detail           string
	at                        comm.Where
	peer, by                  int
	elapsed                   int64
	missing, arrived, unknown []int
	rankA, rankB              int
	opA, opB                  string
}

// messageOf is an error's text. Errors that are joined stand on one line; what a compiler says keeps its lines.
func messageOf(err error) string {
	text := err.Error()
	if _, is := errors.AsType[*loader.CompileError](err); !is {
		text = strings.ReplaceAll(text, "\n", "; ")
	}
	return backend.BeginsOnce(text)
}

func factsOf(err error, status C.chorus_status) facts {
	f := facts{status: status, message: messageOf(err), peer: -1, by: -1, rankA: -1, rankB: -1,
		at: comm.Where{Reporter: -1}}
	var where interface{ At() comm.Where }
	if errors.As(err, &where) {
		f.at = where.At()
	}
	var attended interface{ Attended() *backend.Attendance }
	if errors.As(err, &attended) {
		a := attended.Attended()
		f.elapsed, f.arrived, f.unknown = int64(a.Elapsed), a.Arrived, a.Unknown
		if !errors.Is(err, comm.ErrPeerLost) { // whose peer is the one that is missed
			f.missing = a.Missing
		}
	}
	if e, ok := errors.AsType[*bootstrap.MissingRanksError](err); ok {
		f.at.Reporter, f.elapsed, f.missing = e.Reporter, int64(e.Waited), e.Missing
	}
	if e, ok := errors.AsType[*fabric.PeerError](err); ok {
		f.peer, f.detail = e.Peer, e.Err.Error()
	}
	if e, ok := errors.AsType[*comm.PeerLostError](err); ok {
		f.peer, f.detail = e.Peer, e.Cause
	}
	if e, ok := errors.AsType[*comm.AbortedError](err); ok {
		f.by, f.detail = e.By, e.Reason
	}
	if e, ok := errors.AsType[*comm.MismatchError](err); ok {
		f.rankA, f.rankB, f.opA, f.opB = e.RankA, e.RankB, e.OpA, e.OpB
	}
	if e, ok := errors.AsType[*comm.InvalidArgumentError](err); ok {
		f.detail = e.Detail
	}
	if e, ok := errors.AsType[*comm.UnsupportedError](err); ok {
		f.detail = e.Detail
	}
	if e, ok := errors.AsType[*comm.InternalError](err); ok {
		f.detail = e.Err.Error()
	}
	return f
}

// toC puts the facts into one block of malloc: the struct, then lists, then strings.
func (f *facts) toC() *C.chorus_error {
	lists := [...][]int{f.missing, f.arrived, f.unknown}
	text := [...]string{f.message, f.at.Comm, f.at.Op, f.detail, f.opA, f.opB}
	size := int(unsafe.Sizeof(C.chorus_error{}))
	for _, l := range lists {
		size += 4 * len(l)
	}
	for _, s := range text {
		size += len(s) + 1
	}
	block := C.calloc(1, C.size_t(size))
	at := unsafe.Sizeof(C.chorus_error{})
	ranks := func(list []int) *C.int32_t {
		p := unsafe.Add(block, at)
		for i, r := range list {
			*(*int32)(unsafe.Add(p, 4*i)) = int32(r)
		}
		at += 4 * uintptr(len(list))
		return (*C.int32_t)(p)
	}
	e := (*C.chorus_error)(block)
	e.size, e.status = C.uint32_t(unsafe.Sizeof(*e)), f.status
	e.missing, e.n_missing = ranks(f.missing), C.int32_t(len(f.missing))
	e.arrived, e.n_arrived = ranks(f.arrived), C.int32_t(len(f.arrived))
	e.unknown, e.n_unknown = ranks(f.unknown), C.int32_t(len(f.unknown))
	str := func(s string) *C.char {
		p := unsafe.Add(block, at)
		copy(unsafe.Slice((*byte)(p), len(s)), s) // calloc has written the zero
		at += uintptr(len(s)) + 1
		return (*C.char)(p)
	}
	e.message, e.comm, e.op, e.detail, e.op_a, e.op_b = str(f.message), str(f.at.Comm), str(f.at.Op), str(f.detail),
		str(f.opA), str(f.opB)
	e.seq, e.reporter = C.uint64_t(f.at.Seq), C.int32_t(f.at.Reporter)
	e.peer, e.by = C.int32_t(f.peer), C.int32_t(f.by)
	e.elapsed_ns, e.rank_a, e.rank_b = C.int64_t(f.elapsed), C.int32_t(f.rankA), C.int32_t(f.rankB)
	return e
}

// errorOf makes an error's C form, which the shim frees; nil for nil.
func errorOf(err error) *C.chorus_error {
	if err == nil {
		return nil
	}
	f := factsOf(err, statusOf(err))
	return f.toC()
}

// fail makes an error the thread's last one and returns its status; CHORUS_OK for nil.
func fail(err error) C.chorus_status {
	if err == nil {
		return C.CHORUS_OK
	}
	if err == errPanicked {
		C.shim_refuse()
		return C.CHORUS_PANICKED
	}
	e := errorOf(err)
	status := e.status
	C.shim_set_error(e)
	return status
}

//export goRefuse
func goRefuse(why *C.char) (status C.chorus_status) {
	defer contain(&status)
	return fail(refused("%s", C.GoString(why)))
}

// refused is invalid for calls without a communicator.
func refused(format string, args ...any) error {
	return fmt.Errorf("chorus: %w: %s", comm.ErrInvalidArgument, fmt.Sprintf(format, args...))
}
