package kernel

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/internal/testutil"
	"github.com/chorus-comms/chorus/kernel/text"
)

// Softmax and normalizations, forward and backward, against PyTorch: rows of few and many elements, in dimensions that
// lie anywhere, tensors without dimensions and without elements.
func TestRowsTorch(t *testing.T) {
	c, dir := openCL(t), t.TempDir()
	var lines, names []string
	var results [][]*array
	for _, dt := range []dtype.DType{dtype.Float32, dtype.BFloat16, dtype.Float64, dtype.Float16} {
		if testutil.Short() && dt != dtype.Float32 {
			continue
		}
		const n = 6 * 8 * 90
		ins := make([]*array, 3)
		var files []string
		for k := range ins {
			ins[k] = c.dense(t, dt, n)
			z := make([]complex128, n)
			for i := range z {
				z[i] = complex(float64((i*(7919+k)+k*31)%257-128)/64, 0)
			}
			ins[k].set(z)
			files = append(files, ins[k].file(t, dir, 10*int(dt)+k))
		}
		p := &Plan{Scratch: func(n int) (device.Ptr, error) { return c.dense(t, dtype.Uint8, n).Ptr, nil }}
		if dt == dtype.Float32 { // blocks of a processor share the rows
			p.Cores = c.loader.Cores()
		}
		add := func(name, expression string, outs []*array, err error) {
			t.Helper()
			if err == nil {
				err = c.run(p)
			}
			p.Reset()
			if err != nil {
				t.Errorf("%s of %v: %v", name, dt, err)
				return
			}
			lines = append(lines, fmt.Sprintf("%v|%s|%s", dt, strings.Join(files, " "), expression))
			results, names = append(results, outs), append(names, name+" of "+dt.String())
		}
		like := func(sizes ...int) *array { return c.dense(t, dt, sizes...) }
		view := func(k int, sizes ...int) Operand { return viewed(ins[k].Operand, sizes...) }
		part := func(k, n int) Operand { return viewed(ins[k].Operand, n) }

		shapes := []struct {
			sizes []int
			dim   int
		}{{[]int{6, 20}, 1}, {[]int{33, 100}, 1}, {[]int{6, 8, 90}, 2}, {[]int{6, 90, 8}, 1}, {[]int{48, 9}, 0}, {[]int{}, 0},
			{[]int{0, 3}, 1}, {[]int{3, 0}, 1}, {[]int{7, 3}, 1}, {[]int{37, 33}, 1}, {[]int{7, 300}, 1}, {[]int{3, 1100}, 1}}
		const groups = 2 // of the shapes: their rows are groups' of a GPU's threads
		cores := p.Cores
		for k, s := range shapes[:testutil.Pick(6, len(shapes))] {
			if p.Cores = cores; k < groups {
				p.Cores = 0
			}
			for _, op := range []string{"softmax", "log_softmax"}[:testutil.Pick(1, 2)] {
				o := like(s.sizes...)
				x := fmt.Sprintf("a[:%d].view(%s)", o.Count(), python(s.sizes))
				add(fmt.Sprintf("%s over %d of %v", op, s.dim, s.sizes), fmt.Sprintf("torch.%s(%s, %d)", op, x, s.dim),
					[]*array{o}, p.Softmax(op, o.Operand, view(0, s.sizes...), s.dim))
				o = like(s.sizes...)
				grad, result := view(0, s.sizes...), view(1, s.sizes...)
				add(fmt.Sprintf("%s_backward over %d of %v", op, s.dim, s.sizes),
					fmt.Sprintf("torch.ops.aten._%s_backward_data(%s, b[:%d].view(%s), %d, dtype)", op, x, o.Count(),
						python(s.sizes), s.dim), []*array{o}, p.SoftmaxBackward(op, o.Operand, grad, result, s.dim))
			}
		}
		p.Cores = cores
		for _, rows := range []int{48, 1, 540}[:testutil.Pick(1, 3)] { // of 90 and of 8 elements, and one
			length := map[int]int{1: 700, 48: 90, 540: 8}[rows]
			x := fmt.Sprintf("a[:%d].view(%d, %d)", rows*length, rows, length)
			g := strings.Replace(x, "a", "b", 1)
			stat := text.Opmath(dt)
			for _, op := range []string{"layer_norm", "rms_norm"} {
				o, gi, gw, gb := like(rows, length), like(rows, length), like(length), like(length)
				norm := &Norm{Weight: part(2, length), Bias: part(1, length), Mean: c.dense(t, stat, rows).Operand,
					Rstd: c.dense(t, stat, rows).Operand}
				outs := []*array{o, gi, gw, gb}
				expr := fmt.Sprintf("x = %s.detach().requires_grad_(); w = c[:%d].detach().requires_grad_(); ", x, length)
				if op == "layer_norm" {
					expr += fmt.Sprintf("v = b[:%d].detach().requires_grad_(); y = F.layer_norm(x, (%d,), w, v, 1e-3); ", length, length) +
						fmt.Sprintf("y.backward(%s); (y, x.grad, w.grad, v.grad)", g)
				} else {
					norm.Bias, outs = Operand{}, outs[:3]
					expr += fmt.Sprintf("y = F.rms_norm(x, (%d,), w, 1e-3); y.backward(%s); (y, x.grad, w.grad)", length, g)
				}
				err := p.Normalize(op, o.Operand, view(0, rows, length), norm, 1e-3)
				if err == nil {
					err = p.NormalizeBackward(op, gi.Operand, view(1, rows, length), view(0, rows, length), norm)
				}
				if err == nil && op == "layer_norm" {
					err = p.NormalizeWeights(op, gw.Operand, gb.Operand, view(1, rows, length), view(0, rows, length), norm)
				} else if err == nil {
					err = p.NormalizeWeights(op, gw.Operand, Operand{}, view(1, rows, length), view(0, rows, length), norm)
				}
				add(fmt.Sprintf("%s of %d rows", op, rows), expr, outs, err)
			}
		}
		{ // 6 images of 8 channels in 2 groups
			o, gi, gw, gb := like(12, 360), like(12, 360), like(8), like(8)
			norm := &Norm{Weight: part(2, 8), Bias: part(1, 8), Mean: c.dense(t, text.Opmath(dt), 12).Operand,
				Rstd: c.dense(t, text.Opmath(dt), 12).Operand, Channels: 4, Inner: 90, Groups: 2}
			err := p.Normalize("layer_norm", o.Operand, view(0, 12, 360), norm, 1e-3)
			if err == nil {
				err = p.NormalizeBackward("layer_norm", gi.Operand, view(1, 12, 360), view(0, 12, 360), norm)
			}
			if err == nil {
				err = p.NormalizeWeights("layer_norm", gw.Operand, gb.Operand, view(1, 12, 360), view(0, 12, 360), norm)
			}
			add("group_norm", "x = a.view(6, 8, 90).detach().requires_grad_(); w = c[:8].detach().requires_grad_(); "+
				"v = b[:8].detach().requires_grad_(); y = F.group_norm(x, 2, w, v, 1e-3); y.backward(b.view(6, 8, 90)); "+
				"(y, x.grad, w.grad, v.grad)", []*array{o, gi, gw, gb}, err)
		}
		for _, training := range []bool{true, false}[:testutil.Pick(1, 2)] {
			o, gi, gw, gb, rm, rv := like(6, 8, 90), like(6, 8, 90), like(8), like(8), like(8), like(8)
			copy(rm.data, ins[1].data)
			rv.set([]complex128{1, 2, 3, 4, 5, 6, 7, 8})
			b := &BatchNorm{Weight: part(2, 8), Bias: part(1, 8), RunningMean: rm.Operand, RunningVar: rv.Operand,
				SavedMean: c.dense(t, text.Opmath(dt), 8).Operand, SavedRstd: c.dense(t, text.Opmath(dt), 8).Operand,
				Training: training,
				Momentum: 0.25, Eps: 1e-3}
			err := p.BatchNorm(o.Operand, view(0, 6, 8, 90), b)
			if err == nil {
				err = p.BatchNormBackward(gi.Operand, gw.Operand, gb.Operand, view(1, 6, 8, 90), view(0, 6, 8, 90), b)
			}
			flag := map[bool]string{true: "True", false: "False"}[training]
			add("batch_norm", "x = a.view(6, 8, 90).detach().requires_grad_(); w = c[:8].detach().requires_grad_(); "+
				"v = b[:8].detach().requires_grad_(); m = b[:8].clone(); r = torch.arange(1, 9).to(dtype); "+
				"y = F.batch_norm(x, m, r, w, v, "+flag+", 0.25, 1e-3); y.backward(b.view(6, 8, 90)); "+
				"(y, x.grad, w.grad, v.grad, m, r)", []*array{o, gi, gw, gb, rm, rv}, err)
		}
	}
	for k, want := range torch(t, lines) {
		if len(want) != len(results[k]) {
			t.Errorf("%s: PyTorch has %d results", lines[k], len(want))
			continue
		}
		for i, a := range results[k] {
			a.equal(t, fmt.Sprintf("%s, result %d", names[k], i), want[i], 10*tolerance(a.Type))
		}
	}
	t.Logf("%d operations", len(lines))
}

// A GPU's block has several rows of few elements.
func TestRowsOfGroups(t *testing.T) {
	for _, c := range []struct{ rows, n, blocks int }{{100_000, 8, 391}, {100_000, 9, 3_125}, {100_000, 32, 3_125},
		{100_000, 33, 12_500}, {100_000, 256, 12_500}, {4096, 257, 512}, {4095, 257, 4095}, {100_000, 1025, 100_000}} {
		x := Operand{Ptr: 1 << 20, Type: dtype.Float32, Sizes: []int{c.rows, c.n}, Strides: []int{c.n, 1}}
		out, p := x, Plan{}
		out.Ptr = 1 << 40
		must(t, p.Softmax("softmax", out, x, 1))
		if got := p.Calls[0].Grid.X; got != c.blocks {
			t.Errorf("%d rows of %d elements have %d blocks, not %d", c.rows, c.n, got, c.blocks)
		}
	}
}
