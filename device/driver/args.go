package driver

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
)

// ParamKind is the type of a parameter of a compiled kernel.
type ParamKind uint8

const (
	ParamPointer ParamKind = iota // a Ptr
	ParamInt32
	ParamInt64
	ParamUint32
	ParamUint64
	ParamFloat32
	ParamFloat64
	ParamBytes // a struct, by value
)

var paramNames = [...]string{"pointer", "int32", "int64", "uint32", "uint64", "float32", "float64", "struct"}

func (k ParamKind) String() string {
	if int(k) < len(paramNames) {
		return paramNames[k]
	}
	return fmt.Sprintf("ParamKind(%d)", k)
}

// Param says where an argument lies among those of its kernel.
type Param struct {
	Kind          ParamKind
	Offset, Bytes int
}

// Args are the arguments of a compiled kernel, as a C compiler lays a struct out of them: each at a multiple of its
// size, or, for a struct, of the alignment given. The zero value has none; the methods add one after the other, and
// return the Args for the next.
//
//	new(device.Args).Pointer(x).Int32(n).Float32(0.5)
type Args struct {
	buf    []byte
	params []Param
}

// Pointer adds an address; null is allowed.
func (a *Args) Pointer(p Ptr) *Args { return a.word(ParamPointer, 8, uint64(p)) }

// Int32 adds an int32_t.
func (a *Args) Int32(v int32) *Args { return a.word(ParamInt32, 4, uint64(uint32(v))) }

// Int64 adds an int64_t.
func (a *Args) Int64(v int64) *Args { return a.word(ParamInt64, 8, uint64(v)) }

// Uint32 adds a uint32_t.
func (a *Args) Uint32(v uint32) *Args { return a.word(ParamUint32, 4, uint64(v)) }

// Uint64 adds a uint64_t.
func (a *Args) Uint64(v uint64) *Args { return a.word(ParamUint64, 8, v) }

// Float32 adds a float.
func (a *Args) Float32(v float32) *Args { return a.word(ParamFloat32, 4, uint64(math.Float32bits(v))) }

// Float64 adds a double.
func (a *Args) Float64(v float64) *Args { return a.word(ParamFloat64, 8, math.Float64bits(v)) }

// Bytes adds a struct by value, copied from b, at a multiple of align, which must be a power of two.
func (a *Args) Bytes(b []byte, align int) *Args {
	if align <= 0 || align&(align-1) != 0 {
		panic(fmt.Sprintf("device: a struct aligned to %d bytes", align))
	}
	at := a.reserve(ParamBytes, len(b), align)
	copy(a.buf[at:], b)
	return a
}

// Reset takes all arguments out, and keeps their memory for the next ones.
func (a *Args) Reset() *Args {
	a.buf, a.params = a.buf[:0], a.params[:0]
	return a
}

func (a *Args) word(kind ParamKind, size int, v uint64) *Args {
	at := a.reserve(kind, size, size)
	var b [8]byte
	binary.NativeEndian.PutUint64(b[:], v)
	if size == 4 {
		binary.NativeEndian.PutUint32(b[:], uint32(v))
	}
	copy(a.buf[at:at+size], b[:])
	return a
}

func (a *Args) reserve(kind ParamKind, size, align int) (at int) {
	for len(a.buf)%align != 0 {
		a.buf = append(a.buf, 0)
	}
	at = len(a.buf)
	for range size {
		a.buf = append(a.buf, 0)
	}
	a.params = append(a.params, Param{kind, at, size})
	return at
}

// Packed returns the bytes of all arguments and where each lies, for drivers. Both are the Args', and change with them.
func (a *Args) Packed() ([]byte, []Param) {
	if a == nil {
		return nil, nil
	}
	return a.buf, a.params
}

// With is a copy of the arguments, with the address to in each place where from is.
func (a *Args) With(from, to Ptr) Args {
	b := Args{slices.Clone(a.buf), slices.Clone(a.params)}
	for _, p := range b.params {
		if at := b.buf[p.Offset:]; p.Kind == ParamPointer && Ptr(binary.NativeEndian.Uint64(at)) == from {
			binary.NativeEndian.PutUint64(at, uint64(to))
		}
	}
	return b
}

// Behind is a copy of the arguments with others before them. None of them is aligned to more than 8 bytes.
func (a *Args) Behind(first *Args) *Args {
	b := &Args{slices.Clone(first.buf), slices.Clone(first.params)}
	for len(b.buf)%8 != 0 {
		b.buf = append(b.buf, 0)
	}
	for _, p := range a.params {
		p.Offset += len(b.buf)
		b.params = append(b.params, p)
	}
	b.buf = append(b.buf, a.buf...)
	return b
}

// Pointers calls f for each pointer argument that isn't null.
func (a *Args) Pointers(f func(p Ptr)) {
	if a == nil {
		return
	}
	for _, p := range a.params {
		if p.Kind != ParamPointer {
			continue
		}
		if v := Ptr(binary.NativeEndian.Uint64(a.buf[p.Offset:])); v != 0 {
			f(v)
		}
	}
}
