package driver

import "github.com/chorus-comms/chorus/dtype"

// FFTKind is from what to what a transform goes.
type FFTKind int

const (
	ComplexToComplex FFTKind = iota
	RealToComplex            // forward; of the last dimension the first half, with the middle
	ComplexToReal            // inverse, from such a half
)

// FFT is a discrete Fourier transform without a factor, or several of them at once. In and out don't overlap; of
// ComplexToComplex they may be the same memory with the same strides. ComplexToReal may change what is in In.
type FFT struct {
	Kind    FFTKind
	Inverse bool        // the exponents' sign is positive; of ComplexToComplex
	Type    dtype.DType // of real and imaginary parts: float32 or float64
	Dims    []FFTDim

	Count           int // of transforms: 1 at least
	In, Out         Ptr
	InNext, OutNext int // elements from one transform to the next
}

// FFTDim is a dimension of a transform, the outermost first.
type FFTDim struct {
	Size    int // of real numbers, if either side has them
	In, Out int // elements from one place to the next
}

// FFTSide is one side of a transform.
type FFTSide struct {
	Name    string
	Ptr     Ptr
	Type    dtype.DType
	Sizes   []int
	Strides []int
	Next    int
}

// Bytes is how much memory it takes, from the first element on.
func (x *FFTSide) Bytes(count int) int {
	last := (count - 1) * x.Next
	for i, n := range x.Sizes {
		last += (n - 1) * x.Strides[i]
	}
	return (last + 1) * x.Type.Size()
}

// Sides are the transform's: in and out.
func (t *FFT) Sides() [2]FFTSide {
	all := [2]FFTSide{{Name: "in", Ptr: t.In, Next: t.InNext}, {Name: "out", Ptr: t.Out, Next: t.OutNext}}
	complexes := map[dtype.DType]dtype.DType{dtype.Float32: dtype.Complex64, dtype.Float64: dtype.Complex128}
	for i := range all {
		x := &all[i]
		realSide := t.Kind == RealToComplex && i == 0 || t.Kind == ComplexToReal && i == 1
		if x.Type = t.Type; !realSide {
			x.Type = complexes[t.Type]
		}
		for k, d := range t.Dims {
			n := d.Size
			if t.Kind != ComplexToComplex && !realSide && k == len(t.Dims)-1 {
				n = n/2 + 1
			}
			x.Sizes = append(x.Sizes, n)
			x.Strides = append(x.Strides, [2]int{d.In, d.Out}[i])
		}
	}
	return all
}

// Apart is how many elements lie from one transform to the next: of one alone, those that it takes.
func (x *FFTSide) Apart(count int) int {
	if count > 1 {
		return x.Next
	}
	return x.Bytes(1) / x.Type.Size()
}

// Check refuses a transform that is none, before a library sees it, or one of more dimensions than the library has.
func (t *FFT) Check(device string, dims int) error {
	bad := func(format string, args ...any) error {
		return Errorf(ErrInvalidArgument, device, "transform", format, args...)
	}
	switch {
	case t.Kind < ComplexToComplex || t.Kind > ComplexToReal || t.Kind == RealToComplex && t.Inverse ||
		t.Kind == ComplexToReal && !t.Inverse:
		return bad("kind %d, inverse: %t", t.Kind, t.Inverse)
	case t.Type != dtype.Float32 && t.Type != dtype.Float64:
		return Errorf(ErrUnsupported, device, "transform", "parts of type %v", t.Type)
	case len(t.Dims) == 0 || t.Count < 1:
		return bad("%d transforms of %d dimensions", t.Count, len(t.Dims))
	case len(t.Dims) > dims:
		return Errorf(ErrUnsupported, device, "transform", "%d dimensions, of %d at most", len(t.Dims), dims)
	}
	sides := t.Sides()
	for _, x := range sides {
		for i, n := range x.Sizes {
			if n < 1 || x.Strides[i] < 1 || x.Next < 0 || x.Next == 0 && t.Count > 1 {
				return bad("%s has sizes %v, strides %v, and transforms %d apart", x.Name, x.Sizes, x.Strides, x.Next)
			}
		}
	}
	if t.In == t.Out {
		same := t.Kind == ComplexToComplex && (t.InNext == t.OutNext || t.Count == 1)
		for _, d := range t.Dims {
			same = same && d.In == d.Out
		}
		if !same {
			return bad("in and out are the same memory, and have other elements")
		}
	}
	return nil
}
