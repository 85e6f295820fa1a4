package chaos

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"unsafe"

	"github.com/chorus-comms/chorus/cmd/internal/bench"
	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/tensor"
)

// dtypes are those that programs use.
var dtypes = []dtype.DType{dtype.Int32, dtype.Int64, dtype.Uint8, dtype.Float16, dtype.BFloat16, dtype.Float32,
	dtype.Float64}

// encoded holds the bits of the numbers 0 to 255 in each of them. All values and results of programs are such
// numbers, which every dtype holds exactly, so that results are compared bit by bit.
var encoded = func() map[dtype.DType]*[256][]byte {
	all := map[dtype.DType]*[256][]byte{}
	for _, dt := range dtypes {
		var table [256][]byte
		for v := range table {
			var b []byte
			switch dt {
			case dtype.Int32:
				b = binary.LittleEndian.AppendUint32(nil, uint32(v))
			case dtype.Int64:
				b = binary.LittleEndian.AppendUint64(nil, uint64(v))
			case dtype.Uint8:
				b = []byte{byte(v)}
			case dtype.Float16:
				b = binary.LittleEndian.AppendUint16(nil, uint16(dtype.F16FromFloat32(float32(v))))
			case dtype.BFloat16:
				b = binary.LittleEndian.AppendUint16(nil, uint16(dtype.BF16FromFloat32(float32(v))))
			case dtype.Float32:
				b = binary.LittleEndian.AppendUint32(nil, math.Float32bits(float32(v)))
			case dtype.Float64:
				b = binary.LittleEndian.AppendUint64(nil, math.Float64bits(float64(v)))
			}
			table[v] = b
		}
		all[dt] = &table
	}
	return all
}()

// untouched is what outputs hold before.
const untouched = 0xA5

// source returns element i of what a rank puts in. Values are chosen so that the results of all reductions over a world
// are small.
func source(s *step, n, rank, i int) int {
	x := (rank*7 + i*3 + i/64 + s.Salt)
	switch s.Reduce.Kind {
	case backend.ProductKind:
		return 1 + (x&3)>>1&x // 2 for one number of four
	case backend.AvgKind:
		return n * (x % 4)
	default:
		return x % 8
	}
}

// reduced returns the reduction of element i of what the ranks from first to end-1 of n put in.
func reduced(s *step, n, first, end, i int) int {
	v := source(s, n, first, i)
	for r := first + 1; r < end; r++ {
		v = bench.Fold(s.Reduce.Kind, v, source(s, n, r, i))
	}
	return bench.Final(s.Reduce.Kind, v, n, 2) // the factor of every rank
}

// A flow is one rank's view of a collective: the sizes of its blocks, in elements, and what comes out.
type flow struct {
	ins, outs []int
	want      func(block, i int) int
}

// varied returns the size of rank r's block where blocks differ.
func (s *step) varied(r int) int { return s.Count * ((r + s.Salt) % 3) / 2 }

// sent returns how many elements rank from sends to rank to in an uneven all-to-all.
func (s *step) sent(from, to int) int { return s.Count * ((from + 2*to + s.Salt) % 4) / 3 }

// flow returns what rank me of n takes and gets.
func (s *step) flow(me, n int) (f flow) {
	row := s.Kind.Operation()
	size := func(from, to int) int {
		switch {
		case !row.Uneven:
			return s.Count
		case row.In >= backend.Whole && row.Out >= backend.Whole:
			return s.sent(from, to)
		}
		return s.varied(from)
	}
	f.ins, f.outs = row.Blocks(me, n, s.Root, size)
	type origin struct{ first, end, at int } // of a block: whose it is, and where it begins in what they put in
	from := make([]origin, len(f.outs))
	for b := range from {
		o, block := &from[b], 0
		o.first, o.end, block = row.Sources(me, n, s.Root, b)
		if ins, _ := row.Blocks(o.first, n, s.Root, size); ins != nil {
			for _, size := range ins[:block] {
				o.at += size
			}
		}
	}
	f.want = func(b, i int) int {
		o := from[b]
		if row.Reduces {
			return reduced(s, n, o.first, o.end, o.at+i)
		}
		return source(s, n, o.first, o.at+i)
	}
	return f
}

// raw returns the bytes of a tensor.
func raw(t *tensor.Tensor) []byte {
	if t.NBytes() == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(t.Pointer()), t.NBytes())
}

// fill puts values into consecutive elements.
func fill(b []byte, dt dtype.DType, value func(i int) int) {
	table, size := encoded[dt], dt.Size()
	for i := range len(b) / size {
		copy(b[i*size:], table[value(i)])
	}
}

// differs describes the first element that is not as wanted; "" if all are.
func differs(b []byte, dt dtype.DType, want func(i int) int) string {
	table, size := encoded[dt], dt.Size()
	for i := range len(b) / size {
		if got := b[i*size:][:size]; !bytes.Equal(got, table[want(i)]) {
			return fmt.Sprintf("element %d of %d is %#x, not %#x", i, len(b)/size, got, table[want(i)])
		}
	}
	return ""
}
