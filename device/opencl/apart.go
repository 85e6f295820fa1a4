package opencl

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	osexec "os/exec" // exec is an instantiated graph
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unsafe"

	"github.com/chorus-comms/chorus/config"
	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/device/opencl/abi"
	"github.com/chorus-comms/chorus/internal/dl"
)

// A driver may crash or hang in its compiler. Where CHORUS_OPENCL_COMPILER names a command whose process has this
// package, each source is compiled there first. The program, or what became of the process, is kept in the user's
// cache, by source, device and driver version: this process loads programs only.

// compileVariable makes a process with this package compile one source, of the request in the file that it names,
// and end.
const compileVariable = "CHORUS_OPENCL_COMPILE"

// compileTime is how long a compilation in another process may take.
const compileTime = 2 * time.Minute

// request is what the other process is asked for, and what it answers.
type request struct {
	Library          string // the file
	Platform, Device int    // which of its platforms, and which of that's devices
	Options          string
	Source           []byte
}

type answer struct {
	Program []byte
	Error   string     // why there is none
	Code    abi.Result // of the compiler, if it's an error in the source
}

func init() {
	if path := os.Getenv(compileVariable); path != "" {
		serve(path)
		os.Exit(0)
	}
}

// serve compiles what a request asks for.
func serve(path string) {
	var q request
	var a answer
	data, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(data, &q)
	}
	if err == nil {
		a.Program, err = q.compile()
	}
	if e, ok := errors.AsType[*CompileError](err); ok {
		a.Error, a.Code = e.Log, e.Code
	} else if err != nil {
		a.Error = err.Error()
	}
	if data, err = json.Marshal(a); err == nil {
		err = os.WriteFile(path+".answer", data, 0o600)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func (q *request) compile() ([]byte, error) {
	opened, err := dl.Source{Name: "OpenCL", Candidates: []string{q.Library}}.Open()
	if err != nil {
		return nil, err
	}
	l, err := load(opened)
	if err != nil {
		return nil, err
	}
	if q.Platform >= len(l.platforms) {
		return nil, fmt.Errorf("%v has %d platforms", l, len(l.platforms))
	}
	p := l.platforms[q.Platform]
	ids := l.deviceIDs(p)
	if q.Device >= len(ids) {
		return nil, fmt.Errorf("%v has %d devices", l, len(ids))
	}
	s := &space{Library: l, platform: p}
	b := &dev{Library: l, space: s, id: ids[q.Device], name: name, compiler: true}
	s.devs = []*dev{b}
	if err := s.open(); err != nil {
		return nil, err
	}
	h, err := b.make("compile", q.Source, q.Options)
	if err != nil {
		return nil, err
	}
	return b.program(h)
}

// program is what the compiler has made for the device.
func (b *dev) program(h abi.Program) ([]byte, error) {
	const call = "clGetProgramInfo"
	devices, err := list[abi.Device](b.Library, call, b.ProgramInfo, h, abi.ProgramDevices)
	if err != nil {
		return nil, err
	}
	sizes, err := list[uintptr](b.Library, call, b.ProgramInfo, h, abi.ProgramBinarySizes)
	if err != nil {
		return nil, err
	}
	at := slices.Index(devices, b.id)
	if at < 0 || len(sizes) != len(devices) || sizes[at] == 0 {
		return nil, fmt.Errorf("the driver gives no program out (%v)", sizes)
	}
	data, places := make([]byte, sizes[at]), make([]*byte, len(devices)) // those that aren't wanted are null
	places[at] = &data[0]
	r := abi.Success
	pinned(&data[0], func() {
		n := uintptr(len(places)) * unsafe.Sizeof(places[0])
		r = b.ProgramInfo(h, abi.ProgramBinaries, n, unsafe.Pointer(&places[0]), nil)
	})
	if r != abi.Success {
		return nil, b.failed(call, r)
	}
	return data, nil
}

// apart is the program of a source that another process has compiled, now or before; nil without error if there's no
// command for it, or no place to keep programs.
func (b *dev) apart(op string, source []byte, options string) ([]byte, error) {
	c, err := config.Load(nil)
	if err != nil || c.OpenCLCompiler == "" {
		return nil, err
	}
	folder, err := os.UserCacheDir()
	if err != nil {
		return nil, nil
	}
	folder = filepath.Join(folder, "chorus", "opencl")
	if os.MkdirAll(folder, 0o700) != nil {
		return nil, nil
	}
	q := request{Library: b.place, Platform: slices.Index(b.platforms, b.space.platform), Options: options, Source: source}
	q.Device = slices.Index(b.deviceIDs(b.space.platform), b.id)
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%s\x00%s\x00%s", b.place, b.props.Name, b.driver, options, source))
	kept := filepath.Join(folder, fmt.Sprintf("%x", sum))
	a, err := readAnswer(kept)
	if err != nil {
		if a, err = q.send(folder, strings.Fields(c.OpenCLCompiler)); err != nil {
			return nil, device.Errorf(device.ErrUnsupported, b.name, op, "%w", err)
		}
		keepAnswer(kept, a)
	}
	switch {
	case a.Code != 0:
		return nil, device.Errorf(device.ErrInvalidArgument, b.name, op, "%w", &CompileError{Log: a.Error, Code: a.Code})
	case a.Error != "":
		return nil, device.Errorf(device.ErrUnsupported, b.name, op, "%s (kept in %s, until the driver's version changes)",
			a.Error, kept)
	}
	return a.Program, nil
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

// keepAnswer writes a file whole or not at all. Without it, the source is compiled again the next time.
func keepAnswer(path string, a answer) {
	data, err := json.Marshal(a)
	if err != nil {
		return
	}
	f, err := os.CreateTemp(filepath.Dir(path), "new-*")
	if err != nil {
		return
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
}

// send has a process compile. A process that crashes or hangs is an answer, too; the error is one of the command.
func (q *request) send(folder string, command []string) (a answer, err error) {
	if command[0] == "self" {
		if command[0], err = os.Executable(); err != nil {
			return a, err
		}
	}
	work, err := os.MkdirTemp(folder, "compile-*")
	if err != nil {
		return a, err
	}
	defer os.RemoveAll(work)
	path := filepath.Join(work, "request")
	data, err := json.Marshal(q)
	if err == nil {
		err = os.WriteFile(path, data, 0o600)
	}
	if err != nil {
		return a, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), compileTime)
	defer cancel()
	var said bytes.Buffer
	c := osexec.CommandContext(ctx, command[0], command[1:]...)
	c.Env = append(os.Environ(), compileVariable+"="+path)
	c.Stdout, c.Stderr, c.WaitDelay = &said, &said, time.Second
	if err := c.Start(); err != nil {
		return a, fmt.Errorf("CHORUS_OPENCL_COMPILER: %w", err)
	}
	ended := c.Wait()
	if a, err = readAnswer(path + ".answer"); err == nil {
		return a, nil
	}
	text := said.Bytes()
	text = text[max(0, len(text)-2000):]
	switch {
	case ctx.Err() != nil:
		return answer{Error: fmt.Sprintf("the driver's compiler has hung for %v", compileTime)}, nil
	case ended == nil:
		return a, fmt.Errorf("CHORUS_OPENCL_COMPILER: the process of %q hasn't this package: %s", command, text)
	}
	return answer{Error: fmt.Sprintf("the driver's compiler has ended its process: %v: %s", ended, text)}, nil
}
