package tensor

import (
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/internal/sys"
)

// The format: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html

const (
	npyMagic = "\x93NUMPY"

	// npyMaxHeader bounds the header. NumPy refuses more than 10000 bytes itself unless told otherwise.
	npyMaxHeader = 64 << 10
)

// npyCodes are NumPy's kind and size of each type. NumPy itself has no bfloat16 and no 8-bit floats.
var npyCodes = map[dtype.DType]string{
	dtype.Bool: "b1", dtype.Uint8: "u1", dtype.Uint16: "u2", dtype.Uint32: "u4", dtype.Uint64: "u8",
	dtype.Int8: "i1", dtype.Int16: "i2", dtype.Int32: "i4", dtype.Int64: "i8",
	dtype.Float16: "f2", dtype.Float32: "f4", dtype.Float64: "f8", dtype.Complex64: "c8", dtype.Complex128: "c16",
}

// ReadNPY reads one array of a .npy file of format version 1, 2 or 3 into a contiguous tensor in Go memory. Arrays in
// Fortran order are rearranged, big-endian ones swapped; structured types, objects, strings and dates are refused. It
// reads no further than the array's end.
func ReadNPY(r io.Reader) (*Tensor, error) {
	t, err := readNPY(r)
	if err != nil {
		return nil, fmt.Errorf("tensor: .npy: %w", err)
	}
	return t, nil
}

func readNPY(r io.Reader) (*Tensor, error) {
	head, err := readNPYHeader(r)
	if err != nil {
		return nil, err
	}
	shape := head.shape
	if head.fortran {
		shape = slices.Clone(shape)
		slices.Reverse(shape)
	}
	t, err := readElements(r, head.dt, shape)
	if err != nil {
		return nil, err
	}
	if head.swap {
		swapBytes(t)
	}
	if !head.fortran {
		return t, nil
	}
	dims := make([]int, t.Dim())
	for i := range dims {
		dims[i] = t.Dim() - 1 - i
	}
	if t, err = t.Permute(dims...); err != nil {
		return nil, err
	}
	return t.Contiguous()
}

// swapBytes reverses the bytes of every number; a complex element is two.
func swapBytes(t *Tensor) {
	size := t.dt.Size()
	if t.dt.IsComplex() {
		size /= 2
	}
	for b := t.raw(); len(b) > 0; b = b[size:] {
		slices.Reverse(b[:size])
	}
}

// LoadNPY reads a .npy file.
func LoadNPY(path string) (*Tensor, error) {
	f, _, err := sys.OpenRegular(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	defer f.Close()
	t, err := ReadNPY(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return t, nil
}

// WriteNPY writes a tensor as a .npy array in row-major order, of the oldest format version that fits (1, in practice).
// NumPy has no type for bfloat16 and the 8-bit floats: these are refused; convert them or use safetensors.
func WriteNPY(w io.Writer, t *Tensor) error {
	code, ok := npyCodes[t.dt]
	if !ok {
		return fmt.Errorf("tensor: .npy has no element type for %v; convert it, or use safetensors", t.dt)
	}
	order := "<"
	if t.dt.Size() == 1 {
		order = "|"
	}
	var dims strings.Builder
	for _, d := range t.shape {
		fmt.Fprintf(&dims, "%d, ", d)
	}
	shape := strings.TrimSuffix(dims.String(), " ") // one dimension keeps its comma, as a Python tuple needs
	if len(t.shape) > 1 {
		shape = strings.TrimSuffix(shape, ",")
	}
	dict := fmt.Sprintf("{'descr': '%s%s', 'fortran_order': False, 'shape': (%s), }", order, code, shape)

	// Spaces and a line feed pad the header so that the elements begin at a multiple of 64.
	lenSize, version := 2, byte(1)
	padded := func() int { n := len(npyMagic) + 2 + lenSize; return (n+len(dict)+1+63)/64*64 - n }
	if padded() > 1<<16-1 {
		lenSize, version = 4, 2
	}
	n := padded()
	if n > npyMaxHeader {
		return fmt.Errorf("tensor: .npy: %d dimensions make a header of %d bytes, more than %d", len(t.shape), n,
			npyMaxHeader)
	}
	head := append([]byte(npyMagic), version, 0)
	head = binary.LittleEndian.AppendUint32(head, uint32(n))[:len(npyMagic)+2+lenSize]
	head = append(head, dict...)
	head = append(head, strings.Repeat(" ", n-len(dict)-1)+"\n"...)
	if _, err := w.Write(head); err != nil {
		return err
	}
	return writeElements(w, t)
}

// SaveNPY writes a .npy file, which replaces path when it is complete.
func SaveNPY(path string, t *Tensor) error {
	return saveFile(path, func(w io.Writer) error { return WriteNPY(w, t) })
}
