package devicetest

import (
	"bytes"
	_ "embed"
	"encoding/binary"
	"math"

	"github.com/chorus-comms/chorus/device/driver"
)

// Source has the functions that the suite launches, in the C that CUDA and HIP share: the image for drivers that load
// such sources, and the description for others.
//
//go:embed module.cu
var Source []byte

// Module gives the suite an image of the driver's, with the functions add, accumulate, echo and blocks, which do what
// those of [Source] do.
func Module(image []byte) Option { return func(s *suite) { s.image = image } }

func ints(n int, f func(i int) int32) []byte {
	b := make([]byte, 0, 4*n)
	for i := range n {
		b = binary.NativeEndian.AppendUint32(b, uint32(f(i)))
	}
	return b
}

// module loads the image, until the end of the case.
func (c *test) module(dev int) (driver.Modules, driver.ModuleHandle) {
	drv := c.drv.(driver.Modules)
	m, err := drv.ModuleLoad(dev, c.image)
	c.must(err)
	c.after = append(c.after, func() { c.must(drv.ModuleUnload(m)) })
	return drv, m
}

func (c *test) function(drv driver.Modules, m driver.ModuleHandle, name string) driver.FunctionHandle {
	f, err := drv.ModuleFunction(m, name)
	c.must(err)
	return f
}

var moduleCases = []testCase{
	{"Launch", 1, func(c *test) {
		drv, m := c.module(0)
		add := c.function(drv, m, "add")
		const n = 10_001
		p := c.put(0, ints(n, func(i int) int32 { return int32(i) }))
		q := c.put(0, ints(n, func(i int) int32 { return int32(-3 * i) }))
		out, s := c.malloc(0, 4*n), c.stream(0)
		for _, l := range []driver.Launch{
			{},
			{Grid: driver.Dim{X: 7}, Block: driver.Dim{X: 64}},
			{Grid: driver.Dim{X: 2, Y: 3, Z: 2}, Block: driver.Dim{X: 8, Y: 2, Z: 4}},
		} {
			c.must(c.drv.Fill(s, out, 0xff, 4*n))
			release := c.hold(s)
			l.Args = new(driver.Args).Pointer(out).Pointer(p).Pointer(q).Int32(n)
			c.must(drv.FunctionLaunch(s, add, l))
			l.Args.Reset().Pointer(0).Pointer(0).Pointer(0).Int32(7) // the launch has its own by now
			release()
			c.sync(s)
			if !bytes.Equal(c.get(0, out, 4*n), ints(n, func(i int) int32 { return int32(-2 * i) })) {
				c.fail("a grid of %v blocks of %v threads: the sum is wrong", l.Grid, l.Block)
			}
		}
		// Within an allocation, and behind other work of the stream.
		c.must(c.drv.Copy(s, out, p, 4*n, driver.DeviceToDevice))
		c.must(drv.FunctionLaunch(s, add,
			driver.Launch{Args: new(driver.Args).Pointer(out.Add(4)).Pointer(out.Add(4)).Pointer(q.Add(4)).Int32(n - 2)}))
		c.sync(s)
		want := ints(n, func(i int) int32 {
			if i == 0 || i == n-1 {
				return int32(i)
			}
			return int32(-2 * i)
		})
		if !bytes.Equal(c.get(0, out, 4*n), want) {
			c.fail("a launch in the middle of an allocation is wrong, or came before the copy")
		}
	}},
	{"Arguments", 1, func(c *test) {
		drv, m := c.module(0)
		echo := c.function(drv, m, "echo")
		out, s := c.malloc(0, 8*8), c.stream(0)
		var pair [16]byte
		pair[0] = 0x85
		binary.NativeEndian.PutUint64(pair[8:], math.MaxUint64-6)
		c.must(drv.FunctionLaunch(s, echo,
			driver.Launch{Args: new(driver.Args).Pointer(out).Int32(-5).Int64(-1<<40).Uint32(1<<32-1).
				Uint64(1<<60).Float32(0.5).Float64(-1.25).Bytes(pair[:], 8)}))
		c.sync(s)
		got := c.get(0, out, 8*8)
		for i, want := range []float64{-5, -1 << 40, 1<<32 - 1, 1 << 60, 0.5, -1.25, -123, -7} {
			if v := math.Float64frombits(binary.NativeEndian.Uint64(got[8*i:])); v != want {
				c.fail("value %d arrives as %v, want %v", i, v, want)
			}
		}
	}},
	{"Grid", 1, func(c *test) {
		drv, m := c.module(0)
		blocks := c.function(drv, m, "blocks")
		grid, block := driver.Dim{X: 5, Y: 3, Z: 2}, driver.Dim{X: 4, Y: 2, Z: 3}
		out, s := c.put(0, make([]byte, 4*31)), c.stream(0)
		c.must(drv.FunctionLaunch(s, blocks, driver.Launch{Grid: grid, Block: block, Shared: 1000,
			Args: new(driver.Args).Pointer(out).Int32(1000)}))
		c.sync(s)
		want := ints(31, func(i int) int32 {
			if i == 30 {
				return 0
			}
			return 24 + 1000
		})
		if !bytes.Equal(c.get(0, out, 4*31), want) {
			c.fail("not every block of the grid ran, or with other dimensions")
		}
	}},
	{"Attributes", 1, func(c *test) {
		drv, m := c.module(0)
		add := c.function(drv, m, "add")
		a, err := drv.FunctionAttributes(add)
		c.must(err)
		if a.Name != "add" || a.MaxThreads < 1 || a.SharedBytes < 0 || a.Params != nil && len(a.Params) != 4 {
			c.fail("attributes of add: %+v", a)
		}
	}},
	{"Refused", 1, func(c *test) {
		drv, m := c.module(0)
		add := c.function(drv, m, "add")
		a, err := drv.FunctionAttributes(add)
		c.must(err)
		out, s := c.malloc(0, 64), c.stream(0)
		args := func() *driver.Args { return new(driver.Args).Pointer(out).Pointer(out).Pointer(out).Int32(1) }
		_, err = drv.ModuleLoad(0, []byte("no image"))
		c.refused(err, driver.ErrInvalidArgument, "an image that is none")
		_, err = drv.ModuleLoad(c.n, c.image)
		c.refused(err, driver.ErrWrongDevice, "a device that there isn't")
		_, err = drv.ModuleFunction(m, "no_such_function")
		c.refused(err, driver.ErrNotFound, "a function that there isn't")
		_, err = drv.ModuleFunction(0, "add")
		c.refused(err, driver.ErrInvalidHandle, "a null module")
		c.refused(drv.FunctionLaunch(0, add, driver.Launch{Args: args()}), driver.ErrInvalidHandle, "a null stream")
		c.refused(drv.FunctionLaunch(s, 0, driver.Launch{Args: args()}), driver.ErrInvalidHandle, "a null function")
		c.refused(drv.FunctionLaunch(s, add, driver.Launch{Block: driver.Dim{X: a.MaxThreads + 1}, Args: args()}),
			driver.ErrInvalidArgument, "a block that is too large")
		c.refused(drv.FunctionLaunch(s, add, driver.Launch{Grid: driver.Dim{X: -1}, Args: args()}), driver.ErrInvalidArgument,
			"a grid of -1 blocks")
		c.refused(drv.FunctionLaunch(s, add, driver.Launch{Shared: 1 << 30, Args: args()}), driver.ErrInvalidArgument,
			"1 GiB of shared memory")
		if a.Params != nil {
			c.refused(drv.FunctionLaunch(s, add, driver.Launch{Args: new(driver.Args).Pointer(out)}), driver.ErrInvalidArgument,
				"too few arguments")
			c.refused(drv.FunctionLaunch(s, add, driver.Launch{Args: args().Int32(1)}), driver.ErrInvalidArgument,
				"too many arguments")
			wrong := new(driver.Args).Pointer(out).Pointer(out).Pointer(out).Float32(1)
			c.refused(drv.FunctionLaunch(s, add, driver.Launch{Args: wrong}), driver.ErrInvalidArgument,
				"an argument of another type")
		}
		c.sync(s)
	}},
	{"WrongDevice", 2, func(c *test) {
		drv, m := c.module(1)
		out := c.malloc(1, 64)
		c.refused(drv.FunctionLaunch(c.stream(0), c.function(drv, m, "accumulate"),
			driver.Launch{Args: new(driver.Args).Pointer(out).Int32(1)}), driver.ErrWrongDevice,
			"a function of another device's module")
	}},
	{"Unload", 1, func(c *test) {
		drv := c.drv.(driver.Modules)
		m, err := drv.ModuleLoad(0, c.image)
		c.must(err)
		f := c.function(drv, m, "accumulate")
		out, s := c.put(0, make([]byte, 40)), c.stream(0)
		l := driver.Launch{Args: new(driver.Args).Pointer(out).Int32(10)}
		release := c.hold(s)
		c.must(drv.FunctionLaunch(s, f, l))
		c.must(drv.ModuleUnload(m))
		release()
		c.sync(s)
		if !bytes.Equal(c.get(0, out, 40), ints(10, func(int) int32 { return 1 })) {
			c.fail("what was launched before its module was unloaded didn't run")
		}
		c.refused(drv.FunctionLaunch(s, f, l), driver.ErrInvalidHandle, "a function of an unloaded module")
		c.refused(drv.ModuleUnload(m), driver.ErrInvalidHandle, "unloading twice")
	}},
	{"Capture", 1, func(c *test) {
		gr, ok := c.drv.(driver.Graphs)
		if !ok {
			return
		}
		drv, m := c.module(0)
		f := c.function(drv, m, "accumulate")
		out, s := c.put(0, make([]byte, 40)), c.stream(0)
		args := new(driver.Args).Pointer(out).Int32(10)
		x := c.capture(s, func() {
			c.must(drv.FunctionLaunch(s, f, driver.Launch{Args: args}))
			c.must(drv.FunctionLaunch(s, f, driver.Launch{Args: args}))
		})
		args.Reset()
		for range 3 {
			c.must(gr.GraphLaunch(x, s))
		}
		c.sync(s)
		if !bytes.Equal(c.get(0, out, 40), ints(10, func(int) int32 { return 6 })) {
			c.fail("two captured launches, replayed three times, didn't run six times")
		}
	}},
}
