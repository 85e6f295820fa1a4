package kernel

import (
	"fmt"
	"slices"
	"testing"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/internal/testutil"
	"github.com/chorus-comms/chorus/kernel/text"
)

// Scans along dimensions of few and many elements, anywhere in memory, against PyTorch.
func TestScanTorch(t *testing.T) {
	c, dir := openCL(t), t.TempDir()
	shapes := slices.Concat(shapes[:6], shapes[groupShapes:], shapes[4:5]) // the last of blocks that share a row
	last := len(shapes) - 1
	shapes[last].sizes, shapes[last].strides, shapes[last].dims = []int{2, 3, 9001}, []int{9001, 0, 1}, []int{2}
	var lines, names []string
	var results [][]*array
	for k, dt := range types {
		if testutil.Short() && dt != dtype.Int64 && dt != dtype.Float32 {
			continue
		}
		const n = 2 * 9001
		in := c.dense(t, dt, n)
		z := sample(dt, n, 3)
		for i := range z {
			if dt.IsFloating() || dt.IsComplex() {
				z[i] = complex(float64(i*7919%97-48)/64, 0)
			}
		}
		in.set(z)
		file := in.file(t, dir, k)
		for i, op := range []string{"cumsum", "cumprod", "logcumsumexp", "cummax", "cummin"} {
			for j, shape := range shapes {
				if testutil.Short() && ((i+j+k)%2 == 1 || j == last && i != 0 && i != 3) {
					continue
				}
				compute := text.Opmath(dt)
				if !dt.IsFloating() && !dt.IsComplex() && (op == "cumsum" || op == "cumprod") {
					compute = dtype.Int64
				}
				if !scans[op].Defined(compute) || op == "cumprod" && j > 3 && !dt.IsFloating() {
					continue
				}
				dim := 0
				if shape.dims != nil {
					dim = shape.dims[0]
				}
				what := fmt.Sprintf("%s of %v over %d of %v", op, dt, dim, shape.sizes)
				x := in.Operand
				x.Sizes, x.Strides = shape.sizes, shape.strides
				kinds := []dtype.DType{dt, dtype.Int64}[:scans[op].Results()]
				if compute == dtype.Int64 && len(kinds) == 1 {
					kinds[0] = dtype.Int64
				}
				var outs []*array
				var operands []Operand
				for _, kind := range kinds {
					o := c.dense(t, kind, slices.Clone(shape.sizes)...)
					outs, operands = append(outs, o), append(operands, o.Operand)
				}
				p := Plan{Scratch: func(n int) (device.Ptr, error) { return c.dense(t, dtype.Uint8, n).Ptr, nil }}
				if j < last {
					p.Cores = c.loader.Cores() * ((i + j) % 2) // a processor's kernel or another's
				}
				err := p.Scan(op, compute, operands, x, dim)
				if err == nil {
					err = c.run(&p)
				}
				if err != nil {
					t.Errorf("%s: %v", what, err)
					continue
				}
				lines = append(lines, fmt.Sprintf("%v|%s|torch.%s(torch.as_strided(a, %s, %s), %d)", dt, file, op,
					python(shape.sizes), python(shape.strides), dim))
				results, names = append(results, outs), append(names, what)
			}
		}
	}
	ran := 0
	for k, want := range torch(t, lines) {
		for i := range want {
			results[k][i].equal(t, names[k], want[i], 30*tolerance(results[k][i].Type))
			ran++
		}
	}
	if ran < len(lines)/2 {
		t.Errorf("PyTorch has %d results of %d", ran, len(lines))
	}
}

// A GPU's blocks share long rows, however few there are.
func TestScanParts(t *testing.T) {
	for _, x := range []struct {
		sizes  []int
		dim    int
		blocks []int // of each run
	}{
		{[]int{100_000_000}, 0, []int{1024, 1, 1024}},
		{[]int{3, 1_000_000}, 1, []int{3 * 244, 3, 3 * 244}},
		{[]int{8191}, 0, []int{1}},
		{[]int{600, 100_000}, 1, []int{600}},
	} {
		strides := []int{1}
		if len(x.sizes) > 1 {
			strides = []int{x.sizes[1], 1}
		}
		in := Operand{Ptr: 1 << 20, Type: dtype.Float32, Sizes: x.sizes, Strides: strides}
		out := in
		out.Ptr = 1 << 40
		p := Plan{Scratch: func(int) (device.Ptr, error) { return 1 << 50, nil }}
		if err := p.Scan("cumsum", dtype.Float32, []Operand{out}, in, x.dim); err != nil {
			t.Fatal(err)
		}
		var blocks []int
		for _, c := range p.Calls {
			blocks = append(blocks, c.Grid.X)
		}
		if !slices.Equal(blocks, x.blocks) {
			t.Errorf("a scan of %v has runs of %d blocks, not %d", x.sizes, blocks, x.blocks)
		}
	}
}
