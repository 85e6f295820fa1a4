package kernel

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/internal/testutil"
	"github.com/chorus-comms/chorus/kernel/text"
)

// without is an operand with stride 0 and other size in a dimension.
func (o Operand) without(dim, size int) Operand {
	o.Sizes, o.Strides = append([]int(nil), o.Sizes...), append([]int(nil), o.Strides...)
	o.Sizes[dim], o.Strides[dim] = size, 0
	return o
}

// Reads and writes at indexes, and copies in other places, on every type, against PyTorch.
func TestIndexTorch(t *testing.T) {
	c, dir := openCL(t), t.TempDir()
	at := c.dense(t, dtype.Int64, 3, 4) // of 5 elements, negative ones as well
	binaryIndexes := []int64{0, 4, 2, -1, 2, 2, -5, 1, 3, 0, 0, 4}
	for i, v := range binaryIndexes {
		binary.NativeEndian.PutUint64(at.data[8*i:], uint64(v))
	}
	word := c.dense(t, dtype.Int32, 1)
	var lines []string
	var results []*array
	var names []string
	for _, dt := range types {
		if testutil.Short() && dt != dtype.BFloat16 {
			continue
		}
		a, b := c.dense(t, dt, 5, 4), c.dense(t, dt, 3, 4)
		a.set(sample(dt, 20, 1))
		z := sample(dt, 12, 2)
		for i := range z {
			if dt.IsFloating() || dt.IsComplex() {
				z[i] = complex(float64(i%5)/2, 0)
			}
		}
		b.set(z)
		files := strings.Join([]string{a.file(t, dir, int(dt)), b.file(t, dir, 100+int(dt)), at.file(t, dir, 200)}, " ")
		add := func(name, expression string, sizes []int, start *array, run func(p *Plan, out Operand) error) {
			out := c.dense(t, dt, sizes...)
			if start != nil {
				copy(out.data, start.data)
			}
			var p Plan
			err := run(&p, out.Operand)
			if err == nil {
				err = c.run(&p)
			}
			if err != nil {
				t.Errorf("%s of %v: %v", name, dt, err)
				return
			}
			lines = append(lines, fmt.Sprintf("%v|%s|a = a.view(5, 4); b = b.view(3, 4); c = c.view(3, 4) %% 5; %s", dt, files,
				expression))
			results, names = append(results, out), append(names, name+" of "+dt.String())
		}
		index := func(stride int) Index { return Index{Operand: at.Operand, Size: 5, Stride: stride} }
		// The first column of indexes.
		row := Index{Operand: Operand{at.Ptr, dtype.Int64, []int{3, 1}, []int{4, 1}, nil}, Size: 5, Stride: 4}
		add("gather", "torch.gather(a, 0, c)", []int{3, 4}, nil, func(p *Plan, out Operand) error {
			return p.Take(out, a.without(0, 3), word.Ptr, index(4))
		})
		add("index_select", "torch.index_select(a, 0, c[:, 0])", []int{3, 4}, nil, func(p *Plan, out Operand) error {
			return p.Take(out, a.without(0, 3), 0, row)
		})
		add("index", "a[c]", []int{3, 4, 4}, nil, func(p *Plan, out Operand) error {
			in := Operand{a.Ptr, dt, []int{1, 1, 4}, []int{0, 0, 1}, nil}
			x := Index{Operand: Operand{at.Ptr, dtype.Int64, []int{3, 4, 1}, []int{4, 1, 0}, nil}, Size: 5, Stride: 4}
			return p.Take(out, in, 0, x)
		})
		for torch, op := range map[string]string{"sum": "add", "prod": "mul", "amax": "amax", "amin": "amin"} {
			if dt.IsComplex() && strings.HasPrefix(op, "am") || dt == dtype.Complex128 && op == "mul" {
				continue
			}
			add("scatter "+op, "a.clone().scatter_reduce(0, c, b, '"+torch+"')", []int{5, 4}, a, func(p *Plan, out Operand) error {
				return p.Put(op, out.without(0, 3), b.Operand, word.Ptr, index(4))
			})
		}
		add("index_put", "a.clone().index_put((c[:2, 0],), b[:2])", []int{5, 4}, a, func(p *Plan, out Operand) error {
			x := row
			x.Sizes = []int{2, 1}
			return p.Put("put", out.without(0, 2), b.Narrow(0, 0, 2), 0, x)
		})
		add("index_fill", "a.clone().index_fill(0, c[:, 0], 1)", []int{5, 4}, a, func(p *Plan, out Operand) error {
			return p.Put("put", out.without(0, 3), Operand{Type: dt, Value: Int(1)}, 0, row)
		})
		add("cat", "torch.cat([a, b, a[:0]])", []int{8, 4}, nil, func(p *Plan, out Operand) error {
			return p.Cat(out, 0, a.Operand, b.Operand, a.Narrow(0, 0, 0))
		})
		add("flip", "torch.flip(a, [0, 1])", []int{5, 4}, nil, func(p *Plan, out Operand) error {
			return p.Flip(out, a.Operand, 0, 1)
		})
		add("roll", "torch.roll(a, -2, 0)", []int{5, 4}, nil, func(p *Plan, out Operand) error {
			return p.Roll(out, a.Operand, -2, 0)
		})
		add("fill", "torch.full_like(a, 1)", []int{5, 4}, nil, func(p *Plan, out Operand) error { return p.Fill(out, Int(1)) })
		add("eye", "torch.eye(5, 4, dtype=dtype)", []int{5, 4}, nil, func(p *Plan, out Operand) error { return p.Eye(out) })
		for _, k := range []int{-2, 0, 1} {
			add("tril", fmt.Sprintf("torch.tril(a, %d)", k), []int{5, 4}, nil, func(p *Plan, out Operand) error {
				return p.Triangle(out, a.Operand, false, k)
			})
			add("triu", fmt.Sprintf("torch.triu(a.view(5, 2, 2), %d)", k), []int{5, 2, 2}, nil, func(p *Plan, out Operand) error {
				in := a.Operand
				in.Sizes, in.Strides = []int{5, 2, 2}, []int{4, 2, 1}
				return p.Triangle(out, in, true, k)
			})
		}
		if dt != dtype.Bool && !dt.IsComplex() {
			add("arange", "torch.arange(2, 35, 3, dtype=dtype)", []int{11}, nil, func(p *Plan, out Operand) error {
				return p.Arange(out, text.Opmath(dt), Int(2), Int(3))
			})
		}
		if dt.IsFloating() {
			add("linspace", "torch.linspace(-2, 7, 11, dtype=dtype)", []int{11}, nil, func(p *Plan, out Operand) error {
				return p.Linspace(out, text.Opmath(dt), -2, 7)
			})
			add("linspace of one", "torch.linspace(inf, 4, 1, dtype=dtype)", []int{1}, nil, func(p *Plan, out Operand) error {
				return p.Linspace(out, text.Opmath(dt), math.Inf(1), 4)
			})
		}
	}
	for k, want := range torch(t, lines) {
		if want == nil {
			if !strings.Contains(names[k], "bool") && !strings.Contains(lines[k], "scatter_reduce") {
				t.Errorf("PyTorch refuses %s", lines[k])
			}
			continue
		}
		results[k].equal(t, names[k], want[0], tolerance(results[k].Type))
	}
	if v := binary.NativeEndian.Uint32(word.data); v != 0xa5a5a5a5 {
		t.Errorf("indexes that are in range are reported: %x", v)
	}
}

// Indexes out of range read and write nothing, and are reported.
func TestIndexOutOfRange(t *testing.T) {
	c := openCL(t)
	a, o, at, word := c.dense(t, dtype.Float32, 3), c.dense(t, dtype.Float32, 4), c.dense(t, dtype.Int32, 4),
		c.dense(t, dtype.Int32, 1)
	a.set([]complex128{1, 2, 3})
	o.set([]complex128{9, 9, 9, 9})
	at.set([]complex128{-4, 2, 3, 1 << 30})
	clear(word.data)
	var p Plan
	x := Index{Operand: at.Operand, Size: 3, Stride: 1}
	must(t, p.Take(o.Operand, a.without(0, 4), word.Ptr, x))
	must(t, c.run(&p))
	if got := fmt.Sprint(o.elements()); got != "[(0+0i) (3+0i) (0+0i) (0+0i)]" || word.data[0] != 1 {
		t.Errorf("read %s, reported %d", got, word.data[0])
	}
	for _, op := range []string{"put", "add"} {
		clear(word.data)
		a.set([]complex128{1, 2, 3})
		p.Reset()
		must(t, p.Put(op, a.without(0, 4), o.Operand, word.Ptr, x))
		must(t, c.run(&p))
		a.intact(t, op)
		if word.data[0] != 1 || a.elements()[0] != 1 || a.elements()[2] == 9 {
			t.Errorf("%s: %v, reported %d", op, a.elements(), word.data[0])
		}
	}
}
