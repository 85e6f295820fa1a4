package kernel

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/chorus-comms/chorus/device"
)

// Loader has the loaded kernels of a device. Its methods are safe for concurrent use.
type Loader struct {
	dev    *device.Device
	target Target
	disk   *Disk

	compilerOnce sync.Once
	compiler     string // empty if the driver gives no images

	mu      sync.RWMutex
	kernels map[Spec]*loaded

	compiled atomic.Int64
}

// loaded is a kernel, or why there is none.
type loaded struct {
	once sync.Once
	f    *device.Function
	err  error
}

// NewLoader makes a loader of a device whose driver compiles sources. disk may be nil.
func NewLoader(dev *device.Device, disk *Disk) (*Loader, error) {
	t, ok := TargetOf(dev.Runtime().Name())
	if !ok {
		return nil, device.Errorf(device.ErrUnsupported, dev.Name(), "kernels", "the device compiles no sources")
	}
	return &Loader{dev: dev, target: t, disk: disk, kernels: map[Spec]*loaded{}}, nil
}

// Compiled is how many kernels have been compiled, and not read from the disk.
func (l *Loader) Compiled() int { return int(l.compiled.Load()) }

// Function is a kernel, which is generated, compiled and loaded when it's first asked for. A source that doesn't
// compile is a [*CompileError], then and each time.
func (l *Loader) Function(s Spec) (*device.Function, error) {
	l.mu.RLock()
	k := l.kernels[s]
	l.mu.RUnlock()
	if k == nil {
		l.mu.Lock()
		if k = l.kernels[s]; k == nil {
			k = &loaded{}
			l.kernels[s] = k
		}
		l.mu.Unlock()
	}
	k.once.Do(func() { k.f, k.err = l.load(s) })
	return k.f, k.err
}

// Run enqueues a plan's runs on a stream of the device.
func (l *Loader) Run(s *device.Stream, p *Plan) error {
	for k := range p.Calls {
		c := &p.Calls[k]
		f, err := l.Function(c.Spec)
		if err != nil {
			return err
		}
		if err := s.LaunchFunction(f, device.Launch{Grid: c.Grid, Block: c.Block, Args: &c.Args}); err != nil {
			return fmt.Errorf("%v: %w", c.Spec, err)
		}
	}
	return nil
}

// load reads a kernel from the disk, or compiles it.
func (l *Loader) load(s Spec) (*device.Function, error) {
	src, err := s.Source()
	if err != nil {
		return nil, err
	}
	text := []byte(src.For(l.target))
	image, key, err := l.image(text)
	if err == nil {
		var m *device.Module
		m, err = l.dev.LoadModule(image)
		if err != nil && key != nil && !errors.Is(err, device.ErrOutOfMemory) { // another driver, or a damaged file
			l.disk.remove(*key)
			if image, _, err = l.image(text); err == nil {
				m, err = l.dev.LoadModule(image)
			}
		}
		if err == nil {
			return m.Function(src.Entry)
		}
	}
	if errors.Is(err, device.ErrInvalidArgument) {
		return nil, &CompileError{Spec: s, Source: string(text), Log: err.Error(), cause: err}
	}
	return nil, err
}

// image is what to load for a source: the source itself if the driver gives no images, or there is no disk. The key is
// of an image that the disk had.
func (l *Loader) image(text []byte) (image []byte, key *diskKey, err error) {
	l.compilerOnce.Do(func() {
		if name, err := l.dev.Compiler(); err == nil {
			l.compiler = l.target.String() + " " + name
		}
	})
	if l.disk == nil || l.compiler == "" {
		l.compiled.Add(1)
		return text, nil, nil
	}
	k := newDiskKey(l.compiler, text)
	if image, ok := l.disk.get(k); ok {
		return image, &k, nil
	}
	l.compiled.Add(1)
	if image, err = l.dev.Compile(text); err == nil {
		l.disk.put(k, image)
	}
	return image, nil, err
}
