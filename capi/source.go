//go:build cgo

package capi

// #include "shim.h"
import "C"

import (
	"errors"
	"runtime"
	"slices"
	"sync"
	"unsafe"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/kernel/loader"
	"github.com/chorus-comms/chorus/kernel/source"
)

// sources are the texts that were added.
var sources = numbered[*added]{first: 1}

// added is a text, and the loaders that its kernel was asked of.
type added struct {
	source.Kernel
	asked sync.Map
}

func newAdded(text string) (*added, error) {
	k, err := source.New(text)
	return &added{Kernel: k}, err
}

// askAll are runs of all kernels that were added and not asked of a loader, which from here on they are.
func askAll(l *loader.Loader) (calls []loader.Call) {
	for _, k := range sources.all() {
		if _, asked := k.asked.LoadOrStore(l, nil); asked {
			continue
		}
		if c, err := k.Call(1, source.Elements, nil, nil); err == nil {
			calls = append(calls, *c)
		}
	}
	return calls
}

// prepareAdded compiles all kernels that were added and not asked for, several at once: those of a program are added
// before the first of them runs. A kernel's error is that of its own run.
func prepareAdded(l *loader.Loader, s *device.Stream) {
	for some := range slices.Chunk(askAll(l), runtime.GOMAXPROCS(0)) {
		_ = l.Prepare(s, some)
	}
}

//export goSourceAdd
func goSourceAdd(text *C.char, number *C.int32_t) (status C.chorus_status) {
	defer contain(&status)
	if text == nil || number == nil {
		return fail(refused("chorus_source_add got NULL"))
	}
	n, err := sources.add(C.GoString(text), newAdded)
	if err != nil {
		return fail(refused("%v", err))
	}
	*number = n
	return C.CHORUS_OK
}

//export goSourceRun
func goSourceRun(h C.chorus_stream, r *C.chorus_source) (status C.chorus_status) {
	defer contain(&status)
	s, err := findStream(h)
	if err == nil && r == nil {
		err = refused("chorus_source_run got NULL")
	}
	if err == nil {
		err = sized("chorus_source", r.size, unsafe.Sizeof(*r))
	}
	if err != nil {
		return fail(err)
	}
	return fail(runSource(s, r))
}

// runSource enqueues a run.
func runSource(s *stream, r *C.chorus_source) error {
	if err := errors.Join(counted("pointers", r.pointers, r.n_pointers, source.MaxArguments),
		counted("integers", r.integers, r.n_integers, source.MaxArguments)); err != nil {
		return err
	}
	k, ok := sources.find(r.source)
	if !ok {
		return refused("source %d of chorus_source_add", int(r.source))
	}
	units := source.Elements
	if r.rows != 0 {
		units = source.Rows
	}
	pointers := slice((*device.Ptr)(unsafe.Pointer(r.pointers)), r.n_pointers)
	call, err := k.Call(int(r.units), units, pointers, slice((*int64)(r.integers), r.n_integers))
	if err != nil {
		return refused("%v", err)
	}
	if r.units == 0 {
		return nil
	}
	l, err := s.loader()
	if err == nil {
		err = l.Takes(&call.Args)
	}
	if err != nil {
		return err
	}
	if _, asked := k.asked.Load(l); !asked {
		prepareAdded(l, s.Stream)
	}
	return runCalls(l, s.Stream, []loader.Call{*call})
}
