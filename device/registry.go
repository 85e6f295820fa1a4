package device

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/chorus-comms/chorus/config"
	"github.com/chorus-comms/chorus/device/driver"
)

// entry is a registered type of device.
type entry struct {
	first   string // the name it was registered under, which stays good
	name    string // the name it goes by
	renamed bool
	load    func() (Driver, error)

	mu  sync.Mutex // held while loading
	rt  *Runtime
	err error
}

var registry struct {
	sync.RWMutex
	list []*entry // in the order of registration
	// separate are the loaded types with memory that the host can't touch; the slice is never changed.
	separate atomic.Pointer[[]*Runtime]
}

func (e *entry) called(name string) bool { return name == e.name || name == e.first }

// lookup finds an entry by either of its names. The lock is held.
func lookup(name string) *entry {
	for _, e := range registry.list {
		if e.called(name) {
			return e
		}
	}
	return nil
}

// Register makes a driver's devices available under a name: lower-case letters, digits and underscores. A name
// can be taken once.
func Register(name string, drv Driver) error {
	if drv == nil {
		return Errorf(ErrInvalidArgument, name, "register", "no driver")
	}
	return register(name, func() (Driver, error) { return drv, nil })
}

// RegisterLoader is Register for the init function of a package: load is called when a device of that name is asked for
// the first time ([Get]), or by [Load]. If it fails, callers that name the device get its error. It panics if the name
// is taken.
func RegisterLoader(name string, load func() (Driver, error)) {
	if err := register(name, load); err != nil {
		panic(err)
	}
}

func register(name string, load func() (Driver, error)) error {
	if err := checkName(name); err != nil {
		return err
	}
	registry.Lock()
	defer registry.Unlock()
	if e := lookup(name); e != nil {
		return Errorf(ErrInvalidArgument, name, "register", "The runtime module of '%s' has already been registered", name)
	}
	registry.list = append(registry.list, &entry{first: name, name: name, load: load})
	return nil
}

func checkName(name string) error {
	ok := name != "" && (name[0] < '0' || name[0] > '9')
	for i := range len(name) {
		c := name[i]
		ok = ok && (c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '_')
	}
	if !ok {
		return Errorf(ErrInvalidArgument, "", "register",
			"%q is no name for a type of device: want lower-case letters, digits and underscores", name)
	}
	return nil
}

// Unregister forgets a type of device, whose driver is closed if it can be. Devices of it must not be in use any more.
func Unregister(name string) error {
	registry.Lock()
	e := lookup(name)
	registry.list = slices.DeleteFunc(registry.list, func(o *entry) bool { return o == e })
	registry.Unlock()
	if e == nil {
		return unknown(name)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.rt == nil {
		return nil
	}
	registry.Lock()
	if old := registry.separate.Load(); old != nil {
		list := slices.DeleteFunc(slices.Clone(*old), func(rt *Runtime) bool { return rt == e.rt })
		registry.separate.Store(&list)
	}
	registry.Unlock()
	err := e.rt.close()
	if c, ok := e.rt.drv.(driver.Closer); ok {
		err = errors.Join(err, c.Close())
	}
	return err
}

// Rename lets a type of device go by another name, as torch.utils.rename_privateuse1_backend does: once. The same name
// again is fine, another is an error. The name under which it was registered keeps working.
func Rename(from, to string) error {
	if err := checkName(to); err != nil {
		return err
	}
	registry.Lock()
	defer registry.Unlock()
	e := lookup(from)
	if e == nil {
		return unknown(from)
	}
	if e.name == to && e.renamed {
		return nil
	}
	if e.renamed {
		return Errorf(ErrInvalidArgument, from, "rename",
			"The name of this backend has already been set! Current backend: %s", e.name)
	}
	if o := lookup(to); o != nil && o != e {
		return Errorf(ErrInvalidArgument, from, "rename", "Cannot rename to '%s', which is another registered device", to)
	}
	e.name, e.renamed = to, true
	if e.mu.TryLock() { // a Runtime that is being loaded takes the name at its end
		defer e.mu.Unlock()
		if e.rt != nil {
			e.rt.rename(to)
		}
	}
	return nil
}

// packages are where this module's devices are, which register when they are imported.
var packages = map[string]string{"accinte": "accinte", "cuda": "gpu", "hip": "gpu", "accl": "accl", "cpu": "cpu"}

// unknown is the error for a name that isn't registered, in PyTorch's words, and with the import that would register
// it.
func unknown(name string) error {
	advice := ""
	if p, ours := packages[name]; ours {
		advice = fmt.Sprintf("; it registers when its package is imported: import _ %q",
			"github.com/chorus-comms/chorus/device/"+p)
	}
	return Errorf(ErrNoDevice, "", "", "Expected one of %s device type at start of device string: %s%s",
		strings.Join(types(), ", "), name, advice)
}

// types lists the names. The lock is held.
func types() []string {
	names := make([]string, len(registry.list))
	for i, e := range registry.list {
		names[i] = e.name
	}
	return names
}

// Types lists the names of the registered types of device, loaded or not, in the order of their registration.
func Types() []string {
	registry.RLock()
	defer registry.RUnlock()
	return types()
}

// Open returns the runtime of a type of device, loading its driver if that has not been done yet. A driver that can't
// be loaded is [ErrLoad] with the cause, each time. TORCH_DEVICE_BACKEND_AUTOLOAD=0 leaves loading to [Load].
func Open(name string) (*Runtime, error) { return open(name, false) }

// Load loads the driver of a type of device now, also if it is not to be done by itself, or has failed before.
func Load(name string) (*Runtime, error) { return open(name, true) }

func open(name string, explicit bool) (*Runtime, error) {
	registry.RLock()
	e := lookup(name)
	var err error
	if e == nil {
		err = unknown(name)
	}
	registry.RUnlock()
	if err != nil {
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.rt != nil || e.err != nil && !explicit {
		return e.rt, e.err
	}
	if !explicit {
		cfg, err := config.Load(nil)
		if err != nil {
			return nil, Errorf(ErrLoad, name, "load", "%w", err)
		}
		if !cfg.DeviceAutoload {
			return nil, Errorf(ErrLoad, name, "load",
				"the device is registered, but not loaded, since TORCH_DEVICE_BACKEND_AUTOLOAD is off: call device.Load")
		}
	}
	e.rt, e.err = nil, nil
	drv, err := e.tryLoad()
	if err != nil {
		e.err = Errorf(ErrLoad, name, "load", "the driver of the device could not be loaded: %w", err)
		return nil, e.err
	}
	registry.Lock()
	defer registry.Unlock()
	e.rt = newRuntime(e.name, drv)
	if slices.ContainsFunc(e.rt.devices, func(d *Device) bool { return !d.props.HostAccess }) {
		list := []*Runtime{e.rt}
		if old := registry.separate.Load(); old != nil {
			list = slices.Concat(*old, list)
		}
		registry.separate.Store(&list)
	}
	return e.rt, nil
}

func (e *entry) tryLoad() (drv Driver, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	drv, err = e.load()
	if err == nil && drv == nil {
		err = errors.New("the loader returned no driver")
	}
	return drv, err
}

// Get returns a device by name and index, such as "accinte:1". Without an index it is the first.
func Get(spec string) (*Device, error) {
	name, index, err := Parse(spec)
	if err != nil {
		return nil, err
	}
	rt, err := Open(name)
	if err != nil {
		return nil, err
	}
	return rt.Device(max(index, 0))
}

// Parse splits a device's name, such as "accinte:1", into type and index, -1 if there is none.
func Parse(spec string) (name string, index int, err error) {
	name, text, found := strings.Cut(spec, ":")
	if !found {
		return name, -1, checkName(name)
	}
	index, err = strconv.Atoi(text)
	if err != nil || index < 0 || text != strconv.Itoa(index) {
		return "", 0, Errorf(ErrInvalidArgument, "", "", "Invalid device string: '%s'", spec)
	}
	return name, index, checkName(name)
}

// loaded returns the runtimes that are loaded.
func loaded() []*Runtime {
	registry.RLock()
	list := slices.Clone(registry.list)
	registry.RUnlock()
	var rts []*Runtime
	for _, e := range list {
		e.mu.Lock()
		if e.rt != nil {
			rts = append(rts, e.rt)
		}
		e.mu.Unlock()
	}
	return rts
}
