//go:build cgo

package capi

// #include "shim.h"
import "C"

import (
	"errors"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/device/rng"
)

var generators = table[generator]{kind: generatorHandles}

// generator is one of a device, beside its own.
type generator struct {
	*rng.CUDA
	dev *device.Device
}

func findGenerator(h C.chorus_generator) (*generator, error) {
	if g := generators.get(uint64(h)); g != nil {
		return g, nil
	}
	return nil, refused("%#x is no generator; it may have been released", uint64(h))
}

// generatorOf is a generator that must be a device's.
func generatorOf(d *device.Device, h C.chorus_generator) (*rng.CUDA, error) {
	g, err := findGenerator(h)
	if err != nil {
		return nil, err
	}
	if g.dev != d {
		return nil, refused("the generator is of %s, not of %s", g.dev.Name(), d.Name())
	}
	return g.CUDA, nil
}

//export goGeneratorCreate
func goGeneratorCreate(h C.chorus_device, seed, offset C.uint64_t, out *C.chorus_generator) (status C.chorus_status) {
	defer contain(&status)
	d, err := findDevice(h)
	if err == nil && out == nil {
		err = refused("chorus_generator_create got NULL")
	}
	if err != nil {
		return fail(err)
	}
	*out = 0
	g := &generator{rng.NewCUDA(uint64(seed), rng.GPU{}), d}
	if err := g.SetOffset(uint64(offset)); err != nil {
		return fail(invalidRandom(err))
	}
	made := generators.put(g)
	if made == 0 {
		return fail(errors.New("chorus: too many generators"))
	}
	*out = C.chorus_generator(made)
	return C.CHORUS_OK
}

//export goGeneratorSet
func goGeneratorSet(h C.chorus_generator, seed, offset C.uint64_t) (status C.chorus_status) {
	defer contain(&status)
	g, err := findGenerator(h)
	if err == nil {
		err = setGenerator(g.CUDA, seed, offset)
	}
	return fail(err)
}

//export goGeneratorGet
func goGeneratorGet(h C.chorus_generator, seed, offset *C.uint64_t) (status C.chorus_status) {
	defer contain(&status)
	if seed == nil || offset == nil {
		return fail(refused("chorus_generator_get got NULL"))
	}
	g, err := findGenerator(h)
	if err == nil {
		err = getGenerator(g.CUDA, seed, offset)
	}
	return fail(err)
}

//export goGeneratorRelease
func goGeneratorRelease(h C.chorus_generator) (status C.chorus_status) {
	defer contain(&status)
	if generators.take(uint64(h)) == nil {
		_, err := findGenerator(h)
		return fail(err)
	}
	return C.CHORUS_OK
}
