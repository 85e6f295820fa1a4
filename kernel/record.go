package kernel

import (
	"encoding/binary"

	"github.com/chorus-comms/chorus/device"
)

// record is a struct of numbers of type I, with arrays of one number for each dimension of images. A family has a
// function that names its numbers one after the other: it writes the C type, or the argument of a call.
type record struct {
	w    *writer // of the type; nil: of an argument
	dims int
	wide bool
	buf  [1024]byte
	n    int
}

// one is a number.
func (r *record) one(name string, v int) {
	if r.w != nil {
		r.w.line("\tI %s;", name)
		return
	}
	if r.wide {
		binary.NativeEndian.PutUint64(r.buf[r.n:], uint64(v))
		r.n += 8
	} else {
		binary.NativeEndian.PutUint32(r.buf[r.n:], uint32(v))
		r.n += 4
	}
}

// each is a number for each dimension.
func (r *record) each(name string, v *[maxSpatial]int) {
	if r.w != nil {
		if r.dims > 0 {
			r.w.line("\tI %s[%d];", name, r.dims)
		}
		return
	}
	for _, x := range v[:r.dims] {
		r.one(name, x)
	}
}

// add adds the struct to a call's arguments.
func (r *record) add(a *device.Args) {
	size := 4
	if r.wide {
		size = 8
	}
	a.Bytes(r.buf[:r.n], size)
}

// recordType writes the C type of a record whose numbers visit names.
func (w *writer) recordType(name string, dims int, visit func(r *record)) {
	w.line("typedef struct {")
	visit(&record{w: w, dims: dims})
	w.line("} %s;", name)
}

// maxSpatial is how many dimensions an image has at most.
const maxSpatial = 3

// split writes taking the last of several digits from the number rest: rest = rest / size, digit = rest % size.
func (w *writer) split(indent, digit, size string) {
	w.line("%sup = sizeof(I) == 8 ? rest / %s : (I)((u32)rest / (u32)%s);", indent, size, size)
	w.line("%s%s = rest - up * %s;", indent, digit, size)
	w.line("%srest = up;", indent)
}
