package opencl

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/chorus-comms/chorus/device/driver"
	"github.com/chorus-comms/chorus/device/opencl/abi"
	"github.com/chorus-comms/chorus/device/opencl/compiler"
	"github.com/chorus-comms/chorus/internal/kept"
	"github.com/chorus-comms/chorus/internal/plain"
)

// CompileError is what a compiler says of a source.
type CompileError = compiler.Error

// CompileApart has another process compile sources from now on; see [compiler.Apart].
func CompileApart(command ...string) { compiler.Apart(command...) }

// Programs are kept in the user's cache. Errors aren't: a compiler that was killed, had no memory, no room for its files
// or not enough time may compile the source the next time, and says the same as one that can't. The exception is a
// source with offsets, if the compiler refuses it and then compiles the source as it is. That is done from then on.

// ModuleCompiler is [driver.Compiler].ModuleCompiler.
func (d *Driver) ModuleCompiler(dev int) (string, error) {
	const op = "name the compiler"
	b, err := d.dev(op, dev)
	if err != nil {
		return "", err
	}
	if !b.compiler {
		return "", driver.Errorf(driver.ErrUnsupported, b.Name, op, "the device's driver gives no programs of sources (%v)",
			b.Library)
	}
	pointers := ""
	if b.svm == 0 {
		pointers = " with offsets"
	}
	return b.Library.String() + " " + b.driver + pointers + " for " + b.Props.Name + " " + b.options(), nil
}

// ModuleCompile is [driver.Compiler].ModuleCompile.
func (d *Driver) ModuleCompile(dev int, source []byte) ([]byte, error) {
	const op = "compile a source"
	b, err := d.dev(op, dev)
	if err != nil {
		return nil, err
	}
	if !sourceOf(source) {
		return nil, driver.Errorf(driver.ErrInvalidArgument, b.Name, op, "%d bytes that aren't text", len(source))
	}
	if !b.compiler {
		return nil, b.noCompiler(op)
	}
	where, err := compiler.Where()
	if err != nil {
		return nil, err
	}
	m, err := inForms(b, source, func(text []byte, offsets bool) (*image, bool, error) {
		m, err := b.imageOfSource(op, where, text)
		if err == nil && offsets {
			m.Kernels, m.Offsets = withoutOffsets(m.Kernels)
		}
		return m, err == nil && m.Offsets, err
	})
	if err != nil {
		return nil, err
	}
	if b.svm == 0 && !m.Offsets {
		m.Source = source
	}
	return m.encode()
}

// inForms makes something of a source. It's the text with offsets if the device needs that, the compiler takes it, and
// all kernels then have offsets, as f reports. Otherwise it's the source as it is.
func inForms[T any](b *dev, source []byte, f func(text []byte, offsets bool) (T, bool, error)) (T, error) {
	text, ok := b.withOffsets(source)
	var refused error
	if ok {
		x, takes, err := f(text, true)
		if _, wrong := errors.AsType[*CompileError](err); takes || err != nil && !wrong {
			return x, err
		}
		refused = err
	}
	x, _, err := f(source, false)
	if err == nil {
		b.keepRefusal(text, refused)
	}
	return x, err
}

// imageOfSource has a source compiled.
func (b *dev) imageOfSource(op string, where compiler.Place, source []byte) (*image, error) {
	data, err := b.compiledApart(op, where, source, b.options())
	if err != nil {
		return nil, err
	}
	if data != nil {
		return parseImage(data)
	}
	h, err := b.make(op, source, b.options())
	if err != nil {
		return nil, err
	}
	defer b.ProgramFree(h)
	m, err := b.imageOf(h)
	if err != nil {
		return nil, driver.Errorf(driver.ErrUnsupported, b.Name, op, "%w", err)
	}
	return m, nil
}

// probeSource is compiled before anything else, so that a driver that compiles nothing is known after one process.
const probeSource = "kernel void probe(global int *p) { p[get_global_id(0)] = 1; }\n"

// compiledApart is the image of a source that another process has compiled; nil without error if this process shall
// compile.
func (b *dev) compiledApart(op string, where compiler.Place, source []byte, options string) ([]byte, error) {
	if len(where.Command) == 0 {
		return nil, nil
	}
	unfit, err := b.probe(op, where)
	if err != nil {
		return nil, b.without(op, where, err)
	}
	if unfit != nil {
		return nil, unfit
	}
	a, err := b.answer(where, source, options)
	if err != nil {
		return nil, b.without(op, where, err)
	}
	return a.Program, b.refused(op, a)
}

// probe compiles a source before anything else. unfit is the answer, as long as this process lasts, of a compiler that
// doesn't even end. The error says why there's no process that could compile.
func (b *dev) probe(op string, where compiler.Place) (unfit, err error) {
	b.probing.Lock()
	defer b.probing.Unlock()
	if b.probed {
		return b.unfit, nil
	}
	a, err := b.answer(where, []byte(probeSource), b.options())
	if err != nil {
		return nil, err
	}
	b.probed = true
	if a.Code == 0 {
		b.unfit = b.refused(op, a)
	}
	return b.unfit, nil
}

// refusal is kept in place of a program, under a key of its own.
var refusal = []byte("refused")

func (b *dev) refusalKey(text []byte) kept.Key { return b.programKey(text, b.options()+" refused") }

// keepRefusal notes that the compiler has refused a source with offsets, if the error is one in the source.
func (b *dev) keepRefusal(text []byte, err error) {
	e, is := errors.AsType[*CompileError](err)
	if files := keptPrograms(); files != nil && is && e.Code == abi.BuildProgramFailure {
		_ = files.Put(b.refusalKey(text), refusal) // else it's refused again the next time
	}
}

// isRefused reports whether that is noted.
func (b *dev) isRefused(text []byte) bool {
	files := keptPrograms()
	if files == nil {
		return false
	}
	_, err := files.Get(b.refusalKey(text))
	return err == nil
}

// keptPrograms has those of sources that were loaded before; nil if this process compiles, or there's no place for them.
func keptPrograms() *kept.Folder {
	if where, err := compiler.Where(); err != nil || len(where.Command) == 0 {
		return nil
	}
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
func (b *dev) without(op string, where compiler.Place, err error) error {
	if where.Named {
		return driver.Errorf(driver.ErrUnsupported, b.Name, op, "CHORUS_OPENCL_COMPILER: %w", err)
	}
	return nil
}

// refused is the error that an answer is; nil if it's a program.
func (b *dev) refused(op string, a compiler.Answer) error {
	switch {
	case a.Code != 0:
		return driver.Errorf(driver.ErrInvalidArgument, b.Name, op, "%w", &CompileError{Log: a.Error, Code: a.Code})
	case a.Error == "":
		return nil
	}
	return driver.Errorf(driver.ErrUnsupported, b.Name, op, "%s", plain.Text(a.Error))
}

// answer is that of a process to a source.
func (b *dev) answer(where compiler.Place, source []byte, options string) (compiler.Answer, error) {
	a, err := b.apart.Compile(where.Command, &compiler.Request{Options: options, Source: source,
		Device: compiler.Device{Library: b.place, Platform: slices.Index(b.platforms, b.space.platform),
			Index: slices.Index(b.deviceIDs(b.space.platform), b.id)}})
	if err == nil && a.Error == "" && len(a.Program) == 0 {
		a.Error = "the process that compiles has given neither a program nor an error"
	}
	return a, err
}
