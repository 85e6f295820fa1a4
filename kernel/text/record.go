package text

import (
	"encoding/binary"

	"github.com/chorus-comms/chorus/device"
)

// Record is a struct of numbers of type I, with arrays of one number for each dimension of images. A family has a
// function that names its numbers one after the other: it writes the C type, or the argument of a call.
type Record struct {
	w    *Writer // of the type; nil: of an argument
	Dims int
	Wide bool
	buf  [1024]byte
	n    int
}

// One is a number.
func (r *Record) One(name string, v int) {
	if r.w != nil {
		r.w.Line("\tI %s;", name)
		return
	}
	if r.Wide {
		binary.NativeEndian.PutUint64(r.buf[r.n:], uint64(v))
		r.n += 8
	} else {
		binary.NativeEndian.PutUint32(r.buf[r.n:], uint32(v))
		r.n += 4
	}
}

// Each is a number for each dimension.
func (r *Record) Each(name string, v *[MaxSpatial]int) {
	if r.w != nil {
		if r.Dims > 0 {
			r.w.Line("\tI %s[%d];", name, r.Dims)
		}
		return
	}
	for _, x := range v[:r.Dims] {
		r.One(name, x)
	}
}

// Add adds the struct to a call's arguments.
func (r *Record) Add(a *device.Args) {
	size := 4
	if r.Wide {
		size = 8
	}
	a.Bytes(r.buf[:r.n], size)
}

// RecordType writes the C type of a record whose numbers visit names.
func (w *Writer) RecordType(name string, dims int, visit func(r *Record)) {
	w.Line("typedef struct {")
	visit(&Record{w: w, Dims: dims})
	w.Line("} %s;", name)
}

// MaxSpatial is how many dimensions an image has at most.
const MaxSpatial = 3

// Split writes taking the last of several digits from the number rest: rest = rest / size, digit = rest % size.
func (w *Writer) Split(indent, digit, size string) {
	w.Line("%sup = sizeof(I) == 8 ? rest / %s : (I)((u32)rest / (u32)%s);", indent, size, size)
	w.Line("%s%s = rest - up * %s;", indent, digit, size)
	w.Line("%srest = up;", indent)
}
