package opencl

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"github.com/chorus-comms/chorus/device/internal/base"
	"github.com/chorus-comms/chorus/device/opencl/abi"
	"github.com/chorus-comms/chorus/internal/dl"
)

// compileVariable makes a process with this package compile sources for the one that has started it, and do nothing
// else: file 3 has the requests, and file 4 takes the answers. Its value is what [mark] makes of these.
const compileVariable = "CHORUS_OPENCL_COMPILE"

func init() {
	value := os.Getenv(compileVariable)
	if value == "" {
		return
	}
	folder, ok := marked(value, 3, 4)
	if !ok {
		_ = os.Unsetenv(compileVariable) // what this program starts doesn't say it again
		fmt.Fprintf(os.Stderr, "chorus: %s=%q in the environment is ignored: Chorus sets this variable for processes "+
			"that it starts to compile kernels, and has not started this one\n", compileVariable, value)
		return
	}
	serve(os.NewFile(3, "requests"), os.NewFile(4, "answers"), func(status int) {
		dropFolder(folder)
		os.Exit(status)
	})
}

// mark is the value of compileVariable for a process that gets two pipes and a folder, or "". It has the pipes' numbers,
// so that a process that has got it otherwise than with the pipes isn't taken for one that shall compile.
func mark(requests, answers int, folder string) string {
	r, _ := pipeNumber(requests)
	a, _ := pipeNumber(answers)
	return fmt.Sprintf("%d:%d:%s", r, a, folder)
}

// marked reports whether a value is that of two pipes, and returns the folder.
func marked(value string, requests, answers int) (folder string, ok bool) {
	r, reads := pipeNumber(requests)
	a, writes := pipeNumber(answers)
	folder, ok = strings.CutPrefix(value, fmt.Sprintf("%d:%d:", r, a))
	return folder, ok && reads && writes
}

// pipeNumber is the kernel's number of a pipe; false if the descriptor isn't one's.
func pipeNumber(fd int) (uint64, bool) {
	var s syscall.Stat_t
	err := syscall.Fstat(fd, &s)
	return s.Ino, err == nil && s.Mode&syscall.S_IFMT == syscall.S_IFIFO
}

// serve answers requests until there are no more. It ends the process if that which has started it has ended, even
// while it compiles.
func serve(requests, answers *os.File, exit func(status int)) {
	syscall.CloseOnExec(3) // what a compiler starts doesn't get them
	syscall.CloseOnExec(4)
	_ = syscall.Setrlimit(syscall.RLIMIT_CORE, &syscall.Rlimit{}) // a crash is reported, and leaves no file
	parent := os.Getppid()
	go func() {
		for range time.Tick(time.Second) {
			if os.Getppid() != parent {
				exit(1)
			}
		}
	}()
	send, receive := json.NewEncoder(answers), json.NewDecoder(requests)
	tell := func(a answer) {
		if send.Encode(a) != nil {
			exit(1)
		}
	}
	tell(answer{Step: ready})
	devices := map[device3]*dev{}
	for {
		var q request
		if receive.Decode(&q) != nil {
			exit(0)
		}
		at := device3{q.Library, q.Platform, q.Device}
		b := devices[at]
		if b == nil {
			var err error
			if b, err = at.open(); err != nil {
				tell(answer{Error: err.Error()})
				continue
			}
			devices[at] = b
		}
		tell(answer{Step: opened})
		a := answer{Step: done}
		var err error
		a.Program, err = b.compile(q.Source, q.Options)
		if e, ok := errors.AsType[*CompileError](err); ok {
			a.Error, a.Code = e.Log, e.Code
		} else if err != nil {
			a.Error = err.Error()
		}
		tell(a)
	}
}

// device3 says which device: the library's file, the platform and the device in it.
type device3 struct {
	library          string
	platform, device int
}

func (at device3) open() (*dev, error) {
	opened, err := dl.Source{Name: "OpenCL", Candidates: []string{at.library}}.Open()
	if err != nil {
		return nil, err
	}
	l, err := load(opened)
	if err != nil {
		return nil, err
	}
	if at.platform >= len(l.platforms) {
		return nil, fmt.Errorf("%v has %d platforms", l, len(l.platforms))
	}
	p := l.platforms[at.platform]
	ids := l.deviceIDs(p)
	if at.device >= len(ids) {
		return nil, fmt.Errorf("%v has %d devices", l, len(ids))
	}
	s := &space{Library: l, platform: p}
	b := &dev{Library: l, space: s, id: ids[at.device], Device: base.Device{Name: name}, compiler: true}
	s.devs = []*dev{b}
	return b, s.open()
}

// compile makes the program of a source, and has the library load it, as the other process is going to.
func (b *dev) compile(source []byte, options string) ([]byte, error) {
	h, err := b.make("compile", source, options)
	if err != nil {
		return nil, err
	}
	defer b.ProgramFree(h)
	image, err := b.program(h)
	if err != nil {
		return nil, err
	}
	again, err := b.make("load", image, options)
	if err != nil {
		return nil, err
	}
	b.ProgramFree(again)
	return image, nil
}

// program is what the compiler has made for the device.
func (b *dev) program(h abi.Program) ([]byte, error) {
	for begun := time.Now(); ; time.Sleep(time.Millisecond) {
		image, err := b.image(h)
		if err != nil || !halfWritten(image) {
			return image, err
		}
		if time.Since(begun) > time.Second {
			return nil, errHalfWritten
		}
	}
}

// image is what the driver gives out as a program.
func (b *dev) image(h abi.Program) ([]byte, error) {
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
