//go:build cgo

package capi

// #include "shim.h"
import "C"

import (
	"context"
	"time"
	"unsafe"

	"github.com/chorus-comms/chorus/comm"
)

//export goCommHandle
func goCommHandle(h C.chorus_comm, out **C.char) (status C.chorus_status) {
	defer contain(&status)
	m, err := find(h)
	if err == nil && out == nil {
		err = refused("chorus_comm_handle got NULL")
	}
	if err != nil {
		return fail(err)
	}
	m.asked.Lock()
	defer m.asked.Unlock()
	if m.strings[3] == nil {
		text, err := m.Handle()
		if err != nil {
			return fail(err)
		}
		m.strings[3] = C.CString(text)
	}
	*out = m.strings[3]
	return C.CHORUS_OK
}

//export goCommReconfigure
func goCommReconfigure(h C.chorus_comm, o *C.chorus_reconfigure_options, out *C.chorus_comm,
	checked C.int32_t) (status C.chorus_status) {
	defer contain(&status)
	return fail(reconfigure(h, o, out, checked))
}

func reconfigure(h C.chorus_comm, o *C.chorus_reconfigure_options, out *C.chorus_comm, checked C.int32_t) error {
	m, err := find(h)
	if err != nil {
		return err
	}
	if o == nil || out == nil {
		return refused("chorus_comm_reconfigure got NULL")
	}
	*out = 0
	if err := sized("chorus_reconfigure_options", o.size, unsafe.Sizeof(*o)); err != nil {
		return err
	}
	handles, err := texts(o.handles, o.n_handles)
	if err != nil {
		return err
	}
	var opts []comm.ReconfigureOption
	if o.any_order != 0 {
		opts = append(opts, comm.AnyOrder())
	}
	if o.hints != nil {
		hs, err := hints(o.hints, o.n_hints)
		if err != nil {
			return err
		}
		if hs == nil {
			hs = map[string]string{} // none, not the old ones
		}
		opts = append(opts, comm.ReconfigureHints(hs))
	}
	uuid := text(o.uuid, "")
	return renewed(m, o.timeout_ns, out, checked, func(ctx context.Context) (*comm.Comm, error) {
		return m.Reconfigure(ctx, uuid, handles, opts...)
	})
}

//export goCommRegroup
func goCommRegroup(h C.chorus_comm, o *C.chorus_regroup_options, out *C.chorus_comm,
	checked C.int32_t) (status C.chorus_status) {
	defer contain(&status)
	return fail(regroup(h, o, out, checked))
}

func regroup(h C.chorus_comm, o *C.chorus_regroup_options, out *C.chorus_comm, checked C.int32_t) error {
	m, err := find(h)
	if err != nil {
		return err
	}
	if o == nil || out == nil {
		return refused("chorus_comm_regroup got NULL")
	}
	*out = 0
	if err := sized("chorus_regroup_options", o.size, unsafe.Sizeof(*o)); err != nil {
		return err
	}
	handles, err := texts(o.with, o.n_with)
	if err != nil {
		return err
	}
	if err := counted("ranks", o.without, o.n_without, max(m.Size(), 0)); err != nil {
		return err
	}
	opts := []comm.RegroupOption{comm.With(handles...), comm.Patience(time.Duration(o.patience_ns)),
		comm.AtLeast(int(o.at_least))}
	for _, r := range slice(o.without, o.n_without) {
		opts = append(opts, comm.Without(int(r)))
	}
	return renewed(m, o.timeout_ns, out, checked,
		func(ctx context.Context) (*comm.Comm, error) { return m.Regroup(ctx, opts...) })
}

// renewed gives out the communicator that f makes of m, within a timeout; 0: m's.
func renewed(m *communicator, ns C.int64_t, out *C.chorus_comm, checked C.int32_t, f func(context.Context) (*comm.Comm,
	error)) error {
	limit := timeout(ns)
	if limit <= 0 {
		limit = m.Options().Timeout
	}
	var next *comm.Comm
	err := running(checked, func(ctx context.Context) (err error) {
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		next, err = f(ctx)
		return err
	}, func() { discard(next) })
	if err != nil {
		return err
	}
	return give(next, out)
}

// texts copies a list of strings.
func texts(list **C.char, n C.int32_t) ([]string, error) {
	if err := counted("handles", list, n, C.CHORUS_MAX_RANKS); err != nil {
		return nil, err
	}
	out := make([]string, 0, n)
	for _, s := range slice(list, n) {
		if s == nil {
			return nil, refused("a handle is NULL")
		}
		out = append(out, C.GoString(s))
	}
	return out, nil
}
