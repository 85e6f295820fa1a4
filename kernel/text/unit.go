package text

import "github.com/chorus-comms/chorus/dtype"

// MatrixUnit is what a GPU has to multiply small matrices of float16 or bfloat16, with sums of float32.
type MatrixUnit uint8

const (
	NoUnit      MatrixUnit = iota
	TensorCores            // NVIDIA's, from compute capability 8.0 on
	MatrixCores            // AMD's of the CDNA generations, from gfx940 on
)

// UnitOf is that of a target's device. gfx90a has the instructions, too, but HIP gives it the numbers of gfx906, which
// has none.
func UnitOf(t Target, major, minor int) MatrixUnit {
	switch {
	case t == CUDA && major >= 8:
		return TensorCores
	case t == HIP && major == 9 && minor >= 4:
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
