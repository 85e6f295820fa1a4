package compiler

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"
)

// compileVariable makes a process with this package compile sources for the one that has started it, and do nothing
// else: file 3 has the requests, and file 4 takes the answers. Its value is what [mark] makes of these.
const compileVariable = "CHORUS_OPENCL_COMPILE"

// Serve compiles sources, and does nothing else, if this process was started for that. A package that can do it calls it
// when it's initialized. open opens a device.
func Serve(open func(Device) (Compile, error)) {
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
	serve(open, os.NewFile(3, "requests"), os.NewFile(4, "answers"), func(status int) {
		dropFolder(folder)
		os.Exit(status)
	})
}

// Compile makes the program of a source. The error is an [*Error] if the source is at fault.
type Compile func(source []byte, options string) ([]byte, error)

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
func serve(open func(Device) (Compile, error), requests, answers *os.File, exit func(status int)) {
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
	tell := func(a Answer) {
		if send.Encode(a) != nil {
			exit(1)
		}
	}
	tell(Answer{Step: ready})
	devices := map[Device]Compile{}
	for {
		var q Request
		if receive.Decode(&q) != nil {
			exit(0)
		}
		compile := devices[q.Device]
		if compile == nil {
			var err error
			if compile, err = open(q.Device); err != nil {
				tell(Answer{Error: err.Error()})
				continue
			}
			devices[q.Device] = compile
		}
		tell(Answer{Step: opened})
		a := Answer{Step: done}
		var err error
		a.Program, err = compile(q.Source, q.Options)
		if e, ok := errors.AsType[*Error](err); ok {
			a.Error, a.Code = e.Log, e.Code
		} else if err != nil {
			a.Error = err.Error()
		}
		tell(a)
	}
}
