package opencl

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/chorus-comms/chorus/config"
	"github.com/chorus-comms/chorus/device"
)

// A driver may crash or hang in its compiler. Where there's a command whose process has this package, each source is
// compiled there: CHORUS_OPENCL_COMPILER, or the one of CompileApart. A source that has ended a process is remembered in
// the user's cache, by source, device and driver version, so that it ends no other one.

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

// probe is compiled before anything else, so that a driver that compiles nothing is known after one process.
const probe = "kernel void probe(global int *p) { p[get_global_id(0)] = 1; }\n"

// apart is the program of a source that another process has compiled; nil without error if this process shall compile.
// With keep, the program is kept in a file for the next time.
func (b *dev) apart(op string, source []byte, options string, keep bool) ([]byte, error) {
	where, err := placeToCompile()
	if err != nil || len(where.command) == 0 {
		return nil, err
	}
	if !b.probed.Load() {
		a, kept, err := b.ask(where, []byte(probe), options, true)
		if err != nil {
			return nil, b.without(op, where, err)
		}
		if a.Error != "" && a.Code == 0 {
			return nil, b.refused(op, a, kept)
		}
		b.probed.Store(true)
	}
	a, kept, err := b.ask(where, source, options, keep)
	if err != nil {
		return nil, b.without(op, where, err)
	}
	return a.Program, b.refused(op, a, kept)
}

// without is the error of a command that can't be used, if the user has named it.
func (b *dev) without(op string, where place, err error) error {
	if where.named {
		return device.Errorf(device.ErrUnsupported, b.name, op, "CHORUS_OPENCL_COMPILER: %w", err)
	}
	return nil
}

// refused is the error that an answer is; nil if it's a program.
func (b *dev) refused(op string, a answer, kept string) error {
	switch {
	case a.Code != 0:
		return device.Errorf(device.ErrInvalidArgument, b.name, op, "%w", &CompileError{Log: a.Error, Code: a.Code})
	case a.Error == "":
		return nil
	case kept != "":
		return device.Errorf(device.ErrUnsupported, b.name, op, "%s (kept in %s, until the driver's version changes)",
			a.Error, kept)
	}
	return device.Errorf(device.ErrUnsupported, b.name, op, "%s", a.Error)
}

// ask is the answer to a source: of a file, whose path it returns, else of the process.
func (b *dev) ask(where place, source []byte, options string, keep bool) (answer, string, error) {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%s\x00%s\x00%s", b.place, b.props.Name, b.driver, options, source))
	kept := ""
	if folder, err := os.UserCacheDir(); err == nil {
		kept = filepath.Join(folder, "chorus", "opencl", fmt.Sprintf("%x", sum))
		if a, err := readAnswer(kept); err == nil && (a.Error != "" || keep) {
			return a, kept, nil
		}
	}
	q := request{Library: b.place, Options: options, Source: source,
		Platform: slices.Index(b.platforms, b.space.platform), Device: slices.Index(b.deviceIDs(b.space.platform), b.id)}
	a, err := b.away.compile(where.command, &q)
	if err != nil {
		return a, "", err
	}
	if kept == "" || a.passing || a.Error == "" && !keep || !keepAnswer(kept, a) {
		kept = ""
	}
	return a, kept, nil
}

func readAnswer(path string) (a answer, err error) {
	data, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(data, &a)
	}
	if err == nil && len(a.Program) == 0 && a.Error == "" {
		err = errors.New("neither a program nor an error")
	}
	return a, err
}

// keepAnswer writes a file whole or not at all, so that several processes may do it at once. Without it, the source is
// compiled again the next time.
func keepAnswer(path string, a answer) bool {
	data, err := json.Marshal(a)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o700)
	}
	if err != nil {
		return false
	}
	f, err := os.CreateTemp(filepath.Dir(path), "new-*")
	if err != nil {
		return false
	}
	_, err = f.Write(data)
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err == nil
}
