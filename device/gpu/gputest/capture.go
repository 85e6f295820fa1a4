//go:build linux

package gputest

import (
	"slices"

	"golang.org/x/sys/unix"

	"github.com/chorus-comms/chorus/device/driver"
	"github.com/chorus-comms/chorus/device/gpu/abi"
)

// Calls that CUDA calls potentially unsafe in a capture: what they do isn't captured, though what is may depend on it.
var unsafeCalls = []string{"MemAlloc", "MemFree", "MemHostAlloc", "MemHostFree", "ExtMalloc", "EventQuery",
	"StreamQuery", "EventElapsed", "ModuleLoad", "ModuleLoadEx", "ModuleUnload", "CodeLoad", "CodeModule",
	"CodeUnload", "StreamDestroy"}

// Queries end a capture in HIP before 7.2 even if the thread that makes them is in mode relaxed.
var queries = []string{"EventQuery", "StreamQuery"}

// BeginCapture begins a capture as others do: PyTorch in mode [abi.CaptureModeGlobal], in which an unsafe call from any
// thread that isn't in mode relaxed ends the capture.
func (l *Library) BeginCapture(s driver.StreamHandle, mode int32) error {
	if err := l.driver.CaptureBegin(s); err != nil {
		return err
	}
	if mode == abi.CaptureModeGlobal {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.global = append(l.global, s)
	}
	return nil
}

// EndCapture ends it.
func (l *Library) EndCapture(s driver.StreamHandle) (driver.GraphHandle, error) {
	l.mu.Lock()
	l.global = slices.DeleteFunc(l.global, func(o driver.StreamHandle) bool { return o == s })
	l.mu.Unlock()
	return l.driver.CaptureEnd(s)
}

// captureMode is the function that exchanges the calling thread's mode.
func (l *Library) captureMode(mode *int32) abi.Result {
	if *mode < abi.CaptureModeGlobal || *mode > abi.CaptureModeRelaxed {
		return abi.InvalidValue
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	id := unix.Gettid()
	before := l.modes[id]
	if l.modes[id] = *mode; *mode == abi.CaptureModeGlobal {
		delete(l.modes, id)
	}
	*mode = before
	return abi.Success
}

// endsCapture reports whether a call by the calling thread ends captures of others, and ends them.
func (l *Library) endsCapture(field string) bool {
	if !slices.Contains(unsafeCalls, field) {
		return false
	}
	l.mu.Lock()
	captured := slices.Clone(l.global)
	if l.modes[unix.Gettid()] == abi.CaptureModeRelaxed && !(l.opts.Name == "hip" && slices.Contains(queries, field)) {
		captured = nil
	}
	l.mu.Unlock()
	for _, s := range captured {
		_, _ = l.driver.StreamQuery(s) // which makes an emulated device's capture invalid
	}
	return len(captured) > 0
}
