package commtest

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/tensor"
)

func isFinalized(err error) bool { return errors.Is(err, comm.ErrFinalized) }

// value is what rank puts at index i: small whole numbers, so that every dtype
// holds them and their sums and products over eight ranks exactly.
func value(r comm.Reduction, dt dtype.DType, rank, i int) float64 {
	x := (rank*7 + i*3 + i/11) % 5
	switch {
	case dt == dtype.Bool:
		return float64(x & 1)
	case r.Kind == comm.Product.Kind:
		return float64(1 + x&1)
	case dt.Size() == 1 && dt.IsFloating():
		return float64(x & 1)
	case r.Kind == comm.BAnd.Kind:
		return float64(x | 2)
	case dt.IsSigned() && dt.IsInteger() || dt.IsFloating() && dt.Size() > 1:
		return float64(x - 2)
	}
	return float64(x)
}

// combine is the definition of a reduction, in float64.
func combine(r comm.Reduction, dt dtype.DType, xs []float64) float64 {
	acc := xs[0]
	for _, x := range xs[1:] {
		switch r.Kind {
		case comm.Product.Kind:
			acc *= x
		case comm.Min.Kind:
			acc = math.Min(acc, x)
		case comm.Max.Kind:
			acc = math.Max(acc, x)
		case comm.BAnd.Kind:
			acc = float64(int64(acc) & int64(x))
		case comm.BOr.Kind:
			acc = float64(int64(acc) | int64(x))
		case comm.BXor.Kind:
			acc = float64(int64(acc) ^ int64(x))
		default:
			acc += x
		}
	}
	switch r.Kind {
	case comm.Avg.Kind:
		acc /= float64(len(xs))
		if dt.IsInteger() {
			acc = math.Trunc(acc)
		}
	case comm.PremulSum(1).Kind:
		acc *= r.Factor
	}
	if dt == dtype.Bool && acc != 0 {
		acc = 1
	}
	return acc
}

// maker makes tensors where the communicator's are: ordinary ones, or in memory of the communicator's every other time.
type maker struct {
	ctx    context.Context
	c      *comm.Comm
	shared bool
	n      int
}

func (m *maker) empty(dt dtype.DType, n int) *tensor.Tensor {
	m.n++
	if m.shared && m.n%4 != 0 {
		return tensor.Must(m.c.Empty(dt, n))
	}
	if s := m.c.Stream(); s != nil {
		return tensor.Must(tensor.EmptyOn(m.ctx, s.Device(), dt, n))
	}
	return tensor.Must(tensor.Empty(dt, n))
}

// of makes a tensor of dt with the given values.
func (m *maker) of(dt dtype.DType, n int, f func(i int) float64) *tensor.Tensor {
	t := m.empty(dt, n)
	v := make([]float64, n)
	for i := range v {
		v[i] = f(i)
	}
	if err := tensor.Copy(m.ctx, t, tensor.Of(v)); err != nil {
		panic(err)
	}
	return t
}

// poisoned makes a tensor full of a value that no result has.
func (m *maker) poisoned(dt dtype.DType, n int) *tensor.Tensor {
	return m.of(dt, n, func(int) float64 {
		if dt == dtype.Bool {
			return 0
		}
		return 99
	})
}

// check compares a tensor with the expected values.
func check(ctx context.Context, what string, t *tensor.Tensor, want func(i int) float64) error {
	dt := t.DType()
	got := make([]float64, t.NumEl())
	if dt.IsComplex() {
		v := make([]complex128, t.NumEl())
		if err := tensor.Copy(ctx, tensor.Of(v), t); err != nil {
			return err
		}
		for i := range v {
			if imag(v[i]) != 0 {
				return fmt.Errorf("%s: element %d is %v, with an imaginary part", what, i, v[i])
			}
			got[i] = real(v[i])
		}
	} else if err := tensor.Copy(ctx, tensor.Of(got), t); err != nil {
		return err
	}
	tol := tolerance(dt)
	for i, x := range got {
		w := want(i)
		if x != w && !(math.Abs(x-w) <= tol*math.Max(1, math.Abs(w))) {
			return fmt.Errorf("%s: element %d of %d is %v, want %v (%v)", what, i, len(got), x, w, dt)
		}
	}
	return nil
}

// tolerance is for averages, the only results that need rounding.
func tolerance(dt dtype.DType) float64 {
	switch dt {
	case dtype.Float8E5M2:
		return 0.25
	case dtype.Float8E4M3FN:
		return 0.125
	case dtype.BFloat16:
		return 1.0 / 128
	case dtype.Float16:
		return 1.0 / 1024
	case dtype.Float32, dtype.Complex64:
		return 1e-6
	case dtype.Float64, dtype.Complex128:
		return 1e-14
	}
	return 0
}
