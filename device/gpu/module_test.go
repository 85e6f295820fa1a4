//go:build linux && (amd64 || arm64)

package gpu_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/device/driver"
	"github.com/chorus-comms/chorus/device/gpu"
	"github.com/chorus-comms/chorus/device/gpu/abi"
	"github.com/chorus-comms/chorus/device/gpu/gputest"
	"github.com/chorus-comms/chorus/device/internal/testmodule"
	"github.com/chorus-comms/chorus/internal/dl"
)

// images are what a stand-in loads for the suite's module: its own, and a source, which is compiled first.
var images = map[string][]byte{"an image": gputest.Image(testmodule.Image), "a source": testmodule.Image}

// An image that the library or its compiler refuses is an error that says why.
func TestBadImages(t *testing.T) {
	elf := make([]byte, 64)
	copy(elf, "\x7fELF")
	binary.LittleEndian.PutUint64(elf[40:], 1000)
	fat := []byte("\x50\xed\x55\xba\x01\x00\x10\x00\xff\x00\x00\x00\x00\x00\x00\x00")
	for _, name := range []string{"cuda", "hip"} {
		d, _ := open(t, gputest.Options{Name: name})
		for what, x := range map[string]struct {
			image []byte
			says  string
		}{
			"nothing":            {nil, "0 bytes"},
			"half an ELF file":   {elf, "isn't whole"},
			"half a fat binary":  {fat, "isn't whole"},
			"PTX":                {[]byte("// of somebody\n/* else */ .version 8.0\n"), "ModuleLoadData"},
			"another image":      {gputest.Image([]byte("another")), "ModuleLoadData"},
			"bytes":              {[]byte{0xff, 0xfe, 0, 1}, "ModuleLoadData"},
			"a bad source":       {[]byte("int f("), "module.cu(1): error: int f( is no module"},
			"a bad source and 0": {[]byte("int f(\x00"), "module.cu(1): error: int f( is no module"},
		} {
			_, err := d.ModuleLoad(0, x.image)
			if name == "cuda" && x.says == "ModuleLoadData" {
				x.says = "fatal: no image of the stand-in"
			}
			if !errors.Is(err, driver.ErrInvalidArgument) || !strings.Contains(err.Error(), x.says) {
				t.Errorf("%s: %s: %v", name, what, err)
			}
		}
		_, err := d.ModuleLoad(0, []byte("int f("))
		var e *gpu.CompileError
		if !errors.As(err, &e) || e.Outcome != abi.CompilationError || !strings.HasPrefix(e.Log, "module.cu") {
			t.Errorf("%s: %#v", name, e)
		}
	}
}

// A launch of more blocks, or in HIP of more threads in a dimension, than the vendor allows is refused before the
// library is asked.
func TestLaunchLimits(t *testing.T) {
	for name, most := range map[string]driver.Dim{"cuda": {X: 1<<31 - 1, Y: 65535, Z: 65535},
		"hip": {X: 1<<24 - 1, Y: 65535, Z: 65535}} {
		asked := false
		d, _ := open(t, gputest.Options{Name: name, Fail: func(call string) abi.Result {
			asked = asked || strings.Contains(call, "LaunchKernel")
			return abi.Success
		}})
		p, err := d.Properties(0)
		if err != nil {
			t.Fatal(err)
		}
		block := driver.Dim{X: 256, Y: 1, Z: 1}
		if got := p.LaunchLimit(block); got != most {
			t.Errorf("%s: a launch has %v blocks at most, want %v", name, got, most)
		}
		m, err := d.ModuleLoad(0, testmodule.Image)
		if err != nil {
			t.Fatal(err)
		}
		f, err := d.ModuleFunction(m, "add")
		if err != nil {
			t.Fatal(err)
		}
		s, err := d.StreamCreate(0, 0)
		if err != nil {
			t.Fatal(err)
		}
		args := new(driver.Args).Pointer(0).Pointer(0).Pointer(0).Int32(0)
		for _, grid := range []driver.Dim{{X: most.X + 1, Y: 1, Z: 1}, {X: 1, Y: most.Y + 1, Z: 1},
			{X: 1, Y: 1, Z: most.Z + 1}} {
			err := d.FunctionLaunch(s, f, driver.Launch{Grid: grid, Block: block, Args: args})
			if !errors.Is(err, driver.ErrInvalidArgument) || asked {
				t.Errorf("%s: %v blocks: %v; the library was asked: %v", name, grid, err, asked)
			}
		}
	}
}

// Arguments that are fewer, more or others than the parameters are refused where the library says what those are.
func TestWrongArguments(t *testing.T) {
	d, _ := open(t, gputest.Options{Name: "cuda"})
	m, err := d.ModuleLoad(0, testmodule.Image)
	if err != nil {
		t.Fatal(err)
	}
	f, err := d.ModuleFunction(m, "add")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.ModuleFunction(m, "add\x00"); !errors.Is(err, driver.ErrNotFound) {
		t.Errorf("a name with a 0: %v", err)
	}
	s, err := d.StreamCreate(0, 0)
	if err != nil {
		t.Fatal(err)
	}
	p, err := d.Malloc(0, 64)
	if err != nil {
		t.Fatal(err)
	}
	other, err := d.Malloc(1, 64)
	if err != nil {
		t.Fatal(err)
	}
	const none = driver.Kind("")
	args := func(p driver.Ptr) *driver.Args { return new(driver.Args).Pointer(p).Pointer(p).Pointer(p) }
	for what, x := range map[string]struct {
		args *driver.Args
		kind driver.Kind
	}{
		"none":                     {nil, driver.ErrInvalidArgument},
		"too few":                  {args(p), driver.ErrInvalidArgument},
		"too many":                 {args(p).Int32(1).Int32(1), driver.ErrInvalidArgument},
		"too long":                 {args(p).Int64(1), driver.ErrInvalidArgument},
		"of no bytes":              {args(p).Bytes(nil, 1), driver.ErrInvalidArgument},
		"memory out of its reach":  {args(other).Int32(1), driver.ErrWrongDevice},
		"what it should be":        {args(p).Int32(1), none},
		"null, which isn't looked": {args(0).Int32(0), none},
	} {
		err := d.FunctionLaunch(s, f, driver.Launch{Args: x.args})
		if x.kind == none && err != nil || x.kind != none && !errors.Is(err, x.kind) {
			t.Errorf("%s: %v", what, err)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	// More shared memory than the function has at first, and more than there is.
	blocks, err := d.ModuleFunction(m, "blocks")
	if err != nil {
		t.Fatal(err)
	}
	one := new(driver.Args).Pointer(p).Int32(40 << 10)
	err = errors.Join(d.FunctionLaunch(s, blocks, driver.Launch{Shared: 40 << 10, Args: one}), d.StreamSynchronize(ctx, s))
	if err != nil {
		t.Error(err)
	}
	err = d.FunctionLaunch(s, blocks, driver.Launch{Shared: 100 << 10, Args: one})
	if !errors.Is(err, driver.ErrInvalidArgument) {
		t.Errorf("with more shared memory than there is: %v", err)
	}
	if err := errors.Join(d.StreamDestroy(s), d.Free(0, p), d.Free(1, other)); err != nil {
		t.Error(err)
	}
}

// A module is the library's until it's unloaded and no graph has a function of it.
func TestModuleLife(t *testing.T) {
	for what, image := range images {
		f := &failing{}
		unloads := 0
		d, _ := open(t, gputest.Options{Name: "hip", Fail: func(call string) abi.Result {
			if call == "hipModuleUnload" {
				unloads++
			}
			return f.ask(call)
		}})
		want := func(n int, when string) {
			if t.Helper(); unloads != n {
				t.Errorf("%s: %s: %d modules were unloaded, want %d", what, when, unloads, n)
			}
		}
		must := func(err error) {
			if t.Helper(); err != nil {
				t.Fatal(err)
			}
		}
		m, err := d.ModuleLoad(1, image)
		must(err)
		fn, err := d.ModuleFunction(m, "accumulate")
		must(err)
		s, err := d.StreamCreate(1, 0)
		must(err)
		p, err := d.Malloc(1, 40)
		must(err)
		must(d.CaptureBegin(s))
		must(d.FunctionLaunch(s, fn, driver.Launch{Args: new(driver.Args).Pointer(p).Int32(10)}))
		g, err := d.CaptureEnd(s)
		must(err)
		nodes, err := d.GraphNodes(g)
		if err != nil || len(nodes) != 1 || nodes[0].Kind != driver.ActivityKernel {
			t.Errorf("nodes %+v, %v", nodes, err)
		}
		x, err := d.Instantiate(g)
		must(err)
		must(d.ModuleUnload(m))
		if _, err := d.FunctionAttributes(fn); !errors.Is(err, driver.ErrInvalidHandle) {
			t.Errorf("a function of an unloaded module: %v", err)
		}
		want(0, "with a graph")
		must(d.GraphDestroy(g))
		want(0, "with an instantiated graph")
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		must(errors.Join(d.GraphLaunch(x, s), d.StreamSynchronize(ctx, s)))
		must(d.Free(1, p))
		must(d.GraphLaunch(x, s))
		if err := d.StreamRecover(ctx, s); !errors.Is(err, driver.ErrFailed) {
			t.Errorf("a replay without its memory: %v", err)
		}
		must(d.ExecDestroy(x))
		want(1, "without")
		must(d.StreamDestroy(s))
	}
}

// A library without modules, or a machine without the compiler, is an error that names what's missing.
func TestWithoutModules(t *testing.T) {
	d, _ := open(t, gputest.Options{Name: "cuda", Without: []string{"cuModuleLoadData"}})
	if _, err := d.ModuleLoad(0, testmodule.Image); !errors.Is(err, driver.ErrUnsupported) ||
		!strings.Contains(err.Error(), "CUDA 12.4 (stand-in) has no modules: it lacks cuModuleLoadData") {
		t.Error(err)
	}
	for name, file := range map[string]string{"cuda": "libnvrtc.so.13", "hip": "libhiprtc.so"} {
		t.Run(name, func(t *testing.T) {
			sim, err := gputest.New(gputest.Options{Name: name})
			if err != nil {
				t.Fatal(err)
			}
			defer sim.Close()
			lib, err := gpu.Supply(name, "stand-in", sim.Table())
			if err != nil {
				t.Fatal(err)
			}
			d, err := gpu.New(lib)
			if err != nil {
				t.Fatal(err)
			}
			_, err = d.ModuleLoad(0, []byte("int f("))
			var none *dl.NotFoundError
			switch {
			case errors.Is(err, driver.ErrInvalidArgument),
				errors.Is(err, driver.ErrUnsupported) && strings.Contains(err.Error(), "loads no programs"):
				t.Skip("left out: the compiler is there, and says ", err)
			case !errors.Is(err, driver.ErrUnsupported) || !errors.As(err, &none) || !strings.Contains(err.Error(), file):
				t.Error(err)
			}
		})
	}
}

// A compiler's name is a key of compiled kernels on disk, so it has HIP's version: hiprtc says 9.0 in all releases.
func TestCompilerNames(t *testing.T) {
	for name, want := range map[string]string{"cuda": "NVRTC 12.4 (stand-in)", "hip": "hiprtc 6.4.43484 (stand-in)"} {
		sim, err := gputest.New(gputest.Options{Name: name})
		if err != nil {
			t.Fatal(err)
		}
		defer sim.Close()
		lib, err := gpu.Supply(name, "stand-in", sim.Table())
		if err == nil {
			err = lib.SupplyCompiler("stand-in", sim.Compiler())
		}
		if err != nil {
			t.Fatal(err)
		}
		d, err := gpu.New(lib)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := d.ModuleCompiler(0); err != nil || !strings.HasPrefix(got, want+" for ") {
			t.Errorf("%q, %v", got, err)
		}
	}
}

// NVRTC compiles several sources at once, and hiprtc one after the other.
func TestCompilesAtOnce(t *testing.T) {
	for name, most := range map[string]int64{"cuda": 2, "hip": 1} {
		wait := 20 * time.Millisecond
		if most == 2 {
			wait = 10 * time.Second
		}
		sim, err := gputest.New(gputest.Options{Name: name})
		if err != nil {
			t.Fatal(err)
		}
		defer sim.Close()
		var going, seen atomic.Int64
		both, tool := make(chan struct{}), sim.Compiler()
		compile := tool.Compile
		tool.Compile = func(p abi.Program, n int32, options **byte) abi.Outcome {
			now := going.Add(1)
			defer going.Add(-1)
			if seen.Store(max(seen.Load(), now)); now == 2 {
				close(both)
			}
			select {
			case <-both:
			case <-time.After(wait):
			}
			return compile(p, n, options)
		}
		lib, err := gpu.Supply(name, "stand-in", sim.Table())
		if err == nil {
			err = lib.SupplyCompiler("stand-in", tool)
		}
		if err != nil {
			t.Fatal(err)
		}
		d, err := gpu.New(lib)
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				if _, err := d.ModuleCompile(0, testmodule.Image); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if n := seen.Load(); n != most {
			t.Errorf("%s: %d compilations at once, want %d", name, n, most)
		}
	}
}

// Of several compilers the newest one whose programs CUDA's driver loads is taken. For a device that the compiler knows,
// that's one of the driver's major version or earlier. For others, whose program is PTX, it's no newer than the driver.
func TestCompilerForDriver(t *testing.T) {
	for _, c := range []struct {
		driver, capability int32
		compilers          []int32
		want, err          string
	}{
		{12_040, 9, []int32{13_000, 12_020, 12_090}, "NVRTC 12.9 (at 12090) for ", ""},
		{12_040, 12, []int32{13_000, 12_020, 12_090}, "NVRTC 12.2 (at 12020) for ", ""},
		{13_000, 9, []int32{11_020, 13_020, 12_090}, "NVRTC 13.2 (at 13020) for ", ""},
		{11_040, 9, []int32{11_080, 12_000}, "NVRTC 11.8 (at 11080) for ", ""},
		{12_040, 9, []int32{13_000}, "", "the driver, of CUDA 12.4, loads no programs for sm_90 of NVRTC 13.0 (at 13000): " +
			"it must be of CUDA 13.0 or later, or the compiler earlier"},
		{12_040, 12, []int32{12_090}, "", "the driver, of CUDA 12.4, loads no programs for compute_90 of NVRTC 12.9 " +
			"(at 12090): it must be of CUDA 12.9 or later, or the compiler earlier"},
	} {
		t.Run(fmt.Sprint(c.driver, c.capability, c.compilers), func(t *testing.T) {
			sim, err := gputest.New(gputest.Options{Name: "cuda"})
			if err != nil {
				t.Fatal(err)
			}
			defer sim.Close()
			table := ofCapability(sim.Table(), [2]int32{c.capability, 0})
			table.GetVersion = func(v *int32) abi.Result { *v = c.driver; return abi.Success }
			lib, err := gpu.Supply("cuda", "stand-in", table)
			if err != nil {
				t.Fatal(err)
			}
			for _, v := range c.compilers {
				tool := sim.Compiler()
				tool.Version = func(major, minor *int32) abi.Outcome {
					*major, *minor = v/1000, v%1000/10
					return abi.Compiled
				}
				if err := lib.SupplyCompiler(fmt.Sprint("at ", v), tool); err != nil {
					t.Fatal(err)
				}
			}
			d, err := gpu.New(lib)
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			name, err := d.ModuleCompiler(0)
			_, failed := d.ModuleLoad(0, testmodule.Image)
			if c.err == "" {
				if err != nil || failed != nil || !strings.HasPrefix(name, c.want) {
					t.Errorf("%q, %v, %v", name, err, failed)
				}
				return
			}
			for _, err := range []error{err, failed} {
				if !errors.Is(err, driver.ErrUnsupported) || !strings.HasSuffix(err.Error(), c.err) {
					t.Error(err)
				}
			}
		})
	}
}

// ofCapability is a table of a CUDA library whose devices are of a compute capability.
func ofCapability(table abi.Table, capability [2]int32) abi.Table {
	attribute := table.DeviceAttribute
	table.DeviceAttribute = func(v *int32, which int32, dev abi.Device) abi.Result {
		if which == abi.CUDAMajor || which == abi.CUDAMinor {
			*v = capability[which-abi.CUDAMajor]
			return abi.Success
		}
		return attribute(v, which, dev)
	}
	return table
}

// HIP names a device's architecture from ROCm 6 on.
func TestArchitecture(t *testing.T) {
	for name, c := range map[string]struct {
		without []string
		want    string
	}{"cuda": {}, "hip": {want: "gfx942"}, "hip before ROCm 6": {without: []string{"hipGetDevicePropertiesR0600"}}} {
		family, _, _ := strings.Cut(name, " ")
		d, _ := open(t, gputest.Options{Name: family, Without: c.without})
		if p, err := d.Properties(0); err != nil || p.Architecture != c.want {
			t.Errorf("%s: %q, %v", name, p.Architecture, err)
		}
	}
}

// Sources are compiled for the devices that the compiler knows, for later ones by way of the last that it knows, and
// for older ones not at all.
func TestCapability(t *testing.T) {
	for capability, ok := range map[[2]int32]bool{{9, 0}: true, {8, 9}: true, {12, 1}: true, {7, 0}: false} {
		sim, err := gputest.New(gputest.Options{Name: "cuda"})
		if err != nil {
			t.Fatal(err)
		}
		lib, err := gpu.Supply("cuda", "stand-in", ofCapability(sim.Table(), capability))
		if err == nil {
			err = lib.SupplyCompiler("stand-in", sim.Compiler())
		}
		if err != nil {
			t.Fatal(err)
		}
		d, err := gpu.New(lib)
		if err != nil {
			t.Fatal(err)
		}
		p, err := d.Properties(0)
		if err != nil || p.Major != int(capability[0]) || p.Minor != int(capability[1]) {
			t.Errorf("%v: %+v, %v", capability, p, err)
		}
		_, err = d.ModuleLoad(0, testmodule.Image)
		if ok && err != nil || !ok && (!errors.Is(err, driver.ErrUnsupported) || !strings.Contains(err.Error(), "is 70")) {
			t.Errorf("%v: %v", capability, err)
		}
		if err := errors.Join(d.Close(), sim.Close()); err != nil {
			t.Error(err)
		}
	}
}
