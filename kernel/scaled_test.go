package kernel

import (
	"fmt"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/internal/testutil"
	"github.com/chorus-comms/chorus/kernel/gemm"
	"github.com/chorus-comms/chorus/kernel/text"
)

// float8Formats are the types of 8 bits, with their bit of [Scales].FNUZ.
var float8Formats = []struct {
	name string
	t    dtype.DType
	fnuz int
}{{"float8_e4m3fn", dtype.Float8E4M3FN, 0}, {"float8_e5m2", dtype.Float8E5M2, 0},
	{"float8_e4m3fnuz", dtype.Float8E4M3FN, 1}, {"float8_e5m2fnuz", dtype.Float8E5M2, 1}}

// as is an operand's memory as elements of another type.
func as(o Operand, t dtype.DType) Operand {
	o.Type = t
	return o
}

// Every number of the types of 8 bits is the same float32 as PyTorch's. Numbers of float32 become PyTorch's: those
// between two of 8 bits and close to them, all of float16, subnormal ones, those beyond the largest, infinities and NaN.
func TestFloat8Torch(t *testing.T) {
	x, dir := &comparisons{c: openCL(t)}, t.TempDir()
	all, unit := x.c.dense(t, dtype.Uint8, 256), x.c.dense(t, dtype.Float32, 1)
	for k := range all.data {
		all.data[k] = byte(k)
	}
	unit.set([]complex128{1})
	file := all.file(t, dir, 0)
	var numbers []complex128
	for _, f := range []func(byte) float64{func(b byte) float64 { return dtype.F8E4M3FN(b).Float64() },
		func(b byte) float64 { return dtype.F8E5M2(b).Float64() }} {
		for k := range 255 {
			a, b := f(byte(k)), f(byte(k+1))
			for _, y := range []float64{a, (a + b) / 2, float64(math.Nextafter32(float32(a+b)/2, 0)),
				float64(math.Nextafter32(float32(a+b)/2, 1e9)), a / 2, a / 4, a / 3} {
				if !math.IsNaN(y) {
					numbers = append(numbers, complex(y, 0))
				}
			}
		}
	}
	for _, y := range []float64{math.NaN(), 1e9, -1e9, 3e38, 1e-40, -1e-40, 65535, 65536, 61440, 449, 256, 247.9, 248} {
		numbers = append(numbers, complex(y, 0))
	}
	for _, y := range []float32{464, 480, 57344, 61440, 65536, 240, 248, 256} { // where types end
		for _, z := range []float32{math.Nextafter32(y, 0), y, math.Nextafter32(y, 1e9)} {
			numbers = append(numbers, complex(float64(z), 0), complex(float64(-z), 0))
		}
	}
	step := 1
	if os.Getenv(formVariable) != "" { // Oclgrind would take minutes
		step = 251
	}
	for k := 0; k < 1<<16; k += step { // all of float16
		if y := dtype.F16(k).Float64(); !math.IsNaN(y) { // a sum's NaN has no certain sign
			numbers = append(numbers, complex(y, 0))
		}
	}
	n := len(numbers)
	row := x.c.dense(t, dtype.Float32, n)
	row.set(numbers)
	zeros := x.c.dense(t, dtype.Uint8, n)
	zeros.set(make([]complex128, n))
	rows := row.file(t, dir, 1)
	for k, f := range float8Formats {
		g := float8Formats[k^1] // a kernel has both
		one := x.c.dense(t, dtype.Uint8, 1)
		one.data[0] = []byte{0x38, 0x3c, 0x40, 0x40}[k^1]
		x.add(t, "numbers of "+f.name, fmt.Sprintf("uint8|%s|a.view(torch.%s).float()", file, f.name),
			[]Operand{of(dtype.Float32, 256)}, func(p *Plan, outs []Operand) error {
				a, b := as(all.strided([]int{256, 1}, []int{1, 1}), f.t), as(one.strided([]int{1, 1}, []int{1, 1}), g.t)
				outs[0].Sizes, outs[0].Strides = []int{256, 1}, []int{1, 1}
				if k%2 == 1 {
					a.Sizes = []int{1, 256}
					outs[0].Sizes = a.Sizes
					a, b = b, a
				}
				return p.ScaledMatmul(outs[0], a, b, Operand{}, &Scales{A: unit.Operand, B: unit.Operand, FNUZ: 6 * f.fnuz})
			})
		x.add(t, "to "+f.name, fmt.Sprintf("float32|%s|(0 + a).to(torch.%s).view(torch.uint8)", rows, f.name),
			[]Operand{of(dtype.Uint8, 1, n)}, func(p *Plan, outs []Operand) error {
				return p.ScaledMatmul(as(outs[0], f.t), as(zeros.strided([]int{1, 1}, []int{1, 1}), f.t),
					as(zeros.strided([]int{1, n}, []int{n, 1}), f.t), row.Operand, &Scales{A: unit.Operand, B: unit.Operand,
						FNUZ: 7 * f.fnuz})
			})
	}
	addFloat8Ops(t, x, all, file)
	x.compare(t, 1)
}

// addFloat8Ops adds the elementwise operations, which make the same numbers of bytes, and of those the same bytes.
func addFloat8Ops(t *testing.T, x *comparisons, all *array, file string) {
	for i, f := range float8Formats {
		name := "f8" + strings.TrimPrefix(f.name, "float8_")
		for k, dt := range []dtype.DType{dtype.Float32, dtype.Float16} {
			if testutil.Short() && i%2 != k {
				continue
			}
			wide := fmt.Sprintf("a.view(torch.%s).to(torch.%v)", f.name, dt)
			x.add(t, "from_"+name, fmt.Sprintf("uint8|%s|%s", file, wide), []Operand{of(dt, 256)},
				func(p *Plan, outs []Operand) error {
					return p.Elementwise("from_"+name, dtype.Float32, outs, []Operand{all.Operand})
				})
			x.add(t, "from and to_"+name, fmt.Sprintf("uint8|%s|%s.to(torch.%s).view(torch.uint8)", file, wide, f.name),
				[]Operand{of(dtype.Uint8, 256)}, func(p *Plan, outs []Operand) error {
					between := x.c.dense(t, dt, 256)
					if err := p.Elementwise("from_"+name, dtype.Float32, []Operand{between.Operand},
						[]Operand{all.Operand}); err != nil {
						return err
					}
					return p.Elementwise("to_"+name, dtype.Float32, outs, []Operand{between.Operand})
				})
		}
	}
}

// Products of each pair of types, with scales of matrices and of rows and columns, biases, and results of each type,
// against PyTorch. Sizes aren't multiples of the tiles, and sums of these numbers are exact.
func TestScaledMatmulTorch(t *testing.T) {
	x, dir := &comparisons{c: openCL(t)}, t.TempDir()
	const n = 9000
	var ins, fnuz [2]*array
	for k := range ins {
		z := make([]complex128, n)
		for i := range z {
			z[i] = complex(float64((i*(7919+2*k)+k)%17-8)/4, 0)
		}
		for at, list := range []*[2]*array{&ins, &fnuz} { // e5m2 rounds them, and that's exact as well
			list[k] = x.c.dense(t, dtype.Float8E4M3FN, n)
			list[k].set(z)
			if at == 1 { // any bits, but the numbers stay small
				for i := range list[k].data {
					list[k].data[i] = byte(0x20+i*(5+2*k)%0x20) | byte(i%3/2<<7)
				}
			}
		}
	}
	scales, bias := x.c.dense(t, dtype.Float32, 300), x.c.dense(t, dtype.Float32, 300)
	z, y := make([]complex128, 300), make([]complex128, 300)
	for i := range z {
		z[i], y[i] = complex(math.Ldexp(1, i%7-3), 0), complex(float64(i%9)-4, 0)
	}
	scales.set(z)
	bias.set(y)
	biases := map[dtype.DType]*array{dtype.Float32: bias}
	for _, dt := range []dtype.DType{dtype.BFloat16, dtype.Float16} {
		biases[dt] = x.c.dense(t, dt, 300)
		biases[dt].set(y)
	}
	bytesOf := func(a *array, name int) string {
		b := *a
		b.Type = dtype.Uint8
		return b.file(t, dir, name)
	}
	files := [2][2]string{{bytesOf(ins[0], 0), bytesOf(ins[1], 1)}, {bytesOf(fnuz[0], 2), bytesOf(fnuz[1], 3)}}
	scaleFile, biasFile := scales.file(t, dir, 4), bias.file(t, dir, 5)
	outs := []dtype.DType{dtype.Float32, dtype.BFloat16, dtype.Float16, dtype.Float8E4M3FN, dtype.Float8E5M2}
	k := 0
	for i, fa := range float8Formats {
		for j, fb := range float8Formats {
			for _, s := range [][3]int{{1, 1, 1}, {70, 33, 65}, {5, 17, 130}, {64, 64, 64}, {3, 0, 4}, {0, 3, 4}, {3, 5, 0}} {
				k++
				out := outs[k%len(outs)]
				if !sampled(k, 38, 3) {
					continue
				}
				m, depth, columns := s[0], s[1], s[2]
				from := fa.fnuz | fb.fnuz
				list := [...]*[2]*array{&ins, &fnuz}[from]
				a := as(list[0].strided([]int{m, depth}, []int{depth, 1}), fa.t)
				b := as(list[1].strided([]int{depth, columns}, []int{1, max(depth, 1)}), fb.t)
				line := fmt.Sprintf("uint8|%s %s %s %s|torch._C._set_mkldnn_enabled(False); "+
					"x = a[:%d].view(torch.%s).view(%d, %d); "+
					"y = b[:%d].view(torch.%s).view(%d, %d).t(); ", files[from][0], files[from][1], scaleFile, biasFile, m*depth,
					fa.name, m, depth, depth*columns, fb.name, columns, depth)
				call := Scales{A: scales.strided([]int{1}, []int{1}), B: scales.strided([]int{1}, []int{1}),
					FNUZ: 2*fa.fnuz | 4*fb.fnuz}
				call.B.Ptr = call.B.Ptr.Add(4 * 4)
				line += "p, q = c[0], c[4]; "
				if k%2 == 0 && m > 0 && columns > 0 { // for each row and column, the columns' with gaps
					call.A.Sizes, call.B = []int{m}, scales.strided([]int{columns}, []int{2})
					line += fmt.Sprintf("p, q = c[:%d].view(-1, 1), c[:%d:2].contiguous().view(1, -1); ", m, 2*columns)
				}
				divisor := "None"
				if text.IsFloat8(out) && k%3 > 0 {
					divisor = "c[6]"
					call.Result = scales.strided([]int{1}, []int{1})
					call.Result.Ptr = call.Result.Ptr.Add(4 * 6)
				}
				var plus Operand
				with := "None"
				if k%4 != 0 {
					dt := []dtype.DType{dtype.Float32, dtype.BFloat16, dtype.Float16}[k%3]
					plus = biases[dt].strided([]int{columns}, []int{1})
					with = fmt.Sprintf("d[:%d].to(torch.%v)", columns, dt)
				}
				line += fmt.Sprintf("r = torch._scaled_mm(x, y, p, q, bias=%s, out_dtype=torch.%v, scale_result=%s); "+
					"torch._C._set_mkldnn_enabled(True); ", with, out, divisor)
				result := out
				if text.IsFloat8(out) {
					result, line = dtype.Uint8, line+"r.view(torch.uint8)"
				} else {
					line += "r"
				}
				x.add(t, fmt.Sprintf("%s @ %s to %v, %v (%d, %d, %d)", fa.name, fb.name, out, s, i, j, k), line,
					[]Operand{of(result, m, columns)}, func(p *Plan, outs []Operand) error {
						return p.ScaledMatmul(as(outs[0], out), a, b, plus, &call)
					})
			}
		}
	}
	x.compare(t, 0)
}

// Products of int8, and of uint8 with int8, to int32 are exact.
func TestIntMatmulTorch(t *testing.T) {
	x, dir := &comparisons{c: openCL(t)}, t.TempDir()
	const n = 9000
	a, b, u := x.c.dense(t, dtype.Int8, n), x.c.dense(t, dtype.Int8, n), x.c.dense(t, dtype.Uint8, n)
	for i := range n {
		a.data[i], b.data[i], u.data[i] = byte(i*7), byte(i*11+128), byte(255-i%3)
	}
	files := a.file(t, dir, 0) + " " + b.file(t, dir, 1) + " " + u.file(t, dir, 2)
	for k, s := range [][3]int{{1, 1, 1}, {17, 8, 16}, {70, 33, 65}, {5, 130, 17}, {64, 64, 64}, {3, 0, 4},
		{0, 3, 4}, {3, 5, 0}} {
		m, depth, columns := s[0], s[1], s[2]
		left, name := a, "a"
		if k%3 == 1 {
			left, name = u, "c"
		}
		for _, transposed := range []bool{false, true} {
			first := left.strided([]int{m, depth}, []int{depth, 1})
			second := b.strided([]int{depth, columns}, []int{columns, 1})
			line := fmt.Sprintf("torch._int_mm(%s[:%d].view(%d, %d), b[:%d].view(%d, %d))", name, m*depth, m, depth,
				depth*columns, depth, columns)
			if transposed {
				first, second = left.strided([]int{m, depth}, []int{1, max(m, 1)}), b.strided([]int{depth, columns},
					[]int{1, max(depth, 1)})
				line = fmt.Sprintf("torch._int_mm(%s[:%d].view(%d, %d).t(), b[:%d].view(%d, %d).t())", name, m*depth, depth, m,
					depth*columns, columns, depth)
			}
			x.add(t, fmt.Sprintf("%v @ int8, %v, transposed %v", left.Type, s, transposed), "int8|"+files+"|"+line,
				[]Operand{of(dtype.Int32, m, columns)}, func(p *Plan, outs []Operand) error {
					return p.Matmul(outs[0], first, second, Operand{}, Int(1), Int(0), "")
				})
		}
	}
	x.compare(t, 0)
}

// Types, sizes and formats that no product has are refused.
func TestScaledMatmulRefused(t *testing.T) {
	var p Plan
	op := func(dt dtype.DType, sizes ...int) Operand {
		return Operand{Type: dt, Sizes: sizes, Strides: Dense(sizes...)}
	}
	f8, f32 := dtype.Float8E4M3FN, dtype.Float32
	out, a, b, one := op(f32, 2, 3), op(f8, 2, 4), op(f8, 4, 3), op(f32, 1)
	whole := Scales{A: one, B: one}
	for name, f := range map[string]func() error{
		"float8 without scales": func() error { return p.Matmul(op(f8, 2, 3), a, b, Operand{}, Int(1), Int(0), "") },
		"int8 to int64": func() error {
			return p.Matmul(op(dtype.Int64, 2, 3), op(dtype.Int8, 2, 4), op(dtype.Int8, 4, 3), Operand{}, Int(1), Int(0), "")
		},
		"int32 by int8": func() error {
			wide := op(dtype.Int64, 4, 3)
			return p.Matmul(op(dtype.Int32, 2, 3), op(dtype.Int32, 2, 4), wide, Operand{}, Int(1), Int(0), "")
		},
		"float32":    func() error { return p.ScaledMatmul(out, op(f32, 2, 4), b, Operand{}, &whole) },
		"to float64": func() error { return p.ScaledMatmul(op(dtype.Float64, 2, 3), a, b, Operand{}, &whole) },
		"a size":     func() error { return p.ScaledMatmul(out, a, op(f8, 5, 3), Operand{}, &whole) },
		"a batch": func() error {
			return p.ScaledMatmul(op(f32, 1, 2, 3), op(f8, 1, 2, 4), op(f8, 1, 4, 3), Operand{}, &whole)
		},
		"two scales": func() error { return p.ScaledMatmul(out, a, b, Operand{}, &Scales{A: one, B: op(f32, 2)}) },
		"no scale":   func() error { return p.ScaledMatmul(out, a, b, Operand{}, &Scales{A: one}) },
		"half scales": func() error {
			return p.ScaledMatmul(out, a, b, Operand{}, &Scales{A: one, B: op(dtype.Float16, 1)})
		},
		"a bias": func() error { return p.ScaledMatmul(out, a, b, op(f32, 2), &whole) },
		"a matrix as a bias": func() error {
			return p.ScaledMatmul(out, a, b, op(f32, 2, 3), &whole)
		},
		"a format":     func() error { return p.ScaledMatmul(out, a, b, Operand{}, &Scales{A: one, B: one, FNUZ: 1}) },
		"elementwise":  func() error { return p.Elementwise("neg", f32, []Operand{op(f8, 2)}, []Operand{op(f8, 2)}) },
		"result scale": func() error { return p.ScaledMatmul(out, a, b, Operand{}, &Scales{one, one, op(f32, 3), 0}) },
	} {
		if err := f(); err == nil {
			t.Errorf("%s isn't refused", name)
		}
	}
	if len(p.Calls) != 0 {
		t.Errorf("%d calls of refused products", len(p.Calls))
	}
}

// scaledSpecs are kernels of products of 8 bits with all options, for the compilers' test.
func scaledSpecs() []text.Spec {
	var all []text.Spec
	for k, out := range []dtype.DType{dtype.Float8E4M3FN, dtype.Float8E5M2, dtype.Float16, dtype.BFloat16,
		dtype.Float32} {
		for i, fa := range float8Formats {
			fb := float8Formats[(i+k)%4]
			s := text.Spec{Family: MatmulFamily, Compute: dtype.Float32, Block: threads, Outs: 1, Ins: 5 + uint8(k%2),
				Form: gemm.Scaled | uint8(k%2)*gemm.ScaledResult | uint8(i%2)*gemm.Plus, Wide: i == 3,
				Extra: [4]int32{int32(2*fa.fnuz | 4*fb.fnuz)}}
			if text.IsFloat8(out) && i > 1 {
				s.Extra[0] |= 1
			}
			s.Types = [text.MaxOperands]dtype.DType{out, fa.t, fb.t, dtype.BFloat16, dtype.Float32, dtype.Float32, dtype.Float32}
			if s.Ins == 5 {
				s.Types[6] = 0
			}
			all = append(all, s)
		}
	}
	for _, dt := range []dtype.DType{dtype.Int8, dtype.Uint8} {
		all = append(all, text.Spec{Family: MatmulFamily, Compute: dtype.Int32, Block: threads, Outs: 1, Ins: 3,
			Types: [text.MaxOperands]dtype.DType{dtype.Int32, dt, dtype.Int8, dtype.Int32}})
	}
	return all
}
