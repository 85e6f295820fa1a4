package opencl

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/chorus-comms/chorus/config"
	"github.com/chorus-comms/chorus/device/driver"
	"github.com/chorus-comms/chorus/internal/kept"
	"github.com/chorus-comms/chorus/internal/plain"
)

// A driver may crash or hang in its compiler. Where there's a command whose process has this package, each source is
// compiled there: CHORUS_OPENCL_COMPILER, or the one of CompileApart. Programs are kept in the user's cache. Nothing
// else is: a compiler that was killed, had no memory, no room for its files or not enough time may compile the source
// the next time, and says the same as one that can't.

// host is the command of CompileApart.
var host atomic.Pointer[[]string]

// CompileApart has another process compile sources from now on: that of the command, whose program imports this package
// and so does nothing else. If the process can't be started, or can't use the device, this one compiles. It's for a
// host that knows such a command, as Python does. CHORUS_OPENCL_COMPILER goes before it.
func CompileApart(command ...string) {
	command = slices.Clone(command)
	host.Store(&command)
}

// A place for compilation: which command, and whether the user named it, so that this process may not do without.
type place struct {
	command []string
	named   bool
}

func placeToCompile() (place, error) {
	c, err := config.Load(nil)
	if err != nil {
		return place{}, err
	}
	switch command := strings.Fields(c.OpenCLCompiler); {
	case len(command) == 0:
		if h := host.Load(); h != nil {
			return place{command: *h}, nil
		}
		return place{}, nil
	case command[0] == "none":
		return place{}, nil
	case command[0] == "self":
		command[0], err = os.Executable()
		return place{command, true}, err
	default:
		return place{command, true}, nil
	}
}

// probeSource is compiled before anything else, so that a driver that compiles nothing is known after one process.
const probeSource = "kernel void probe(global int *p) { p[get_global_id(0)] = 1; }\n"

// apart is the program of a source that another process has compiled; nil without error if this process shall compile.
func (b *dev) apart(op string, where place, source []byte, options string) ([]byte, error) {
	if len(where.command) == 0 {
		return nil, nil
	}
	unfit, err := b.probe(op, where)
	if err != nil {
		return nil, b.without(op, where, err)
	}
	if unfit != nil {
		return nil, unfit
	}
	a, err := b.ask(where, source, options)
	if err != nil {
		return nil, b.without(op, where, err)
	}
	return a.Program, b.refused(op, a)
}

// probe compiles a source before anything else. unfit is the answer, as long as this process lasts, of a compiler that
// doesn't even end. The error says why there's no process that could compile.
func (b *dev) probe(op string, where place) (unfit, err error) {
	b.probing.Lock()
	defer b.probing.Unlock()
	if b.probed {
		return b.unfit, nil
	}
	a, err := b.ask(where, []byte(probeSource), b.options())
	if err != nil {
		return nil, err
	}
	b.probed = true
	if a.Code == 0 {
		b.unfit = b.refused(op, a)
	}
	return b.unfit, nil
}

// keptPrograms has those of sources that were loaded before; nil if there's no place for them.
func keptPrograms() *kept.Folder {
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil
	}
	return kept.Open(filepath.Join(cache, "chorus", "opencl"))
}

// programKey is the key of a source's program there.
func (b *dev) programKey(source []byte, options string) kept.Key {
	return kept.KeyOf(strings.Join([]string{b.place, b.Props.Name, b.driver, options}, "\x00"), source)
}

// without is the error of a command that can't be used, if the user has named it.
func (b *dev) without(op string, where place, err error) error {
	if where.named {
		return driver.Errorf(driver.ErrUnsupported, b.Name, op, "CHORUS_OPENCL_COMPILER: %w", err)
	}
	return nil
}

// refused is the error that an answer is; nil if it's a program.
func (b *dev) refused(op string, a answer) error {
	switch {
	case a.Code != 0:
		return driver.Errorf(driver.ErrInvalidArgument, b.Name, op, "%w", &CompileError{Log: a.Error, Code: a.Code})
	case a.Error == "":
		return nil
	}
	return driver.Errorf(driver.ErrUnsupported, b.Name, op, "%s", plain.Text(a.Error))
}

// ask is the answer of a process to a source.
func (b *dev) ask(where place, source []byte, options string) (answer, error) {
	a, err := b.away.compile(where.command, &request{Library: b.place, Options: options, Source: source,
		Platform: slices.Index(b.platforms, b.space.platform), Device: slices.Index(b.deviceIDs(b.space.platform), b.id)})
	if err == nil && a.Error == "" && len(a.Program) == 0 {
		a.Error = "the process that compiles has given neither a program nor an error"
	}
	return a, err
}
