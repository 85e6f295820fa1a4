package loader

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/internal/kept"
	"github.com/chorus-comms/chorus/kernel/gemm"
	"github.com/chorus-comms/chorus/kernel/library"
	"github.com/chorus-comms/chorus/kernel/text"
)

// Loader has the loaded kernels of a device. Its methods are safe for concurrent use.
type Loader struct {
	*library.Libraries

	dev       *device.Device
	target    text.Target
	disk      *Disk
	processor Processor
	props     device.Properties

	compilerOnce sync.Once
	compiler     string // empty if the driver gives no images

	mu      sync.RWMutex
	kernels map[text.Spec]*loaded
	ahead   *ahead // nil: kernels are compiled when they're needed

	narrow atomic.Bool // a kernel runs in blocks of fewer threads than it should

	compiled, fromDisk, refused, launched atomic.Int64
}

// Processor is a device whose blocks cores run. The zero value is a GPU.
type Processor struct {
	Cores int
	Lanes int // of a vector of float32
	Local int // bytes of a block's local memory; 0: unknown
}

// Stats are counts of a loader.
type Stats struct {
	Compiled int64 // kernels, without those that were read from the disk
	FromDisk int64
	Refused  int64 // by the compiler, or since there's none; users' functions aren't counted
	Launched int64 // runs

	Multiplied  int64 // products of matrices by a library
	Transformed int64 // Fourier transforms likewise
	Solved      int64 // steps of linear algebra likewise
}

// Stats returns the counts.
func (l *Loader) Stats() Stats {
	return Stats{l.compiled.Load(), l.fromDisk.Load(), l.refused.Load(), l.launched.Load(), l.Multiplied(),
		l.Transformed(), l.Solved()}
}

// loaded is a kernel, or why there is none.
type loaded struct {
	begun atomic.Bool // ahead of its use
	done  atomic.Bool
	once  sync.Once
	f     *device.Function
	err   error
	room  atomic.Int32 // threads that the device has for a block, a power of two, if they are fewer than the spec's
}

// Compiles reports whether a device has loaders: its driver compiles sources.
func Compiles(dev *device.Device) bool {
	_, ok := text.TargetOf(dev.Language())
	return ok
}

// New makes a loader of a device whose driver compiles sources. disk may be nil.
func New(dev *device.Device, disk *Disk) (*Loader, error) {
	t, ok := text.TargetOf(dev.Language())
	if !ok {
		return nil, device.Errorf(device.ErrUnsupported, dev.Name(), "kernels", "the device compiles no sources")
	}
	l := &Loader{Libraries: library.New(dev), dev: dev, target: t, disk: disk, kernels: map[text.Spec]*loaded{},
		props: dev.Properties()}
	if p := l.props; p.Processor {
		l.processor = Processor{max(p.Units, 1), p.Lanes, p.LocalMemory}
	}
	return l, nil
}

// Processor is the device, as kernels are fitted to it.
func (l *Loader) Processor() Processor { return l.processor }

// Offsets is that of the device's properties.
func (l *Loader) Offsets() bool { return l.props.Offsets }

// Takes refuses arguments that are more than the device has room for, where that's known.
func (l *Loader) Takes(args *device.Args) error {
	most := l.props.ArgumentBytes
	if most == 0 {
		return nil
	}
	if n := l.props.SizeOf(args); n > most {
		return device.Errorf(device.ErrUnsupported, l.dev.Name(), "launch", "the arguments have %d bytes, and the device takes "+
			"%d", n, most)
	}
	return nil
}

// As has the loader run kernels in their forms for a processor, or for a GPU. It's called before the loader is used.
func (l *Loader) As(p Processor) { l.processor = p }

// Within has the loader keep to a device's limits of launches, blocks and arguments: those of properties. It's called
// before the loader is used.
func (l *Loader) Within(p device.Properties) {
	l.props.MostBlocks, l.props.MostThreads, l.props.LocalMemory = p.MostBlocks, p.MostThreads, p.LocalMemory
	l.props.ArgumentBytes = p.ArgumentBytes
}

// On a processor a block is work of one core, so that a few large blocks are better than many small ones. Its threads
// are lanes of vectors. A compiler runs a loop for one vector of them after the other, so that more threads than a
// vector has read memory several times, with gaps.
const (
	BlocksOfCore = 16      // for a core
	LeastWork    = 1 << 12 // threads' worth of work in a block
	Lanes        = 16
)

// Fit is a run as it's best for the device. side is that of a product's tiles, where it was tuned and the device takes
// any; or 0.
func (l *Loader) Fit(c *Call, side int) (s text.Spec, grid, block device.Dim) {
	s, grid, block = l.shaped(c, side)
	for l.narrow.Load() && (c.Shape == AnyGrid || c.Shape == AnyThreads || c.Shape == AnyBlock) {
		n := int(l.kernel(s).room.Load())
		if n == 0 {
			break
		}
		if c.Shape != AnyBlock && l.processor.Cores == 0 {
			grid.X = (grid.X*block.X + n - 1) / n
		}
		s.Block, block.X = uint16(n), n
	}
	most := l.props.LaunchLimit(block)
	if c.Shape == AnyGrid {
		grid.X = min(grid.X, most.X)
	}
	s.Part = grid.X > most.X || grid.Y > most.Y || grid.Z > most.Z
	return
}

// shaped is Fit, for a device without limits.
func (l *Loader) shaped(c *Call, side int) (s text.Spec, grid, block device.Dim) {
	s, grid, block = c.Spec, c.Grid, c.Block
	if c.MatrixUnit {
		s.Unit = text.UnitOf(l.target, &l.props, s.Types[s.Outs])
	}
	if side == 0 && s.Unit != text.NoUnit {
		side = gemm.UnitSide(grid, l.props.Units)
	}
	if c.Shape == AnyTiles {
		switch {
		case l.panels(c):
			s, grid = gemm.Packed(s, grid, l.processor.Cores, l.processor.Lanes)
			block = device.Dim{X: 1, Y: 1, Z: 1}
		case side > 0 && side != gemm.Side:
			s, grid = gemm.Tiled(s, grid, side)
		}
		return
	}
	if l.processor.Cores == 0 {
		return
	}
	if c.Shape == AnyGrid || c.Shape == AnyThreads {
		work := min(max(c.Work, 1), LeastWork) * grid.X * block.X / LeastWork
		grid.X = max(1, min(work, grid.X*block.X/Lanes, l.processor.Cores*BlocksOfCore))
	}
	if c.Shape != Fixed {
		block.X = min(block.X, Lanes)
		s.Block, s.Vector = uint16(block.X), true
	}
	return
}

// panels reports whether a product runs in a processor's form.
func (l *Loader) panels(c *Call) bool {
	return l.processor.Cores > 0 && gemm.PackedMemory(c.Spec.Compute) <= l.processor.Local
}

// Cores is how many a processor has, each of which runs a block; 0 of a GPU.
func (l *Loader) Cores() int { return l.processor.Cores }

// Compiled is how many kernels have been compiled, and not read from the disk.
func (l *Loader) Compiled() int { return int(l.compiled.Load()) }

// Function is a kernel, which is generated, compiled and loaded when it's first asked for. A source that doesn't
// compile, or that no compiler takes, is a [*CompileError], then and each time.
func (l *Loader) Function(s text.Spec) (*device.Function, error) {
	k := l.kernel(s)
	k.once.Do(func() {
		defer k.done.Store(true)
		if k.f, k.err = l.load(s); k.err == nil {
			k.err = l.fits(k, s)
		}
	})
	return k.f, k.err
}

// errRoom is the cause of the error of a kernel whose blocks the device can't run.
var errRoom = errors.New("a block of it needs more than the device has")

// fits refuses a kernel that takes too many registers for its block's threads, or too much local memory.
func (l *Loader) fits(k *loaded, s text.Spec) error {
	a, err := k.f.Attributes()
	if err != nil {
		return err
	}
	if local := l.props.LocalMemory; local > 0 && a.SharedBytes > local {
		l.refused.Add(1)
		return &CompileError{Spec: s, Log: fmt.Sprintf("%v: %d bytes of local memory, of %d", errRoom, a.SharedBytes, local),
			cause: errRoom}
	}
	if a.MaxThreads <= 0 || int(s.Block) <= a.MaxThreads {
		return nil
	}
	n := int32(1)
	for n*2 <= int32(a.MaxThreads) {
		n *= 2
	}
	k.room.Store(n)
	l.narrow.Store(true)
	l.refused.Add(1)
	return &CompileError{Spec: s, Log: fmt.Sprintf("%v: %d threads, of %d", errRoom, s.Block, a.MaxThreads), cause: errRoom}
}

// kernel is the one of a spec, which may be neither compiled nor loaded yet.
func (l *Loader) kernel(s text.Spec) *loaded {
	l.mu.RLock()
	k := l.kernels[s]
	l.mu.RUnlock()
	if k == nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		if k = l.kernels[s]; k == nil {
			k = &loaded{}
			l.kernels[s] = k
		}
	}
	return k
}

// Run enqueues the calls of a plan on a stream of the device, after all their kernels are loaded: one that doesn't
// compile leaves none of them enqueued.
func (l *Loader) Run(s *device.Stream, calls []Call) error {
	if len(calls) > 1 || l.ahead != nil {
		if err := l.Prepare(s, calls); err != nil {
			return err
		}
	}
	for k := range calls {
		if err := l.run(s, &calls[k]); err != nil {
			return err
		}
	}
	return nil
}

// run enqueues a run: of a library, or of a kernel.
func (l *Loader) run(s *device.Stream, c *Call) error {
	if c.Tunable {
		side := l.tuned(s, c)
		if side > 0 {
			err := l.launch(s, c, side)
			if _, refused := errors.AsType[*CompileError](err); !refused || side == gemm.Side {
				return err
			}
		}
	}
	if done, err := l.Do(s, &c.Library); done || err != nil {
		return err
	}
	return l.launch(s, c, 0)
}

// launch enqueues a run of a kernel, which has a product's tiles of a side, or 0.
func (l *Loader) launch(s *device.Stream, c *Call, side int) error {
	spec, grid, block := l.Fit(c, side)
	f, err := l.Function(spec)
	for errors.Is(err, errRoom) { // a smaller block may do
		large := spec
		if spec, grid, block = l.Fit(c, side); spec == large {
			return err
		}
		f, err = l.Function(spec)
	}
	if err != nil {
		return err
	}
	how := device.Launch{Grid: grid, Block: block, Args: &c.Args, Elements: c.Elements}
	if spec.Part {
		err = l.launchParts(s, f, how)
	} else {
		err = s.LaunchFunction(f, how)
	}
	if err != nil {
		return fmt.Errorf("%v: %w", c.Spec, err)
	}
	l.launched.Add(1)
	return nil
}

// launchParts enqueues a run of more blocks than a launch may have.
func (l *Loader) launchParts(s *device.Stream, f *device.Function, whole device.Launch) error {
	most, all := l.props.LaunchLimit(whole.Block), whole.Grid
	for z := 0; z < all.Z; z += most.Z {
		for y := 0; y < all.Y; y += most.Y {
			for x := 0; x < all.X; x += most.X {
				part := whole
				part.Grid = device.Dim{X: min(most.X, all.X-x), Y: min(most.Y, all.Y-y), Z: min(most.Z, all.Z-z)}
				first := new(device.Args).Int64(int64(x)).Int64(int64(y)).Int64(int64(z)).Int64(int64(all.X))
				part.Args = whole.Args.Behind(first)
				if err := s.LaunchFunction(f, part); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// load reads a kernel from the disk, or compiles it.
func (l *Loader) load(s text.Spec) (*device.Function, error) {
	src, err := s.Source()
	if err != nil {
		return nil, err
	}
	source := []byte(src.For(l.target))
	image, key, err := l.image(source)
	if err == nil {
		end := func() {}
		if l.disk == nil || l.compiler == "" {
			end = Compiling.begin() // it's the source
		}
		var m *device.Module
		m, err = l.dev.LoadModule(image)
		end()
		if err != nil && key != nil && !errors.Is(err, device.ErrOutOfMemory) { // another driver, or a damaged file
			l.disk.remove(*key)
			if image, key, err = l.image(source); err == nil {
				m, err = l.dev.LoadModule(image)
			}
		}
		if err == nil {
			if key == nil {
				l.compiled.Add(1)
			}
			return m.Function(src.Entry)
		}
	}
	if errors.Is(err, device.ErrInvalidArgument) || errors.Is(err, device.ErrUnsupported) {
		if !text.IsUser(s.Op) {
			l.refused.Add(1)
		}
		return nil, &CompileError{Spec: s, Source: string(source), Log: err.Error(), cause: err}
	}
	return nil, err
}

// image is what to load for a source: the source itself if the driver gives no images, or there is no disk. The key is
// of an image that the disk had.
func (l *Loader) image(source []byte) (image []byte, key *kept.Key, err error) {
	l.compilerOnce.Do(func() {
		if name, err := l.dev.Compiler(); err == nil {
			l.compiler = l.target.String() + " " + name
		}
	})
	if l.disk == nil || l.compiler == "" {
		return source, nil, nil
	}
	k := kept.KeyOf(l.compiler, source)
	if image, ok := l.disk.get(k); ok {
		l.fromDisk.Add(1)
		return image, &k, nil
	}
	defer Compiling.begin()()
	if image, err = l.dev.Compile(source); err == nil {
		l.disk.put(k, image)
	}
	return image, nil, err
}
