//go:build cgo

package capi

// #include "shim.h"
import "C"

import (
	"unsafe"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/device/rng"
	"github.com/chorus-comms/chorus/dtype"
)

// cudaGenerator is a device's own generator of CUDA's numbers.
func cudaGenerator(h C.chorus_device) (*rng.CUDA, error) {
	d, err := findDevice(h)
	if err != nil {
		return nil, err
	}
	return cudaOf(d)
}

func cudaOf(d *device.Device) (*rng.CUDA, error) {
	g, err := d.Generator()
	if err != nil {
		return nil, err
	}
	if cuda, ok := g.(*rng.CUDA); ok {
		return cuda, nil
	}
	return nil, refused("the generator of %s has the numbers of a CPU", d.Name())
}

//export goRandomSet
func goRandomSet(h C.chorus_device, seed, offset C.uint64_t) (status C.chorus_status) {
	defer contain(&status)
	g, err := cudaGenerator(h)
	if err == nil {
		err = g.Seed(uint64(seed))
	}
	if err == nil {
		err = g.SetOffset(uint64(offset))
	}
	return fail(invalidRandom(err))
}

//export goRandomGet
func goRandomGet(h C.chorus_device, seed, offset *C.uint64_t) (status C.chorus_status) {
	defer contain(&status)
	if seed == nil || offset == nil {
		return fail(refused("chorus_random_get got NULL"))
	}
	g, err := cudaGenerator(h)
	if err == nil {
		var o uint64
		o, err = g.Offset()
		*seed, *offset = C.uint64_t(g.InitialSeed()), C.uint64_t(o)
	}
	return fail(invalidRandom(err))
}

// invalidRandom is an error of package rng as the caller's mistake.
func invalidRandom(err error) error {
	if err == nil {
		return nil
	}
	return refused("%v", err)
}

//export goStreamRandom
func goStreamRandom(h C.chorus_stream, r *C.chorus_random) (status C.chorus_status) {
	defer contain(&status)
	s, err := findStream(h)
	if err == nil && r == nil {
		err = refused("chorus_stream_random got NULL")
	}
	if err == nil {
		err = sized("chorus_random", r.size, unsafe.Sizeof(*r))
	}
	if err != nil {
		return fail(err)
	}
	q := request{kind: int(r.kind), a: float64(r.a), b: float64(r.b), first: int64(r.first), last: int64(r.last)}
	t, n := dtype.DType(r.dtype), int(r.n)
	each := dtype.DType(r.probabilities_dtype)
	switch {
	case n < 0 || q.kind < 0 || q.kind > 9 || q.first > q.last:
		err = refused("chorus_stream_random of %d elements of kind %d, from %d to %d", n, q.kind, q.first, q.last)
	case q.kind == 7 && (r.probabilities == nil || each != t && each != dtype.Float32):
		err = refused("probabilities of a type are of the same or of float32, not %v for %v", each, t)
	}
	fill := q.filler(t, each)
	if err == nil && fill == nil {
		err = refused("there are no random numbers of kind %d and type %v", q.kind, t)
	}
	if err == nil && n > 0 { // what the arguments can't be is told at once
		err = invalidRandom(fill(rng.NewCUDA(0, rng.GPU{}), nil, nil, 0))
	}
	if err != nil || n == 0 {
		return fail(err)
	}
	operands := []device.Span{{Ptr: ptr(r.memory), Bytes: n * t.Size()}}
	if q.kind == 7 {
		operands = append(operands, device.Span{Ptr: ptr(r.probabilities), Bytes: n * each.Size()})
	}
	words := q.words(t, n)
	var draw rng.Draw
	if r.given != 0 {
		g := rng.NewCUDA(uint64(r.seed), rng.GPU{})
		if err := g.SetOffset(uint64(r.offset)); err != nil {
			return fail(invalidRandom(err))
		}
		draw = g.Reserve(words)
		o, _ := g.Offset() // which isn't captured
		r.offset = C.uint64_t(o)
	} else {
		g, err := cudaOf(s.Device())
		if err != nil {
			return fail(err)
		}
		draw = g.Reserve(words)
	}
	return fail(s.Launch("random", operands, func(views []unsafe.Pointer) error {
		var p unsafe.Pointer
		if len(views) > 1 {
			p = views[1]
		}
		return fill(draw.Generator(), views[0], p, n)
	}))
}

// request is what is asked of a distribution.
type request struct {
	kind        int
	a, b        float64
	first, last int64
}

// words is what filling n elements takes of a generator.
func (q *request) words(t dtype.DType, n int) uint64 {
	wide := t == dtype.Float64
	switch q.kind {
	case 7:
		return 12
	case 8:
		wide = uint64(q.last)-uint64(q.first)+1 >= 1<<28 || q.last-q.first < 0
	case 9:
		wide = wide || t == dtype.Int64
	}
	return rng.GPU{}.Increment(n, t.Size(), wide)
}

// filler fills memory from a generator; nil if the distribution isn't there for the type.
type filler func(g *rng.CUDA, memory, probabilities unsafe.Pointer, n int) error

func (q *request) filler(t, each dtype.DType) filler {
	switch t {
	case dtype.Float32:
		return floats[float32](q, each == t)
	case dtype.Float64:
		return floats[float64](q, each == t)
	case dtype.Float16:
		return floats[dtype.F16](q, each == t)
	case dtype.BFloat16:
		return floats[dtype.BF16](q, each == t)
	case dtype.Bool:
		return numbers[bool](q)
	case dtype.Uint8:
		return numbers[uint8](q)
	case dtype.Int8:
		return numbers[int8](q)
	case dtype.Int16:
		return numbers[int16](q)
	case dtype.Int32:
		return numbers[int32](q)
	case dtype.Int64:
		return numbers[int64](q)
	}
	return nil
}

// of is memory as a slice.
func of[T any](p unsafe.Pointer, n int) []T { return unsafe.Slice((*T)(p), n) }

func floats[T rng.Float](q *request, same bool) filler {
	continuous := map[int]func(g rng.Generator, dst []T) error{
		0: func(g rng.Generator, dst []T) error { return rng.Uniform(g, dst, q.a, q.b) },
		1: func(g rng.Generator, dst []T) error { return rng.Normal(g, dst, q.a, q.b) },
		2: func(g rng.Generator, dst []T) error { return rng.LogNormal(g, dst, q.a, q.b) },
		3: func(g rng.Generator, dst []T) error { return rng.Exponential(g, dst, q.a) },
		4: func(g rng.Generator, dst []T) error { return rng.Cauchy(g, dst, q.a, q.b) },
	}[q.kind]
	switch {
	case continuous != nil:
		return func(g *rng.CUDA, memory, _ unsafe.Pointer, n int) error { return continuous(g, of[T](memory, n)) }
	case q.kind == 7 && same:
		return func(g *rng.CUDA, memory, p unsafe.Pointer, n int) error {
			return rng.BernoulliEach(g, of[T](memory, n), of[T](p, n))
		}
	}
	return numbers[T](q)
}

func numbers[T rng.Number](q *request) filler {
	discrete := map[int]func(g rng.Generator, dst []T) error{
		5: func(g rng.Generator, dst []T) error { return rng.Geometric(g, dst, q.a) },
		6: func(g rng.Generator, dst []T) error { return rng.Bernoulli(g, dst, q.a) },
		8: func(g rng.Generator, dst []T) error { return rng.Integers(g, dst, q.first, q.last+1) },
		9: func(g rng.Generator, dst []T) error { return rng.Random(g, dst) },
	}[q.kind]
	switch {
	case discrete != nil:
		return func(g *rng.CUDA, memory, _ unsafe.Pointer, n int) error { return discrete(g, of[T](memory, n)) }
	case q.kind == 7:
		return func(g *rng.CUDA, memory, p unsafe.Pointer, n int) error {
			return rng.BernoulliEach(g, of[T](memory, n), of[float32](p, n))
		}
	}
	return nil
}
