package bench

import (
	"runtime"
	"unsafe"

	"github.com/chorus-comms/chorus/kern"
	"github.com/chorus-comms/chorus/tensor"
)

// foldPass is a rank's share of a reduction with one read of each element of
// each rank: in, taken as one part for each rank, is combined into outs parts of out. It's the
// traffic of a direct algorithm, whose share is a part of every rank's buffer.
func (s *setup) foldPass(in, out *tensor.Tensor, outs int) func() {
	n := s.c.Size()
	part := in.NumEl() / n
	if part == 0 {
		return nil
	}
	srcs := parts(in, n, part)
	dsts := parts(out, outs, part)
	op, dt := s.red.Kind.Kernel(), in.DType()
	if !kern.Supports(op, dt) {
		return nil
	}
	return func() {
		kern.Reduce(op, dt, dsts, srcs, part)
		runtime.KeepAlive(in)
		runtime.KeepAlive(out)
	}
}

func parts(t *tensor.Tensor, n, each int) []unsafe.Pointer {
	all := make([]unsafe.Pointer, n)
	for i := range all {
		all[i] = unsafe.Add(t.Pointer(), i*each*t.DType().Size())
	}
	return all
}

// copyPass copies a whole buffer once.
func copyPass(dst, src *tensor.Tensor) func() {
	return func() {
		kern.Copy(dst.Pointer(), src.Pointer(), src.NBytes())
		runtime.KeepAlive(dst)
		runtime.KeepAlive(src)
	}
}
