package commtest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/plan"
	"github.com/chorus-comms/chorus/tensor"
)

// Specials reduces NaN of both signs and many payloads, infinities and zeros of both signs, and ones, by every
// reduction and algorithm: all ranks must get the same bits, those of the definition. The default backend gives one and
// the same NaN.
func Specials(t *testing.T, cfg Config) {
	worlds := cfg.Worlds
	if worlds == nil {
		worlds = []int{2, 3, 4, 5}
	}
	for _, n := range worlds {
		if n == 1 {
			continue
		}
		w := cfg.open(t, n)
		shown := make([][]shown, n) // by rank
		w.each(func(ctx context.Context, c *comm.Comm) error {
			if caps := c.Capabilities(); caps.NoOp || caps.Foreign {
				return nil
			}
			s := specials{ctx: ctx, c: c, m: &maker{ctx: ctx, c: c, shared: cfg.Shared}}
			defer func() { shown[c.Rank()] = s.shown }()
			for _, kind := range []plan.Collective{plan.AllReduce, plan.Reduce, plan.ReduceScatter} {
				algorithms := []string{""}
				if c.Capabilities().Name == "native" && !cfg.Device {
					for _, a := range plan.Algorithms(kind) {
						algorithms = append(algorithms, a.Name)
					}
				}
				for _, name := range algorithms {
					if err := s.algorithm(kind, name); err != nil {
						return err
					}
				}
			}
			return nil
		})
		one := w.comms[0].Rank()
		for r := range shown {
			for i, x := range shown[r] {
				if first := shown[one][i]; !bytes.Equal(x.bits, first.bits) {
					t.Fatalf("world of %d: rank %d has other bits than rank %d after %s:\n% x\n% x", n, r, one, x.what, x.bits,
						first.bits)
				}
			}
		}
	}
}

// specials is what one rank does, and all its results that every rank has.
type specials struct {
	ctx   context.Context
	c     *comm.Comm
	m     *maker
	shown []shown
}

type shown struct {
	what string
	bits []byte
}

func (s *specials) algorithm(kind plan.Collective, name string) error {
	counts := []int{201}
	if name == "" {
		counts = []int{3, 201} // small ones have ways of their own
	}
	for _, dt := range dtype.All() {
		if !dt.IsFloating() && !dt.IsComplex() {
			continue
		}
		for _, red := range reductions(s.c, dt) {
			for _, count := range counts {
				what := fmt.Sprintf("%v of %d x %v by %v, algorithm %q", kind, count, dt, red, name)
				if err := s.reduce(what, kind, name, dt, red, count); err != nil {
					return fmt.Errorf("%s: %w", what, err)
				}
			}
		}
	}
	return nil
}

// reduce reduces count elements (for each rank, if they are scattered) and looks at the result.
func (s *specials) reduce(what string, kind plan.Collective, algorithm string, dt dtype.DType, red comm.Reduction,
	count int) error {
	c, n, me, root := s.c, s.c.Size(), s.c.Rank(), count%s.c.Size()
	size, first := count, 0
	if kind == plan.ReduceScatter {
		size, first = n*count, me*count
	}
	in := tensor.Must(tensor.Empty(dt, size))
	raw, err := in.Bytes()
	if err != nil {
		return err
	}
	f := formatOf(dt)
	for i := 0; i*f.bytes < len(raw); i++ {
		f.put(raw[i*f.bytes:], f.special(me, i))
	}
	x := s.m.empty(dt, size)
	if err := tensor.Copy(s.ctx, x, in); err != nil {
		return err
	}
	var opts []comm.Option
	if algorithm != "" {
		opts = append(opts, comm.Algorithm(algorithm))
	}
	out := x
	switch kind {
	case plan.AllReduce:
		err = c.AllReduce(s.ctx, x, red, opts...)
	case plan.Reduce:
		err = c.Reduce(s.ctx, x, root, red, opts...)
	default:
		out = s.m.empty(dt, count)
		err = c.ReduceScatterSingle(s.ctx, out, x, red, opts...)
	}
	if err = synchronized(s.ctx, c, err); errors.Is(err, comm.ErrInvalidArgument) {
		return nil // the algorithm isn't for this world
	}
	if err != nil || kind == plan.Reduce && me != root {
		return err
	}
	here := tensor.Must(tensor.Empty(dt, count))
	if err := tensor.Copy(s.ctx, here, out); err != nil {
		return err
	}
	got, err := here.Bytes()
	if err != nil {
		return err
	}
	if kind == plan.AllReduce {
		s.shown = append(s.shown, shown{what, got})
	}
	if f.saturates || dt.IsComplex() && red.Kind == comm.Product.Kind {
		return nil // sums that saturate, and these products, depend on the order that the algorithm has
	}
	parts := dt.Size() / f.bytes
	for i := range count * parts {
		xs := make([]float64, n)
		for r := range xs {
			xs[r] = specialValues[specialAt(r, first*parts+i)]
		}
		want := make([]byte, f.bytes)
		if err := f.round(want, combineSpecials(red, xs)); err != nil {
			return err
		}
		g := got[i*f.bytes:][:f.bytes]
		if c.Capabilities().Name != "native" && f.isNaN(g) && f.isNaN(want) {
			continue // which NaN it gives is a backend's own choice
		}
		if !bytes.Equal(g, want) {
			return fmt.Errorf("element %d of rank %d, from %v, is %x, want %x (lowest byte first)", i/parts, me, xs, g, want)
		}
	}
	return nil
}

// specialValues are the values of specials in float64.
var specialValues = [...]float64{math.NaN(), math.NaN(), math.NaN(), math.Inf(1), math.Inf(-1), 0, math.Copysign(0, -1),
	1, -1}

// specialAt says which of them a rank has in place i: every pair of ranks 0 and 1, and many combinations of the others.
func specialAt(rank, i int) int {
	const n = len(specialValues)
	switch rank {
	case 0:
		return i % n
	case 1:
		return i / n % n
	}
	return (i*(2*rank+1) + i/7*rank + rank) % n
}

// format is how the numbers of a type, or the parts of its complex numbers, are written.
type format struct {
	dt                  dtype.DType
	bytes               int
	digits              uint // of the fraction
	sign, one, inf, nan uint64
	saturates           bool // inf is the largest number, as there is no infinity
}

func formatOf(dt dtype.DType) format {
	switch dt {
	case dtype.Complex64:
		dt = dtype.Float32
	case dtype.Complex128:
		dt = dtype.Float64
	}
	digits := map[dtype.DType]uint{dtype.Float64: 52, dtype.Float32: 23, dtype.Float16: 10, dtype.BFloat16: 7,
		dtype.Float8E5M2: 2, dtype.Float8E4M3FN: 3}[dt]
	f := format{dt: dt, bytes: dt.Size(), digits: digits}
	f.sign = 1 << (8*f.bytes - 1)
	f.inf = f.sign - 1<<digits
	f.one = f.inf / 2 >> digits << digits
	f.nan = f.inf | 1<<(digits-1)
	switch dt {
	case dtype.Float8E4M3FN:
		f.inf, f.one, f.nan, f.saturates = 0x7e, 7<<3, 0x7f, true
	case dtype.Float8E5M2:
		f.nan = 0x7f
	}
	return f
}

// special returns the bits of what a rank has in place i.
func (f format) special(rank, i int) uint64 {
	payload := uint64(rank+1+i%3) & (1<<(f.digits-1) - 1)
	switch specialAt(rank, i) {
	case 0:
		return f.nan | payload
	case 1:
		return f.sign | f.nan | payload
	case 2: // signaling
		if f.saturates {
			return f.nan
		}
		return uint64(rank&1)*f.sign | f.inf | max(1, payload)
	case 3:
		return f.inf
	case 4:
		return f.sign | f.inf
	case 5:
		return 0
	case 6:
		return f.sign
	case 7:
		return f.one
	}
	return f.sign | f.one
}

func (f format) put(to []byte, bits uint64) {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], bits)
	copy(to[:f.bytes], b[:])
}

func (f format) isNaN(b []byte) bool {
	var all [8]byte
	copy(all[:], b)
	return binary.LittleEndian.Uint64(all[:])&^f.sign > f.inf
}

// round writes x, or the one NaN that reductions give.
func (f format) round(to []byte, x float64) error {
	if math.IsNaN(x) {
		f.put(to, f.nan)
		return nil
	}
	rounded := tensor.Must(tensor.Empty(f.dt, 1))
	if err := rounded.CopyFrom(tensor.Of([]float64{x})); err != nil {
		return err
	}
	b, err := rounded.Bytes()
	copy(to, b)
	return err
}

// combineSpecials is combine where NaN wins.
func combineSpecials(red comm.Reduction, xs []float64) float64 {
	for _, x := range xs {
		if math.IsNaN(x) {
			return x
		}
	}
	return combine(red, dtype.Float64, xs)
}
