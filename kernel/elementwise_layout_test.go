package kernel

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/internal/testutil"
	"github.com/chorus-comms/chorus/kernel/loader"
	"github.com/chorus-comms/chorus/kernel/ops"
	"github.com/chorus-comms/chorus/kernel/text"
)

// random makes a tensor of sizes whose dimensions lie in memory in any order, with gaps, and some backwards.
func (c *cl) random(t testing.TB, r *rand.Rand, dt dtype.DType, sizes []int) *array {
	strides, step, offset := make([]int, len(sizes)), 1, 0
	for _, k := range r.Perm(len(sizes)) {
		strides[k] = step
		step *= max(sizes[k], 1)
		if r.IntN(3) == 0 {
			step += r.IntN(3)
		}
		if r.IntN(4) == 0 && sizes[k] > 0 {
			offset += (sizes[k] - 1) * strides[k]
			strides[k] = -strides[k]
		}
	}
	a := c.array(t, dt, step, sizes, strides)
	a.Ptr = a.Ptr.Add(offset * dt.Size())
	a.offset = offset
	a.set(sample(dt, step, r.Uint64()))
	return a
}

// Operands of any sizes and strides, types and broadcasting, against a definition in Go. Memory between the elements of
// a result stays as it was.
func TestElementwiseLayout(t *testing.T) {
	c, r := openCL(t), rand.New(rand.NewPCG(1, 2))
	kinds := []dtype.DType{dtype.Float32, dtype.Int64, dtype.Bool, dtype.Float16, dtype.Uint8}
	for round := range testutil.Pick(12, 150) {
		sizes := make([]int, r.IntN(5))
		for k := range sizes {
			sizes[k] = 1 + r.IntN(7)
		}
		if len(sizes) > 0 && round%10 == 9 {
			sizes[0] = 0
		}
		part := func() []int { // to be broadcast
			s := slices.Clone(sizes[r.IntN(len(sizes)+1):])
			for k := range s {
				if r.IntN(4) == 0 {
					s[k] = 1
				}
			}
			return s
		}
		pick := func() dtype.DType { return kinds[r.IntN(len(kinds))] }
		out := c.random(t, r, dtype.Float32, sizes)
		x, y := c.random(t, r, pick(), part()), c.random(t, r, pick(), part())
		what := fmt.Sprintf("round %d: %v and %v to %v", round, x.Operand, y.Operand, out.Operand)
		before := out.elements()
		var p Plan
		if err := p.Elementwise("sub", dtype.Float32, []Operand{out.Operand}, []Operand{x.Operand, y.Operand},
			Float(0.5)); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if len(p.Calls) > 0 == slices.Contains(sizes, 0) {
			t.Errorf("%s: %d runs", what, len(p.Calls))
		}
		if err := c.run(&p); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		out.intact(t, what)
		xs, ys, all := x.elements(), y.elements(), out.elements()
		at := func(a *array, index []int) int {
			place := a.offset
			for k := range a.Sizes {
				if a.Sizes[k] > 1 {
					place += a.Strides[k] * index[len(index)-len(a.Sizes)+k]
				}
			}
			return place
		}
		index := make([]int, len(sizes))
		for range out.Count() {
			o := at(out, index)
			want := float64(float32(real(xs[at(x, index)])) - 0.5*float32(real(ys[at(y, index)])))
			if !near(real(all[o]), want, 1e-6) {
				t.Fatalf("%s: element %v is %v, want %v", what, index, all[o], want)
			}
			before[o] = all[o]
			for k := len(index) - 1; k >= 0; k-- {
				if index[k]++; index[k] < sizes[k] {
					break
				}
				index[k] = 0
			}
		}
		for i := range all {
			if !nearComplex(all[i], before[i], 0) {
				t.Fatalf("%s: written between elements, at %d", what, i)
			}
		}
	}
}

// Every type is converted to every other, against package kern.
func TestElementwiseCast(t *testing.T) {
	c := openCL(t)
	const n = 257
	for k, from := range types {
		src := c.dense(t, from, n)
		z := sample(from, n, 3)
		for i := range z { // what every type of the other side has
			if x := real(z[i]); x != x || x > 100 || x < -100 {
				z[i] = 1
			}
		}
		src.set(z)
		for j, to := range types {
			if testutil.Short() && (k+j)%12 != 0 {
				continue
			}
			compute := text.Opmath(ops.Promote(from, to))
			dst := c.dense(t, to, n)
			var p Plan
			err := p.Elementwise("copy", compute, []Operand{dst.Operand}, []Operand{src.Operand})
			if err == nil {
				err = c.run(&p)
			}
			if err != nil {
				t.Fatalf("%v to %v: %v", from, to, err)
			}
			want := c.dense(t, to, n)
			values := src.elements()
			for i, v := range values {
				switch {
				case to == dtype.Bool && v != 0:
					values[i] = 1
				case to.IsInteger() && !to.IsSigned() && real(v) < 0:
					values[i] = complex(float64(uint8(int64(real(v)))), 0)
				case !to.IsComplex():
					values[i] = complex(real(v), 0)
				}
			}
			want.set(values)
			x, y := dst.elements(), want.elements()
			for i := range x {
				if !nearComplex(x[i], y[i], 0) {
					t.Errorf("%v to %v: %v becomes %v, want %v", from, to, src.elements()[i], x[i], y[i])
					break
				}
			}
		}
	}
}

// Numbers may stand for inputs.
func TestElementwiseNumbers(t *testing.T) {
	c := openCL(t)
	for _, dt := range []dtype.DType{dtype.Float32, dtype.Int64, dtype.Complex64} {
		a, o := c.dense(t, dt, 5, 3), c.dense(t, dt, 5, 3)
		a.set(sample(dtype.Int8, 15, 1))
		var p Plan
		must(t, p.Elementwise("mul", dt, []Operand{o.Operand}, []Operand{{Type: dt, Value: Int(3)}, a.Operand}))
		must(t, p.Elementwise("copy", dt, []Operand{a.Operand}, []Operand{{Type: dt, Value: Int(7)}}))
		before := a.elements()
		must(t, c.run(&p))
		for i, v := range o.elements() {
			if v != 3*before[i] || a.elements()[i] != 7 {
				t.Fatalf("%v: element %d: %v and %v", dt, i, v, a.elements()[i])
			}
		}
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Promote and Types are PyTorch's rules.
func TestTypesTorch(t *testing.T) {
	var lines []string
	for _, a := range types {
		for _, b := range types {
			lines = append(lines, fmt.Sprintf("%v||torch.empty(0, dtype=torch.promote_types(torch.%v, torch.%v))", a, a, b))
		}
	}
	for k, want := range torch(t, lines) {
		a, b := types[k/len(types)], types[k%len(types)]
		if got := ops.Promote(a, b); got != want[0].dtype {
			t.Errorf("%v and %v: %v, and PyTorch says %v", a, b, got, want[0].dtype)
		}
	}
}

// A plan that's used again allocates nothing.
func TestElementwiseAllocations(t *testing.T) {
	op := Operand{Ptr: 4096, Type: dtype.Float32, Sizes: []int{8, 9, 10}, Strides: []int{1, 8, 72}}
	outs, ins := []Operand{op}, []Operand{op, {Ptr: 4096, Type: dtype.Float16, Sizes: []int{10}, Strides: []int{1}}}
	two := []*Number{Float(2)}
	var p Plan
	if n := testing.AllocsPerRun(100, func() {
		p.Reset()
		if err := p.Elementwise("add", dtype.Float32, outs, ins, two...); err != nil {
			t.Fatal(err)
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// Indexes have 64 bits where they must.
func TestElementwiseWide(t *testing.T) {
	var p Plan
	for _, c := range []struct {
		sizes, strides []int
		wide           bool
	}{
		{[]int{1 << 20}, []int{1}, false},
		{[]int{narrow}, []int{1}, false},
		{[]int{narrow + 1}, []int{1}, true},
		{[]int{3, 5}, []int{narrow/3 - 5, 1}, false},
		{[]int{3, 5}, []int{narrow / 3, 1}, true},
		{[]int{3, 5}, []int{5 - narrow/3, 1}, false},
		{[]int{3, 5}, []int{-narrow / 3, 1}, true},
		{[]int{1, 5}, []int{1 << 40, 1}, false},
	} {
		op := Operand{Ptr: 4096, Type: dtype.Uint8, Sizes: c.sizes, Strides: c.strides}
		p.Reset()
		must(t, p.Elementwise("bitwise_not", dtype.Uint8, []Operand{op}, []Operand{op}))
		if p.Calls[0].Spec.Wide != c.wide {
			t.Errorf("sizes %v, strides %v: wide is %v", c.sizes, c.strides, p.Calls[0].Spec.Wide)
		}
	}
}

// Inputs whose neighbours are in another dimension than those of the result are read in their own order, by tiles, on a
// processor and in the GPUs' form of the kernel.
func TestElementwiseTransposed(t *testing.T) {
	c := openCL(t)
	asGPU, err := loader.New(c.dev, nil)
	must(t, err)
	asGPU.As(loader.Processor{})
	kinds := []dtype.DType{dtype.Int32, dtype.Float16, dtype.Complex128, dtype.Uint8}
	for round, sizes := range [][]int{{37, 300}, {2, 35, 257}, {5, 16, 300}, {16, 16}, {3, 64, 128}, {2, 65, 33}} {
		if testutil.Short() && round > 1 {
			break
		}
		n, last := 1, len(sizes)-1
		for _, size := range sizes {
			n *= size
		}
		order := make([]int, len(sizes)) // of the dimensions in memory: the last one before the one before it
		for k := range order {
			order[k] = k
		}
		order[last-1], order[last] = last, last-1
		strides, step := make([]int, len(sizes)), 1
		for k := last; k >= 0; k-- {
			strides[order[k]] = step
			step *= sizes[order[k]]
		}
		dt := kinds[round%len(kinds)]
		out, straight := c.dense(t, dtype.Complex128, sizes...), c.dense(t, dtype.Int32, sizes...)
		var ins [3]*array
		for k := range ins {
			ins[k] = c.array(t, kinds[(round+k)%len(kinds)], n, sizes, strides)
		}
		x := make([]complex128, n)
		for i := range x {
			x[i] = complex(float64((i*7+i/31)%100), 0)
		}
		straight.set(x)
		for _, a := range ins {
			a.set(x)
		}
		for _, l := range []*loader.Loader{c.loader, asGPU} {
			for inputs := 2; inputs <= 3; inputs++ {
				var p Plan
				operands := []Operand{ins[0].Operand, straight.Operand}
				op, numbers := "add", []*Number{Int(2)}
				if inputs == 3 {
					operands, op = []Operand{ins[0].Operand, ins[1].Operand, ins[2].Operand}, "addcmul"
				}
				must(t, p.Elementwise(op, dtype.Complex128, []Operand{out.Operand}, operands, numbers...))
				if p.Calls[0].Spec.Extra[2] == 0 {
					t.Errorf("sizes %v: no tiles", sizes)
				}
				on := *c
				on.loader = l
				must(t, on.run(&p))
				index := make([]int, len(sizes))
				for i, got := range out.elements() {
					at := 0
					for k := range index {
						at += index[k] * strides[k]
					}
					want := x[at] + 2*x[i]
					if inputs == 3 {
						want = x[at] + 2*x[at]*x[at]
					}
					if got != want {
						t.Fatalf("%s of %v, sizes %v, processor %v, element %d: %v instead of %v", op, dt, sizes, l == c.loader, i,
							got, want)
					}
					for k := last; k >= 0; k-- {
						if index[k]++; index[k] < sizes[k] {
							break
						}
						index[k] = 0
					}
				}
				out.intact(t, op)
			}
		}
	}
}

// Operands that are larger than caches together, whose memory is asked for ahead.
func TestElementwiseAhead(t *testing.T) {
	c := openCL(t)
	for _, x := range []struct {
		op    string
		dt    dtype.DType
		flips []byte // in each part of an element
	}{
		{"neg", dtype.Float32, []byte{0, 0, 0, 0x80}},
		{"bitwise_not", dtype.Uint8, []byte{0xff}},
		{"neg", dtype.Complex128, []byte{0, 0, 0, 0, 0, 0, 0, 0x80}},
	}[:testutil.Pick(2, 3)] {
		n := text.PrefetchLeast/(2*x.dt.Size()) + 301
		in, out := c.alloc(t, (n+1)*x.dt.Size()), c.alloc(t, (n+1)*x.dt.Size())
		for i := range in.host {
			in.host[i] = byte(i*31 + i>>8 + i>>16)
			if x.dt != dtype.Uint8 && i%4 == 3 {
				in.host[i] &= 0xb0 // neither infinite nor NaN
			}
		}
		clear(out.host)
		operand := func(m *memory) Operand {
			return Operand{Ptr: m.ptr, Type: x.dt, Sizes: []int{n}, Strides: []int{1}}
		}
		var p Plan
		must(t, p.Elementwise(x.op, x.dt, []Operand{operand(out)}, []Operand{operand(in)}))
		must(t, c.run(&p))
		for i, got := range out.host {
			want := in.host[i] ^ x.flips[i&(len(x.flips)-1)] // of which there is a power of two
			if i >= n*x.dt.Size() {
				want = 0
			}
			if got != want {
				t.Fatalf("%s of %v: byte %d of %d elements is %#x, not %#x", x.op, x.dt, i, n, got, want)
			}
		}
	}
}
