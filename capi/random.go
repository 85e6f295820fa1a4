//go:build cgo

package capi

// #include "shim.h"
import "C"

import (
	"errors"
	"fmt"
	"sync"
	"unsafe"

	"github.com/chorus-comms/chorus/config"
	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/device/rng"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/kernel"
	"github.com/chorus-comms/chorus/kernel/loader"
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
		err = setGenerator(g, seed, offset)
	}
	return fail(err)
}

//export goRandomGet
func goRandomGet(h C.chorus_device, seed, offset *C.uint64_t) (status C.chorus_status) {
	defer contain(&status)
	if seed == nil || offset == nil {
		return fail(refused("chorus_random_get got NULL"))
	}
	g, err := cudaGenerator(h)
	if err == nil {
		err = getGenerator(g, seed, offset)
	}
	return fail(err)
}

// setGenerator sets where a generator's next numbers begin.
func setGenerator(g *rng.CUDA, seed, offset C.uint64_t) error {
	return invalidRandom(g.Set(uint64(seed), uint64(offset)))
}

// getGenerator tells where they begin.
func getGenerator(g *rng.CUDA, seed, offset *C.uint64_t) error {
	o, err := g.Offset()
	*seed, *offset = C.uint64_t(g.InitialSeed()), C.uint64_t(o)
	return invalidRandom(err)
}

// draws is a generator from which the stream's next work draws: a device's own, or that of a handle.
func (s *stream) draws(h C.chorus_generator) (*rng.CUDA, error) {
	if h == 0 {
		return cudaOf(s.Device())
	}
	g, err := generatorOf(s.Device(), h)
	if err == nil && s.Capturing() && !g.Captured() {
		return nil, refused("RNG op during graph capture but generator is not registered with the capturing graph. " +
			"Call graph.register_generator_state() before capture_begin().") // PyTorch's text
	}
	return g, err
}

//export goRandomTake
func goRandomTake(h C.chorus_stream, r *C.chorus_draw) (status C.chorus_status) {
	defer contain(&status)
	s, err := findStream(h)
	if err == nil && r == nil {
		err = refused("chorus_random_take got NULL")
	}
	if err == nil {
		err = sized("chorus_draw", r.size, unsafe.Sizeof(*r))
	}
	var g *rng.CUDA
	if err == nil {
		g, err = s.draws(r.generator)
	}
	if err != nil {
		return fail(err)
	}
	if !s.Capturing() {
		at := g.Reserve(uint64(r.words)).Generator()
		offset, err := at.Offset()
		r.seed, r.offset, r.state = C.uint64_t(at.InitialSeed()), C.uint64_t(offset), nil
		return fail(err)
	}
	state, err := s.Device().RandomState(s.Stream, g)
	if err != nil {
		return fail(err)
	}
	offset, captured := g.Reserve(uint64(r.words)).Captured()
	if !captured {
		return fail(refused("the stream's capture has ended"))
	}
	r.seed, r.offset = 0, C.uint64_t(offset)
	*(*uintptr)(unsafe.Pointer(&r.state)) = uintptr(state) // an address of the device, no pointer of Go's
	return fail(nil)
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
	var g *rng.CUDA
	if r.given != 0 {
		g = rng.NewCUDA(uint64(r.seed), rng.GPU{})
		if err := g.SetOffset(uint64(r.offset)); err != nil {
			return fail(invalidRandom(err))
		}
		draw = g.Reserve(words)
		o, _ := g.Offset() // which isn't captured
		r.offset = C.uint64_t(o)
	} else {
		if g, err = s.draws(r.generator); err != nil {
			return fail(err)
		}
		draw = g.Reserve(words)
	}
	if done, err := q.kernel(s, t, ptr(r.memory), n, ptr(r.probabilities), each, g, draw); done || err != nil {
		return fail(err)
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

// deviceKernels says whether the configuration lets kernels compute.
var deviceKernels = sync.OnceValue(func() bool {
	cfg, err := config.Load(nil)
	return err == nil && cfg.DeviceKernels
})

// kernel enqueues the kernel that draws the numbers. It returns false if the device has none, and then has enqueued
// nothing.
func (q *request) kernel(s *stream, t dtype.DType, at device.Ptr, n int, each device.Ptr, eachType dtype.DType,
	g *rng.CUDA, draw rng.Draw) (bool, error) {
	if !loader.Compiles(s.Device()) || !deviceKernels() {
		return false, nil
	}
	l, err := s.loader()
	if err != nil {
		return false, err
	}
	var from kernel.Random
	if offset, captured := draw.Captured(); captured {
		from.Offset = offset
		if from.State, err = s.Device().RandomState(s.Stream, g); err != nil {
			return false, err
		}
	} else {
		g := draw.Generator()
		from.Seed = g.InitialSeed()
		if from.Offset, err = g.Offset(); err != nil {
			return false, err
		}
	}
	c := kernelCalls.Get().(*kernelCall)
	defer kernelCalls.Put(c)
	c.stream = s.Stream
	dst := kernel.Operand{Ptr: at, Type: t, Sizes: []int{n}, Strides: []int{1}}
	p := &c.Plan
	switch q.kind {
	case 0:
		err = p.Uniform(dst, from, q.a, q.b)
	case 1:
		err = p.Normal(dst, from, q.a, q.b)
	case 2:
		err = p.LogNormal(dst, from, q.a, q.b)
	case 3:
		err = p.Exponential(dst, from, q.a)
	case 4:
		err = p.Cauchy(dst, from, q.a, q.b)
	case 5:
		err = p.Geometric(dst, from, q.a)
	case 6:
		err = p.Bernoulli(dst, from, q.a)
	case 7:
		err = p.BernoulliEach(dst, kernel.Operand{Ptr: each, Type: eachType, Sizes: dst.Sizes, Strides: dst.Strides}, from)
	case 8:
		err = p.Integers(dst, from, q.first, q.last)
	case 9:
		err = p.Whole(dst, from)
	default:
		err = fmt.Errorf("kernel: there is no distribution %d", q.kind)
	}
	err = c.enqueue(l, err)
	c.Plan.Reset()
	c.stream = nil
	if errors.Is(err, errors.ErrUnsupported) {
		return false, nil
	}
	return err == nil, err
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
		8: func(g rng.Generator, dst []T) error { return rng.Between(g, dst, q.first, q.last) },
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
