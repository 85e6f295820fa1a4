package kernel

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/internal/testutil"
)

// Products of matrices whose sizes aren't multiples of the tiles, transposed, broadcast, with what's added, against
// PyTorch.
func TestMatmulTorch(t *testing.T) { matmulTorch(t, openCL(t), 0) }

// So are those of a library, where the device has one: CHORUS_BLAS_LIBRARY=libclblast.so.1 for example.
func TestLibraryTorch(t *testing.T) {
	c := openCL(t)
	products := c.loader.GEMM()
	if products == 0 {
		_, err := c.dev.GEMMLibrary()
		t.Skip("left out: ", err)
	}
	before := c.loader.Stats().Multiplied
	matmulTorch(t, c, products)
	if n := c.loader.Stats().Multiplied - before; n == 0 || c.loader.GEMMLibrary() == "" {
		t.Errorf("%s multiplied %d times", c.loader.GEMMLibrary(), n)
	}
}

func matmulTorch(t *testing.T, c *cl, products dtype.Set) {
	dir := t.TempDir()
	var lines, names []string
	var results []*array
	for _, dt := range types {
		if dt == dtype.Bool || testutil.Short() && dt != dtype.Float32 ||
			products != 0 && !products.Has(dt) {
			continue
		}
		const n = 9000
		ins, files := make([]*array, 3), make([]string, 3)
		for k := range ins {
			ins[k] = c.dense(t, dt, n)
			z := make([]complex128, n)
			for i := range z {
				z[i] = complex(float64((i*(7919+2*k)+k)%17), 0)
				if dt.IsFloating() || dt.IsComplex() {
					z[i] = (z[i] - 8) / 8
				}
				if dt.IsComplex() {
					z[i] += complex(0, float64(i%5)/4)
				}
				if dt.Size() == 1 {
					z[i] = complex(float64(i%3), 0)
				}
			}
			ins[k].set(z)
			files[k] = ins[k].file(t, dir, 10*int(dt)+k)
		}
		add := func(name, expression string, sizes []int, run func(p *Plan, out Operand) error) {
			t.Helper()
			o := c.dense(t, dt, sizes...)
			p := Plan{GEMM: products}
			err := run(&p, o.Operand)
			if err == nil {
				err = c.run(&p)
			}
			if err != nil {
				t.Errorf("%s of %v: %v", name, dt, err)
				return
			}
			lines = append(lines, fmt.Sprintf("%v|%s|%s", dt, strings.Join(files, " "), expression))
			results, names = append(results, o), append(names, name+" of "+dt.String())
		}
		one, two := Int(1), Int(2)
		view := func(k int, sizes, strides []int) Operand {
			o := ins[k].Operand
			o.Sizes, o.Strides = sizes, strides
			return o
		}
		for _, s := range [][3]int{{1, 1, 1}, {70, 65, 33}, {5, 130, 17}, {64, 64, 64}, {30, 40, 150}, {3, 4, 0}, {0, 4, 3}} {
			m, n, k := s[0], s[1], s[2]
			add(fmt.Sprintf("matmul %v", s), fmt.Sprintf("a[:%d].view(%d, %d) @ b[:%d].view(%d, %d).T", m*k, m, k, n*k, n, k),
				[]int{m, n}, func(p *Plan, out Operand) error {
					return p.Matmul(out, view(0, []int{m, k}, []int{k, 1}), view(1, []int{k, n}, []int{1, k}), Operand{}, one, one, "")
				})
		}
		add("bmm", "a[:6*35*9].view(3, 2, 35, 9) @ b[:2*9*40].view(2, 9, 40)", []int{3, 2, 35, 40},
			func(p *Plan, out Operand) error {
				return p.Matmul(out, view(0, []int{3, 2, 35, 9}, []int{630, 315, 9, 1}),
					view(1, []int{1, 2, 9, 40}, []int{0, 360, 40, 1}), Operand{}, one, one, "")
			})
		add("addmm", "torch.addmm(c[:20], a[:60].view(20, 3).T, b[:400].view(20, 20), alpha=2, beta=2)", []int{3, 20},
			func(p *Plan, out Operand) error {
				return p.Matmul(out, view(0, []int{3, 20}, []int{1, 3}), view(1, []int{20, 20}, []int{20, 1}),
					view(2, []int{20}, []int{1}), two, two, "")
			})
		add("addmm in place", "torch.addmm(c[:12].view(4, 3).T, a[:15].view(3, 5), b[:20].view(5, 4), "+
			"alpha=3, beta=2).T.contiguous()", []int{4, 3}, func(p *Plan, out Operand) error { // columns are dense
			if err := p.Copy(out, view(2, []int{4, 3}, []int{3, 1})); err != nil {
				return err
			}
			out.Sizes, out.Strides = []int{3, 4}, []int{1, 3}
			return p.Matmul(out, view(0, []int{3, 5}, []int{5, 1}), view(1, []int{5, 4}, []int{4, 1}), out, Int(3), two, "")
		})
		add("baddbmm", "torch.baddbmm(c[:7*5].view(1, 7, 5), a[:3*4*7].view(3, 4, 7).mT, "+
			"b[:4*5].view(1, 4, 5).expand(3, 4, 5), alpha=2, beta=3)", []int{3, 7, 5}, func(p *Plan, out Operand) error {
			return p.Matmul(out, view(0, []int{3, 7, 4}, []int{28, 1, 7}), view(1, []int{3, 4, 5}, []int{0, 5, 1}),
				view(2, []int{1, 7, 5}, []int{35, 5, 1}), two, Int(3), "")
		})
		add("of parts", "a[:800].view(20, 40)[3:12, 5:22] @ b[:900].view(30, 30)[2:19, 4:15]", []int{9, 11},
			func(p *Plan, out Operand) error {
				x, y := view(0, []int{9, 17}, []int{40, 1}), view(1, []int{17, 11}, []int{30, 1})
				x.Ptr, y.Ptr = x.Ptr.Add((3*40+5)*dt.Size()), y.Ptr.Add((2*30+4)*dt.Size())
				return p.Matmul(out, x, y, Operand{}, one, one, "")
			})
		add("vectors", "a[:50].view(50, 1).T @ b[:100:2].view(50, 1)", []int{1, 1}, func(p *Plan, out Operand) error {
			return p.Matmul(out, view(0, []int{1, 50}, []int{7, 1}), view(1, []int{50, 1}, []int{2, 9}), Operand{}, one, one, "")
		})
		if dt.IsComplex() {
			z := Complex(2 - 1i)
			add("complex numbers", "torch.addmm(c[:12].view(3, 4), a[:15].view(3, 5), b[:20].view(5, 4), alpha=2-1j, beta=2-1j)",
				[]int{3, 4}, func(p *Plan, out Operand) error {
					return p.Matmul(out, view(0, []int{3, 5}, []int{5, 1}), view(1, []int{5, 4}, []int{4, 1}),
						view(2, []int{3, 4}, []int{4, 1}), z, z, "")
				})
		}
		if dt.IsFloating() {
			add("linear with gelu", "F.gelu(F.linear(a[:60].view(3, 20), b[:200].view(10, 20), c[:10]).to(torch.float64)).to(dtype)",
				[]int{3, 10}, func(p *Plan, out Operand) error {
					return p.Matmul(out, view(0, []int{3, 20}, []int{20, 1}), view(1, []int{20, 10}, []int{1, 20}),
						view(2, []int{10}, []int{1}), one, one, "gelu")
				})
		}
	}
	for k, want := range torch(t, lines) {
		if want == nil {
			t.Errorf("PyTorch refuses %s", lines[k])
			continue
		}
		results[k].equal(t, names[k], want[0], 2*tolerance(results[k].Type))
	}
	var p Plan
	op := func(sizes ...int) Operand {
		return Operand{Type: dtype.Float32, Sizes: sizes, Strides: Dense(sizes...)}
	}
	for _, o := range [][4]Operand{{op(2, 3), op(2, 4), op(5, 3)}, {op(2, 3), op(2, 4), op(4, 3), op(2)}, {op(3),
		op(4), op(4, 3)},
		{op(2, 2, 2), op(3, 2, 2), op(2, 2, 2)}} {
		if err := p.Matmul(o[0], o[1], o[2], o[3], Int(1), Int(1), ""); err == nil {
			t.Errorf("%v @ %v + %v to %v isn't refused", o[1].Sizes, o[2].Sizes, o[3].Sizes, o[0].Sizes)
		}
	}
}
