package engine

import (
	"unsafe"

	"github.com/chorus-comms/chorus/accl/abi"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/kern"
)

// datapath is a way through arithmetic and compression, as an arithmetic configuration says.
type datapath struct {
	abi.ArithConfig
	full, small dtype.DType // uncompressed, compressed; by their sizes alone where nothing is combined or converted
}

// ofSize stands for elements that are only moved.
var ofSize = map[uint32]dtype.DType{1: dtype.Int8, 2: dtype.Int16, 4: dtype.Int32, 8: dtype.Int64}

func (e *Engine) datapath(addr uint32) (*datapath, abi.Status) {
	a, err := abi.ParseArithConfig(e.exch.from(addr, 7+abi.MaxFunctions))
	if err != nil {
		return nil, abi.Arith
	}
	p := &datapath{ArithConfig: a, full: ofSize[a.UncompressedBytes], small: ofSize[a.CompressedBytes]}
	if a.UncompressedBytes == a.CompressedBytes {
		return p, 0
	}
	if p.full.Size() != 4 || p.small.Size() != 2 || a.Compressor != abi.Float32To16 || a.Decompressor != abi.Float16To32 {
		return nil, abi.Compression
	}
	p.full, p.small = dtype.Float32, dtype.Float16
	return p, 0
}

// size returns the bytes of an element.
func (p *datapath) size(compressed bool) int {
	if compressed {
		return int(p.CompressedBytes)
	}
	return int(p.UncompressedBytes)
}

func (p *datapath) dtype(compressed bool) dtype.DType {
	if compressed {
		return p.small
	}
	return p.full
}

// function returns a function of the arithmetic unit.
func (p *datapath) function(f uint32) (op kern.Op, t dtype.DType, ok bool) {
	if f >= uint32(len(p.Functions)) {
		return 0, 0, false
	}
	r, lane := abi.Lane(p.Functions[f])
	t = lane.DType()
	if r == abi.Max {
		op = kern.Max
	}
	return op, t, t.Size() == p.size(p.ArithCompressed)
}

// through takes n elements of one or two operands, b may be nil, through arithmetic and compression. The result is in
// into, if that isn't nil; else it's one of the operands as it is, or in memory of the call's.
func (c *Call) through(m *move, a, b []byte, aSmall, bSmall bool, into []byte, n int) []byte {
	p, out := c.path, m.res.compressed
	if p.UncompressedBytes == p.CompressedBytes { // the flags say nothing of the type
		aSmall, bSmall, out = p.ArithCompressed, p.ArithCompressed, p.ArithCompressed
	}
	if b == nil {
		if aSmall != out {
			return c.convert(0, into, out, a, aSmall, n)
		}
		if into != nil && len(a) > 0 && unsafe.SliceData(into) != unsafe.SliceData(a) {
			kern.Copy(unsafe.Pointer(unsafe.SliceData(into)), unsafe.Pointer(unsafe.SliceData(a)), len(a))
		}
		return a
	}
	op, t, ok := p.function(c.Function)
	if !ok {
		c.fail(abi.Arith)
		return nil
	}
	unit := p.ArithCompressed
	if aSmall != unit {
		a = c.convert(0, nil, unit, a, aSmall, n)
	}
	if bSmall != unit {
		b = c.convert(1, nil, unit, b, bSmall, n)
	}
	sum := into
	if out != unit || into == nil {
		sum = c.temporary(0, n*p.size(unit))
	}
	c.dst[0] = unsafe.Pointer(unsafe.SliceData(sum))
	c.src[0], c.src[1] = unsafe.Pointer(unsafe.SliceData(a)), unsafe.Pointer(unsafe.SliceData(b))
	kern.Reduce(op, t, c.dst[:], c.src[:], n)
	if out != unit {
		return c.convert(1, into, out, sum, unit, n)
	}
	return sum
}

// convert changes the type of n elements into into, or, if that's nil, into one of the call's two temporaries.
func (c *Call) convert(tmp int, into []byte, outSmall bool, from []byte, small bool, n int) []byte {
	if into == nil {
		into = c.temporary(tmp, n*c.path.size(outSmall))
	}
	kern.Convert(c.path.dtype(outSmall), unsafe.Pointer(unsafe.SliceData(into)), c.path.dtype(small),
		unsafe.Pointer(unsafe.SliceData(from)), n)
	return into
}

// temporary returns memory of the call's own.
func (c *Call) temporary(i, n int) []byte {
	if cap(c.scratch[i]) < n {
		c.scratch[i] = Alloc(n)
	}
	return c.scratch[i][:n]
}
