package text

import (
	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/dtype"
)

// MatrixUnit is what a GPU has to multiply small matrices of float16 or bfloat16, with sums of float32.
type MatrixUnit uint8

const (
	NoUnit      MatrixUnit = iota
	TensorCores            // NVIDIA's, from compute capability 8.0 on
	MatrixCores            // AMD's of the CDNA generations, from gfx90a on
)

// UnitOf is that of a target's device for matrices of a type. HIP gives gfx90a the numbers of gfx906, which has none, so
// that it's known by its name alone. Its unit takes a subnormal number for zero. Gradients of float16 have many, so that
// it multiplies bfloat16 only.
func UnitOf(t Target, p *device.Properties, dt dtype.DType) MatrixUnit {
	switch {
	case !MultipliedByUnits(dt):
	case t == CUDA && p.Major >= 8:
		return TensorCores
	case t == HIP && (p.Architecture == "gfx90a" && dt == dtype.BFloat16 || p.Major == 9 && p.Minor >= 4):
		return MatrixCores
	}
	return NoUnit
}

// MultipliedByUnits reports whether a matrix unit multiplies matrices of a type.
func MultipliedByUnits(t dtype.DType) bool { return t == dtype.Float16 || t == dtype.BFloat16 }

// Unit writes the functions of a spec's matrix unit, and defines UNIT and UNIT_MULTIPLY, for matrices of a type.
func (w *Writer) Unit(s Spec, t dtype.DType) {
	if s.Unit == NoUnit {
		return
	}
	w.Define("UNIT", "")
	w.Dialect(map[MatrixUnit]string{TensorCores: "mma", MatrixCores: "mfma"}[s.Unit])
	w.Define("UNIT_MULTIPLY", "unit_multiply_"+t.Short())
	w.Define("PACKED(x)", Narrowed(t, s.Compute, "x"))
}
