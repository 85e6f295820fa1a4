package mpi

import (
	"cmp"
	"context"
	"runtime"
	"time"
	"unsafe"

	"github.com/chorus-comms/chorus/comm/backend/base"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/internal/dl"
	"github.com/chorus-comms/chorus/kern"
	"github.com/chorus-comms/chorus/plan"
)

// primitives are the names of MPI's own collectives, as profiles and reports have them.
var primitives = map[plan.Collective]string{plan.Barrier: "MPI_Ibarrier", plan.Broadcast: "MPI_Ibcast",
	plan.AllReduce: "MPI_Iallreduce", plan.Reduce: "MPI_Ireduce", plan.AllGather: "MPI_Iallgather",
	plan.ReduceScatter: "MPI_Ireduce_scatter_block", plan.AllToAll: "MPI_Ialltoall", plan.Gather: "MPI_Igather",
	plan.Scatter: "MPI_Iscatter", plan.Scan: "MPI_Iscan"}

// pieceCount is the most elements, or bytes, of one call, as MPI counts in 32 bits: a variable for the tests.
var pieceCount = 1 << 30

// communicator is one of MPI's own, for the collectives of a communicator of Chorus.
type communicator struct {
	handle uintptr
	left   int // operations whose waits were given up
}

// primitive names the collective of MPI that carries out an operation: "" if there is none, on every rank alike.
func (l *link) primitive(c *base.Collective) string {
	q := &c.Request
	name := primitives[q.Collective]
	if l.lib.common < multiple && c.Comm != 1 {
		return "" // a communicator is made by a call that blocks
	}
	total := q.Count * max(1, q.ElemSize) * q.World
	switch q.Collective {
	case plan.Barrier:
		return name
	case plan.AllReduce, plan.Reduce, plan.ReduceScatter, plan.Scan:
		if t, _ := l.reduced(c.DType); t == 0 || !combines(c.Kernel, c.DType) {
			return ""
		}
	}
	if q.Counts != nil || q.SendCounts != nil {
		return "" // MPI's own forms have hung, in Intel MPI 2021.19
	}
	switch whole := q.Collective == plan.Broadcast || q.Collective == plan.AllReduce || q.Collective == plan.Reduce ||
		q.Collective == plan.Scan; {
	case total == 0, !whole && total > pieceCount:
		return ""
	}
	return name
}

// reduced is MPI's type for a dtype's sums, and how many of it an element is; 0 if there is none.
func (l *link) reduced(dt dtype.DType) (handle uintptr, each int) {
	switch dt {
	case dtype.Complex64:
		return l.lib.types[dtype.Float32], 2
	case dtype.Complex128:
		return l.lib.types[dtype.Float64], 2
	}
	return l.lib.types[dt], 1
}

// combines reports whether MPI's reduction gives what Chorus' does. Minima and maxima of floating-point numbers differ
// where there are NaNs and zeros of two signs, and products of complex numbers differ where there are infinities.
func combines(op kern.Op, dt dtype.DType) bool {
	switch {
	case dt.IsComplex():
		return op == kern.Sum
	case dt.IsFloating():
		return op == kern.Sum || op == kern.Product
	}
	return true
}

// collective is base.RunnerConfig's Own.
func (l *link) collective(w *fabric.Waiter, c *base.Collective) (string, error) {
	name := l.primitive(c)
	if name == "" {
		return "", nil
	}
	comm, err := l.communicatorOf(w, c)
	if err != nil {
		return "", err
	}
	if err := l.run(w, c, comm, name); err != nil {
		return "", err
	}
	return name, nil
}

// communicatorOf returns MPI's communicator of the members, and makes it before its first use.
func (l *link) communicatorOf(w *fabric.Waiter, c *base.Collective) (comm *communicator, err error) {
	l.lib.exec(func() {
		if comm = l.own[c.Comm]; comm == nil && c.Comm == 1 {
			comm = &communicator{handle: l.comm, left: 1} // which isn't given back with the communicator
			l.own[1] = comm
		}
	})
	if comm != nil {
		return comm, nil
	}
	var handle uintptr
	done := make(chan struct{})
	go func() {
		defer close(done)
		err = l.lib.blocking(context.Background(), func() (err error) {
			handle, err = l.lib.communicator(l.comm, c.Members, int(c.Comm)%l.lib.maxTag)
			return err
		})
	}()
	if late := w.Await(done); late != nil {
		return nil, late
	}
	if err != nil {
		return nil, err
	}
	comm = &communicator{handle: handle}
	l.lib.exec(func() { l.own[c.Comm] = comm })
	return comm, nil
}

// call is a call of a collective: where its data is, and the request.
type call struct {
	request uintptr
	memory  [3]any // keeps all of it in place
}

// run carries out a collective, in several calls if one can't count its elements.
func (l *link) run(w *fabric.Waiter, c *base.Collective, comm *communicator, name string) error {
	q := &c.Request
	x := &call{memory: [3]any{c.In, c.Out}}
	in, out := uintptr(c.In), uintptr(c.Out)
	place := l.lib.family.InPlace
	t, each := l.reduced(c.DType)
	n := q.Count * each
	op := l.lib.ops[c.Kernel]
	bytes := q.Count * q.ElemSize
	step := func(f dl.Func, args ...uintptr) error { return l.call(w, x, comm, name, f, args...) }
	pieces := func(n, size int, f func(off, n uintptr) error) error {
		for i := 0; i < n; i += pieceCount {
			if err := f(uintptr(i*size), uintptr(min(pieceCount, n-i))); err != nil {
				return err
			}
		}
		return nil
	}
	var err error
	gives := true // this rank has reduced elements
	switch q.Collective {
	case plan.Barrier:
		return step(l.lib.Ibarrier)
	case plan.Broadcast:
		return pieces(bytes, 1, func(off, n uintptr) error {
			return step(l.lib.Ibcast, out+off, n, l.lib.byte, uintptr(q.Root))
		})
	case plan.AllReduce, plan.Scan:
		f := l.lib.Iallreduce
		if q.Collective == plan.Scan {
			f = l.lib.Iscan
		}
		// MPI takes its data in place on all ranks, or on none.
		copyInto(c.Out, c.In, bytes)
		err = pieces(n, q.ElemSize/each, func(off, n uintptr) error { return step(f, place, out+off, n, t, op) })
	case plan.Reduce:
		gives = q.Rank == q.Root
		if gives {
			copyInto(c.Out, c.In, bytes)
		}
		err = pieces(n, q.ElemSize/each, func(off, n uintptr) error {
			if gives {
				return step(l.lib.Ireduce, place, out+off, n, t, op, uintptr(q.Root))
			}
			return step(l.lib.Ireduce, in+off, 0, n, t, op, uintptr(q.Root))
		})
	case plan.AllGather:
		copyInto(unsafe.Add(c.Out, q.Rank*bytes), c.In, bytes)
		return step(l.lib.Iallgather, place, uintptr(bytes), l.lib.byte, out, uintptr(bytes), l.lib.byte)
	case plan.ReduceScatter:
		// The output may be a part of the input, which MPI doesn't permit.
		size := c.OutBytes
		result := make([]byte, max(1, size))
		x.memory[2] = result
		err = step(l.lib.IreduceScatterBlock, in, addr(&result[0]), uintptr(n), t, op)
		if err == nil {
			copyInto(c.Out, unsafe.Pointer(&result[0]), size)
		}
	case plan.AllToAll:
		if c.In == c.Out {
			own := make([]byte, c.InBytes)
			copyInto(unsafe.Pointer(&own[0]), c.In, c.InBytes)
			x.memory[2], in = own, addr(&own[0])
		}
		return step(l.lib.Ialltoall, in, uintptr(bytes), l.lib.byte, out, uintptr(bytes), l.lib.byte)
	case plan.Gather:
		if q.Rank == q.Root {
			copyInto(unsafe.Add(c.Out, q.Rank*bytes), c.In, bytes)
			in = place
		}
		return step(l.lib.Igather, in, uintptr(bytes), l.lib.byte, out, uintptr(bytes), l.lib.byte, uintptr(q.Root))
	case plan.Scatter:
		if q.Rank == q.Root {
			copyInto(c.Out, unsafe.Add(c.In, q.Rank*bytes), bytes)
			out = place
		}
		return step(l.lib.Iscatter, in, uintptr(bytes), l.lib.byte, out, uintptr(bytes), l.lib.byte, uintptr(q.Root))
	}
	if err == nil && gives && n > 0 {
		finish(c, n, each)
	}
	return err
}

func copyInto(dst, src unsafe.Pointer, bytes int) {
	if dst != src && bytes > 0 {
		kern.Copy(dst, src, bytes)
	}
}

// finish makes NaNs alike, whose payloads MPI takes from either side, and divides an average.
func finish(c *base.Collective, n, each int) {
	if dt := c.DType; dt.IsFloating() || dt.IsComplex() {
		switch dt {
		case dtype.Complex64:
			dt = dtype.Float32
		case dtype.Complex128:
			dt = dtype.Float64
		}
		kern.Reduce(kern.Max, dt, []unsafe.Pointer{c.Out}, []unsafe.Pointer{c.Out, c.Out}, n)
	}
	if c.Average {
		kern.Average(c.DType, c.Out, n/each, c.Request.World)
	}
}

// call starts a call of MPI and waits for it. MPI has no way to withdraw a collective. All ranks have come to it, so it
// ends soon if they live. Else its memory is kept in place, and MPI may touch it, until the process ends.
func (l *link) call(w *fabric.Waiter, x *call, comm *communicator, name string, f dl.Func,
	args ...uintptr) (err error) {
	args = append(args, comm.handle, addr(&x.request))
	l.lib.exec(func() { err = l.lib.check(name, f.Call(args...)) })
	if err != nil {
		return err
	}
	over := false
	look := func() {
		if over, err = l.lib.test(&x.request); err != nil {
			err = l.lib.named(name, err)
		}
	}
	late := l.until(w, func() bool {
		if !over {
			l.lib.exec(look)
		}
		return over
	}, movingTime)
	for end := time.Now().Add(cancelGrace); late != nil && !over && time.Now().Before(end); time.Sleep(firstPause) {
		l.progress()
		l.lib.exec(look)
	}
	runtime.KeepAlive(x)
	if late != nil && !over {
		l.lib.exec(func() {
			comm.left++
			l.left = append(l.left, x)
		})
	}
	return cmp.Or(late, err)
}
