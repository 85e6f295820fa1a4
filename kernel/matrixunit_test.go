package kernel

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/internal/testutil"
	"github.com/chorus-comms/chorus/kernel/gemm"
	"github.com/chorus-comms/chorus/kernel/text"
)

// gfx90a has a matrix unit for bfloat16, and gfx906 with the same numbers has none.
func TestUnitOf(t *testing.T) {
	const half, brain = dtype.Float16, dtype.BFloat16
	for _, c := range []struct {
		target       text.Target
		major, minor int
		architecture string
		dt           dtype.DType
		want         text.MatrixUnit
	}{
		{text.CUDA, 7, 5, "", half, text.NoUnit},
		{text.CUDA, 8, 0, "", half, text.TensorCores},
		{text.CUDA, 8, 0, "", dtype.Float32, text.NoUnit},
		{text.CUDA, 12, 1, "", brain, text.TensorCores},
		{text.HIP, 9, 0, "gfx906", brain, text.NoUnit},
		{text.HIP, 9, 0, "gfx908", brain, text.NoUnit}, // it lacks an instruction for bfloat16
		{text.HIP, 9, 0, "gfx90a", brain, text.MatrixCores},
		{text.HIP, 9, 0, "gfx90a", half, text.NoUnit}, // it takes subnormal numbers for zero
		{text.HIP, 9, 0, "", brain, text.NoUnit},
		{text.HIP, 9, 4, "gfx942", half, text.MatrixCores},
		{text.HIP, 9, 4, "", half, text.MatrixCores},
		{text.HIP, 11, 0, "gfx1100", half, text.NoUnit},
		{text.OpenCL, 3, 0, "", half, text.NoUnit},
	} {
		p := device.Properties{Major: c.major, Minor: c.minor, Architecture: c.architecture}
		if got := text.UnitOf(c.target, &p, c.dt); got != c.want {
			t.Errorf("%v: %v, want %v", c, got, c.want)
		}
	}
}

// unitSpecs are the kernels that a matrix unit multiplies in.
func unitSpecs(unit text.MatrixUnit) (all []text.Spec) {
	for k, dt := range []dtype.DType{dtype.Float16, dtype.BFloat16} {
		same := [text.MaxOperands]dtype.DType{dt, dt, dt, dt}
		s := text.Spec{Family: MatmulFamily, Compute: dtype.Float32, Block: threads, Outs: 1, Ins: 3, Types: same, Unit: unit,
			Dims: uint8(k), Wide: k == 1, Op: [...]string{"", "gelu"}[k], Form: uint8(k)}
		for _, side := range gemm.Sides {
			tiles, _ := gemm.Tiled(s, device.Dim{}, side)
			all = append(all, tiles)
		}
		s = text.Spec{Family: ConvolutionFamily, Compute: dtype.Float32, Block: threads, Outs: 1, Ins: 3, Dims: uint8(1 + k),
			Types: same, Unit: unit, Extra: [4]int32{int32(21 * (k + 1))}}
		all = append(all, s)
	}
	for _, s := range attentionSpecs() {
		if text.MultipliedByUnits(s.Types[s.Outs]) {
			s.Unit = unit
			all = append(all, s)
		}
	}
	return all
}

// Kernels for a matrix unit have its instruction in the code that the vendors' compilers make, and spill no registers.
func TestMatrixUnitCompile(t *testing.T) {
	for _, c := range []struct {
		target text.Target
		unit   text.MatrixUnit
		arch   string
		count  func(image []byte, dt dtype.DType) (int, error)
	}{
		{text.CUDA, text.TensorCores, "sm_80", nil},
		{text.CUDA, text.TensorCores, "compute_80", func(image []byte, dt dtype.DType) (int, error) {
			name := dt.Short()
			return bytes.Count(image, []byte("mma.sync.aligned.m16n8k16.row.col.f32."+name+"."+name+".f32")), nil
		}},
		{text.HIP, text.MatrixCores, "gfx90a", countMFMA},
	} {
		t.Run(c.arch, func(t *testing.T) {
			if c.arch != "compute_80" {
				testutil.SkipIfShort(t)
			}
			compiler := openCompiler(t, c.target)
			all := usage{}
			for k, s := range unitSpecs(c.unit) {
				if !sampled(k, 40, 3) {
					continue
				}
				src, err := s.Source()
				must(t, err)
				image, err := compiler.compile(src, c.arch)
				if err != nil {
					t.Errorf("%v: %v", s, err)
					continue
				}
				if !strings.HasPrefix(c.arch, "compute_") {
					if err := all.add(s, c.arch, image); err != nil {
						t.Error(err)
					}
				}
				if c.count == nil {
					continue
				}
				if n, err := c.count(image, s.Types[s.Outs]); err != nil || n == 0 {
					t.Errorf("%v has %d instructions of the matrix unit, %v", s, n, err)
				}
			}
			all.log(t, []string{c.arch})
		})
	}
}

// countMFMA counts the matrix cores' instruction for a type in a code object of gfx90a: of their 8 bytes the first two
// have the operation.
func countMFMA(image []byte, dt dtype.DType) (n int, err error) {
	operation := map[dtype.DType]uint32{dtype.Float16: 0xd3cd, dtype.BFloat16: 0xd3e7}[dt]
	f, err := openImage(image)
	if err != nil {
		return 0, err
	}
	section := f.Section(".text")
	if section == nil {
		return 0, errors.New("no code in it")
	}
	code, err := section.Data()
	for ; len(code) >= 4; code = code[4:] {
		if binary.LittleEndian.Uint32(code)>>16 == operation {
			n++
		}
	}
	return n, err
}

// On a device with a matrix unit, products of float16 and bfloat16 are its, and have the numbers of others: whichever
// dimension neighbours are in, aligned or not, with sizes that aren't multiples of tiles.
func TestMatrixUnitTorch(t *testing.T) {
	c, dir := openCL(t), t.TempDir()
	var lines, names []string
	var results []*array
	for _, dt := range []dtype.DType{dtype.Float16, dtype.BFloat16} {
		for k, x := range []struct{ m, n, depth int }{{70, 65, 48}, {64, 136, 40}, {5, 3, 33}, {150, 130, 8}} {
			for layout := range 4 { // rows or columns of a, and of b
				if layout != k && (k != 1 || dt != dtype.BFloat16) {
					continue
				}
				files, ins := make([]string, 2), make([]Operand, 2)
				expression := ""
				for i, sizes := range [][]int{{x.m, x.depth}, {x.depth, x.n}} {
					a := c.dense(t, dt, x.m*x.depth*(1-i)+x.depth*x.n*i)
					z := make([]complex128, a.Sizes[0])
					for j := range z {
						z[j] = complex(float64((j*(7919+2*i)+i)%255-127)/64, 0)
					}
					a.set(z)
					files[i], ins[i] = a.file(t, dir, 1000*int(dt)+100*k+10*layout+i), a.Operand
					ins[i].Sizes, ins[i].Strides = sizes, Dense(sizes...)
					view := fmt.Sprintf("%s.view(%d, %d)", "ab"[i:i+1], sizes[0], sizes[1])
					if layout>>i&1 == 1 {
						ins[i].Strides = []int{1, sizes[0]}
						view = fmt.Sprintf("%s.view(%d, %d).T", "ab"[i:i+1], sizes[1], sizes[0])
					}
					if i == 1 {
						expression += " @ "
					}
					expression += view + ".double()"
				}
				out := c.dense(t, dt, x.m, x.n)
				var p Plan
				must(t, p.Matmul(out.Operand, ins[0], ins[1], Operand{}, Int(1), Int(1), ""))
				if s, _, _ := c.loader.Fit(&p.Calls[0], 0); emulated() != (s.Unit != text.NoUnit) {
					t.Errorf("%v has the matrix unit %v", s, s.Unit)
				}
				must(t, c.run(&p))
				lines = append(lines, fmt.Sprintf("%v|%s|(%s).to(dtype)", dt, strings.Join(files, " "), expression))
				results, names = append(results, out), append(names, fmt.Sprintf("%v of %v, layout %d", x, dt, layout))
			}
		}
	}
	for k, want := range torch(t, lines) {
		if len(want) != 1 {
			t.Errorf("PyTorch refuses %s", lines[k])
			continue
		}
		results[k].equal(t, names[k], want[0], 2*tolerance(results[k].Type))
	}
}
