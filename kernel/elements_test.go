package kernel

import (
	"testing"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/dtype"
)

// Runs that are brief say of how many elements they are, of which slow ones count several times. A user's function may
// never end, and special functions take long.
func TestElements(t *testing.T) {
	operand := func(sizes ...int) Operand { return viewed(Operand{Ptr: 4096, Type: dtype.Float32}, sizes...) }
	x, row, one := operand(300, 500), operand(300, 1), operand(1, 1)
	for _, cores := range []int{0, 2} {
		for _, c := range []struct {
			name string
			add  func(p *Plan) error
			want int
		}{
			{"add", func(p *Plan) error {
				return p.Elementwise("add", dtype.Float32, []Operand{x}, []Operand{x, x}, Int(1))
			}, 150000},
			{"a user's function", func(p *Plan) error {
				return p.Elementwise(product3, dtype.Float32, []Operand{x}, []Operand{x, x, x})
			}, 0},
			{"zeta", func(p *Plan) error {
				return p.Elementwise("zeta", dtype.Float32, []Operand{x}, []Operand{x, x})
			}, 0},
			{"sum of rows", func(p *Plan) error {
				return p.Reduce("sum", dtype.Float32, []Operand{row}, x, []int{1})
			}, 150000},
			{"sum", func(p *Plan) error { return p.Reduce("sum", dtype.Float32, []Operand{one}, x, nil) }, 150000},
			{"softmax", func(p *Plan) error { return p.Softmax("softmax", x, x, 1) }, 150000},
			{"cumsum", func(p *Plan) error {
				return p.Scan("cumsum", dtype.Float32, []Operand{operand(300, 500)}, x, 1)
			}, slowElement * 150000},
			{"matmul", func(p *Plan) error {
				return p.Matmul(operand(64, 64), operand(64, 64), operand(64, 64), Operand{}, Int(1), Int(1), "")
			}, 0},
		} {
			p := Plan{Cores: cores, Scratch: func(int) (device.Ptr, error) { return 8192, nil }}
			must(t, c.add(&p))
			for _, call := range p.Calls {
				if call.Elements != c.want {
					t.Errorf("%s on %d cores is of %d elements, not %d", c.name, cores, call.Elements, c.want)
				}
			}
		}
	}
}
