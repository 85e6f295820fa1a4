package device_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/device/accinte"
	"github.com/chorus-comms/chorus/device/cpu"
)

// register makes an emulated accelerator known under a name for the time of a test.
func register(t *testing.T, name string, load func() (device.Driver, error)) {
	t.Helper()
	device.RegisterLoader(name, load)
	t.Cleanup(func() {
		if err := device.Unregister(name); err != nil {
			t.Error(err)
		}
	})
}

func emulated() (device.Driver, error) {
	return accinte.New(accinte.Options{MemoryBytes: 16 << 20, Devices: 2})
}

func refused(t *testing.T, err error, kind device.Kind, words ...string) {
	t.Helper()
	if !errors.Is(err, kind) {
		t.Errorf("%v, want the error %q", err, kind)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%q lacks %q", err, w)
		}
	}
}

func second[T any](_ T, err error) error { return err }

func TestNames(t *testing.T) {
	register(t, "npu_a", emulated)
	register(t, "npu_b", emulated)
	if got := device.Types(); !slices.Contains(got, "npu_a") || !slices.Contains(got, "npu_b") || !slices.Contains(got,
		"accinte") || !slices.Contains(got, "cpu") {
		t.Errorf("types %v", got)
	}
	a, err := device.Get("npu_a:1")
	if err != nil {
		t.Fatal(err)
	}
	b, err := device.Get("npu_b")
	if err != nil {
		t.Fatal(err)
	}
	if a.Name() != "npu_a:1" || b.Name() != "npu_b:0" || a.Runtime() == b.Runtime() {
		t.Errorf("%v and %v", a, b)
	}
	if again, err := device.Get("npu_a:1"); again != a || err != nil {
		t.Errorf("the device is another one the second time: %v, %v", again, err)
	}

	refused(t, second(device.Get("npu_a:2")), device.ErrWrongDevice,
		"The device index is out of range. It must be in [0, 2), but got 2.")
	refused(t, second(device.Get("tpu")), device.ErrNoDevice, "Expected one of ",
		"npu_a, npu_b device type at start of device string: tpu")
	for _, bad := range []string{"", "npu_a:", "npu_a:x", "npu_a:-1", "npu_a:01", "NPU", "a b", "1a", ":1"} {
		refused(t, second(device.Get(bad)), device.ErrInvalidArgument)
	}
	refused(t, device.Register("npu_a", cpu.New()), device.ErrInvalidArgument,
		"The runtime module of 'npu_a' has already been registered")
	refused(t, device.Register("Npu", cpu.New()), device.ErrInvalidArgument)
	refused(t, device.Register("npu_c", nil), device.ErrInvalidArgument)
	refused(t, device.Unregister("tpu"), device.ErrNoDevice)

	// Renaming: once, the same again is fine, and the first name stays good.
	for range 2 {
		if err := device.Rename("npu_a", "mine"); err != nil {
			t.Fatal(err)
		}
	}
	refused(t, device.Rename("npu_a", "yours"), device.ErrInvalidArgument, "has already been set", "Current backend: mine")
	refused(t, device.Rename("npu_b", "mine"), device.ErrInvalidArgument)
	refused(t, device.Rename("npu_b", "Yours!"), device.ErrInvalidArgument)
	refused(t, device.Rename("tpu", "yours"), device.ErrNoDevice)
	if a.Name() != "mine:1" {
		t.Errorf("a device that was there before is called %v", a)
	}
	for _, name := range []string{"mine:1", "npu_a:1"} {
		if d, err := device.Get(name); d != a || err != nil {
			t.Errorf("%s is %v, %v", name, d, err)
		}
	}
}

func TestLoading(t *testing.T) {
	cause := errors.New("libnpu.so.3: cannot open shared object file")
	loads := 0
	register(t, "broken", func() (device.Driver, error) { loads++; return nil, cause })
	for range 2 {
		_, err := device.Get("broken:0")
		refused(t, err, device.ErrLoad, "broken", "libnpu.so.3")
		if !errors.Is(err, cause) {
			t.Errorf("%v doesn't wrap its cause", err)
		}
	}
	if loads != 1 {
		t.Errorf("loaded %d times", loads)
	}
	refused(t, second(device.Load("broken")), device.ErrLoad)
	if loads != 2 {
		t.Error("Load doesn't try again")
	}
	register(t, "panics", func() (device.Driver, error) { panic("on purpose") })
	refused(t, second(device.Open("panics")), device.ErrLoad, "on purpose")
	register(t, "nothing", func() (device.Driver, error) { return nil, nil })
	refused(t, second(device.Open("nothing")), device.ErrLoad)
}

func TestAutoloadIsSwitchedOff(t *testing.T) {
	t.Setenv("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")
	register(t, "late", emulated)
	refused(t, second(device.Get("late")), device.ErrLoad, "TORCH_DEVICE_BACKEND_AUTOLOAD", "device.Load")
	rt, err := device.Load("late")
	if err != nil || rt.Count() != 2 {
		t.Fatal(rt, err)
	}
	if d, err := device.Get("late:1"); err != nil || d.Runtime() != rt {
		t.Errorf("after Load: %v, %v", d, err)
	}
}

// uncountable is a driver that doesn't know its devices.
type uncountable struct{ device.Driver }

func (uncountable) DeviceCount() (int, error) { return 0, errors.New("the bus is down") }

func TestAccelerator(t *testing.T) {
	register(t, "downed", func() (device.Driver, error) { return uncountable{cpu.New()}, nil })
	rt, err := device.Open("downed")
	if err != nil || rt.Available() || rt.Err() == nil {
		t.Errorf("a driver that can't count: %v, %v", rt, err)
	}
	refused(t, second(rt.Device(0)), device.ErrWrongDevice)

	rt, err = device.Accelerator()
	if err != nil || rt.Name() != "accinte" {
		t.Fatalf("the accelerator is %v, %v", rt, err)
	}
}
