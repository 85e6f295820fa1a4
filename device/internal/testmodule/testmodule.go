// Package testmodule is the module that package devicetest launches, as functions of emulated devices:
//
//	devicetest.Run(t, drv, devicetest.Module(testmodule.Image))
package testmodule

import (
	"encoding/binary"
	"math"

	"github.com/chorus-comms/chorus/device/driver"
	"github.com/chorus-comms/chorus/device/internal/engine"
)

// Image is what emulated devices load.
var Image = []byte("devicetest")

func init() {
	const pointer, int32s = driver.ParamPointer, driver.ParamInt32
	engine.RegisterModule(string(Image), map[string]engine.Function{
		"add":        {Params: []driver.ParamKind{pointer, pointer, pointer, int32s}, Run: add},
		"accumulate": {Params: []driver.ParamKind{pointer, int32s}, Run: accumulate},
		"echo": {Params: []driver.ParamKind{pointer, int32s, driver.ParamInt64, driver.ParamUint32, driver.ParamUint64,
			driver.ParamFloat32, driver.ParamFloat64, driver.ParamBytes}, Run: echo},
		"blocks": {Params: []driver.ParamKind{pointer, int32s}, Run: blocks},
	})
}

func number(b *engine.Block) int { return b.Index.X + b.Grid.X*(b.Index.Y+b.Grid.Y*b.Index.Z) }

// share calls f for each index below n that is the block's.
func share(b *engine.Block, n int32, f func(i int)) {
	for i := number(b); i < int(n); i += b.Grid.Count() {
		f(i)
	}
}

func get(b []byte, i int) uint32    { return binary.NativeEndian.Uint32(b[4*i:]) }
func put(b []byte, i int, v uint32) { binary.NativeEndian.PutUint32(b[4*i:], v) }

func add(b *engine.Block) error {
	out, x, y := b.Memory(0), b.Memory(1), b.Memory(2)
	share(b, b.Int32(3), func(i int) { put(out, i, get(x, i)+get(y, i)) })
	return nil
}

func accumulate(b *engine.Block) error {
	out := b.Memory(0)
	share(b, b.Int32(1), func(i int) { put(out, i, get(out, i)+1) })
	return nil
}

func echo(b *engine.Block) error {
	out, pair := b.Memory(0), b.Struct(7)
	for i, v := range []float64{float64(b.Int32(1)), float64(b.Int64(2)), float64(b.Uint32(3)), float64(b.Uint64(4)),
		float64(b.Float32(5)),
		b.Float64(6), float64(int8(pair[0])), float64(int64(binary.NativeEndian.Uint64(pair[8:])))} {
		binary.NativeEndian.PutUint64(out[8*i:], math.Float64bits(v))
	}
	return nil
}

func blocks(b *engine.Block) error {
	sum := b.Threads.Count()
	shared := b.Shared[:b.Int32(1)]
	for i := range shared {
		shared[i] = 1
	}
	for _, x := range shared {
		sum += int(x)
	}
	put(b.Memory(0), number(b), uint32(sum))
	return nil
}
