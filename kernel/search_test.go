package kernel

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/kernel/text"
)

// Searches in sorted lines, and counts of bins, on every type, against PyTorch.
func TestSearchTorch(t *testing.T) {
	x, dir := &comparisons{c: openCL(t)}, t.TempDir()
	order := x.c.dense(t, dtype.Int64, 3, 40)
	for k, dt := range sortTypes {
		if !sampled(k, 10, 1) || dt == dtype.Bool {
			continue
		}
		a, b := x.c.dense(t, dt, 3, 40), x.c.dense(t, dt, 2, 3, 25)
		finite := func(a *array, step int) {
			z := make([]complex128, len(a.data)/dt.Size())
			for i := range z {
				z[i] = complex(float64(i*step%37)/2, 0)
			}
			a.set(z)
		}
		finite(a, 7)
		finite(b, 5)
		// the lines in order, by a sort of our own
		sorted := x.c.dense(t, dt, 3, 40)
		p := x.c.plan(t)
		must(t, p.Sort(sorted.Operand, order.Operand, a.Operand, 1, false))
		must(t, x.c.run(p))
		files := strings.Join([]string{a.file(t, dir, 10*k), b.file(t, dir, 10*k+1), sorted.file(t, dir, 10*k+2),
			order.file(t, dir, 10*k+3)}, " ")
		for j, right := range []string{"False", "True"} {
			line := func(e string) string {
				return fmt.Sprintf("%v|%s|a = a.view(3, 40); b = b.view(2, 3, 25); c = c.view(3, 40); d = d.view(3, 40); "+
					strings.ReplaceAll(e, "RIGHT", right), dt, files)
			}
			x.add(t, fmt.Sprintf("searchsorted of %v", dt), line("torch.searchsorted(c, b[1], right=RIGHT)"),
				[]Operand{of(dtype.Int64, 3, 25)}, func(p *Plan, outs []Operand) error {
					v := b.Narrow(0, 1, 2)
					v.Sizes, v.Strides = v.Sizes[1:], v.Strides[1:]
					return p.Search(outs[0], v, sorted.Operand, Operand{}, j == 1)
				})
			x.add(t, fmt.Sprintf("searchsorted of %v by a sorter", dt),
				line("torch.searchsorted(a, b[0], right=RIGHT, sorter=d, out_int32=True)"), []Operand{of(dtype.Int32, 3, 25)},
				func(p *Plan, outs []Operand) error {
					return p.Search(outs[0], b.strided([]int{3, 25}, []int{25, 1}), a.Operand, order.Operand, j == 1)
				})
			row := sorted.strided([]int{40}, []int{1})
			x.add(t, fmt.Sprintf("bucketize of %v", dt), line("torch.bucketize(b.transpose(0, 2), c[0], right=RIGHT)"),
				[]Operand{of(dtype.Int64, 25, 3, 2)}, func(p *Plan, outs []Operand) error {
					return p.Search(outs[0], b.strided([]int{25, 3, 2}, []int{1, 25, 75}), row, Operand{}, j == 1)
				})
			x.add(t, fmt.Sprintf("isin of %v", dt), line("torch.isin(b, c[0], invert=RIGHT)"),
				[]Operand{of(dtype.Bool, 2, 3, 25)}, func(p *Plan, outs []Operand) error {
					return p.Contains(outs[0], b.Operand, row, j == 1)
				})
			x.add(t, "bucketize in nothing, of no dimensions", line("torch.bucketize(b.view(-1)[3], c[0, :0], right=RIGHT)"),
				[]Operand{of(dtype.Int64)}, func(p *Plan, outs []Operand) error {
					return p.Search(outs[0], b.strided(nil, nil), row.Narrow(0, 0, 0), Operand{}, j == 1)
				})
			x.add(t, "isin of nothing", line("torch.isin(b[:0], c[0], invert=RIGHT)"),
				[]Operand{of(dtype.Bool, 0, 3, 25)}, func(p *Plan, outs []Operand) error {
					return p.Contains(outs[0], b.Narrow(0, 0, 0), row, j == 1)
				})
		}
		line := func(e string) string { return fmt.Sprintf("%v|%s|%s", dt, files, e) }
		if dt.IsInteger() {
			x.add(t, fmt.Sprintf("bincount of %v", dt), line("torch.bincount(a, minlength=20)"), []Operand{of(dtype.Int64, 20)},
				func(p *Plan, outs []Operand) error {
					return p.Bincount(outs[0], a.strided([]int{120}, []int{1}), Operand{}, 0)
				})
			x.add(t, fmt.Sprintf("bincount of %v with weights", dt), line("torch.bincount(a, b[:120].double(), 20)"),
				[]Operand{of(dtype.Float64, 20)}, func(p *Plan, outs []Operand) error {
					weights, err := p.temporary(dtype.Float64, 120)
					if err == nil {
						err = p.Copy(weights, b.strided([]int{120}, []int{1}))
					}
					if err != nil {
						return err
					}
					return p.Bincount(outs[0], a.strided([]int{120}, []int{1}), weights, 0)
				})
			continue
		}
		if dt.Size() == 2 {
			continue // not in PyTorch
		}
		for _, ends := range [][2]float64{{0, 0}, {2, 11}, {30, 40}} {
			x.add(t, fmt.Sprintf("histc of %v from %v", dt, ends), line(fmt.Sprintf("torch.histc(a, 9, %v, %v)", ends[0], ends[1])),
				[]Operand{of(dt, 9)}, func(p *Plan, outs []Operand) error {
					return p.Histc(outs[0], a.Operand, ends[0], ends[1])
				})
		}
		x.add(t, fmt.Sprintf("histc of equal %vs", dt), line("torch.histc(a[:1], 9, 0, 0)"), []Operand{of(dt, 9)},
			func(p *Plan, outs []Operand) error {
				return p.Histc(outs[0], a.strided([]int{1}, []int{1}), 0, 0)
			})
		x.add(t, fmt.Sprintf("histc of no %v", dt), line("torch.histc(a[:0], 9, 0, 1)"), []Operand{of(dt, 9)},
			func(p *Plan, outs []Operand) error {
				return p.Histc(outs[0], a.strided([]int{0}, []int{1}), 0, 1)
			})
	}
	x.compare(t, 0)
}

// Numbers that have no count are reported, and operands that don't fit refused.
func TestSearchRefused(t *testing.T) {
	op := func(t dtype.DType, sizes ...int) Operand { return Operand{4096, t, sizes, Dense(sizes...), nil} }
	var p Plan
	i8, i64, f32, none := dtype.Int8, dtype.Int64, dtype.Float32, Operand{}
	for want, err := range map[string]error{
		"result of int8":        p.Search(op(i8, 3), op(f32, 3), op(f32, 3), none, false),
		"int8 in float32":       p.Search(op(i64, 3), op(i8, 3), op(f32, 3), none, false),
		"1 dimensions in 2":     p.Search(op(i64, 3), op(f32, 3), op(f32, 3, 1), none, false),
		"[2 3] and [4 3]":       p.Search(op(i64, 2, 3), op(f32, 2, 3), op(f32, 4, 3), none, false),
		"sorter of sizes [4]":   p.Search(op(i64, 3), op(f32, 3), op(f32, 3), op(i64, 4), false),
		"sorter of int8":        p.Search(op(i64, 3), op(f32, 3), op(f32, 3), op(i8, 3), false),
		"elements of 2":         p.Contains(op(dtype.Bool, 3), op(f32, 3), op(f32, 3, 3), false),
		"bincount of float32":   p.Bincount(op(i64, 3), op(f32, 3), none, 0),
		"bincount to int8":      p.Bincount(op(i8, 3), op(i8, 3), none, 0),
		"from 3 to 2":           p.Histc(op(f32, 3), op(f32, 3), 3, 2),
		"histc of int8":         p.Histc(op(i8, 3), op(i8, 3), 2, 3),
		"has no Scratch":        p.Bincount(op(i64, 3), op(i8, 3), none, 0),
		"isin of complex64 in ": p.Contains(op(dtype.Bool, 3), op(dtype.Complex64, 3), op(dtype.Complex64, 3), false),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	c := openCL(t)
	in, out, word := c.dense(t, dtype.Int32, 4), c.dense(t, i64, 3), c.dense(t, dtype.Int32, 1)
	in.set([]complex128{1, -1, 3, 1})
	clear(word.data)
	q := c.plan(t)
	must(t, q.Bincount(out.Operand, in.Operand, none, word.Ptr))
	must(t, c.run(q))
	out.intact(t, "bincount")
	if got := fmt.Sprint(integers(i64, out.data)); got != "[0 2 0]" || binary.NativeEndian.Uint32(word.data) != 1 {
		t.Errorf("counts %s, reported %v", got, word.data)
	}
}

// searchSpecs are the kernels of searches.
func searchSpecs() []text.Spec {
	var all []text.Spec
	for k, dt := range sortTypes {
		sizes := [][]int{{5}, {5, 6}, {5, 6, 7}}[k%3]
		n := len(sizes)
		v := Operand{4096, dt, sizes, Dense(sizes...), nil}
		line := Operand{4096, dt, []int{40 + k%2<<31}, []int{1}, nil}
		out := func(t dtype.DType) Operand { return Operand{4096, t, sizes, make([]int, n), nil} }
		all = append(all, specsOf(func(p *Plan) error {
			if err := p.Contains(out(dtype.Bool), v, line, false); err != nil {
				return err
			}
			return p.Search(out([]dtype.DType{dtype.Int32, dtype.Int64}[k%2]), v, line, Operand{}, false)
		})...)
		if dt.IsFloating() {
			all = append(all, specsOf(func(p *Plan) error {
				return p.Histc(Operand{4096, dt, []int{5}, []int{1}, nil}, v, 0, 0)
			})...)
		}
	}
	return all
}
