package nccl

import (
	"fmt"
	"sync"
	"unsafe"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/comm/nccl/abi"
	env "github.com/chorus-comms/chorus/config"
	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/internal/dl"
)

// A Library is a table of functions with what is known of it. It's good for all communicators of the process.
type Library struct {
	abi.Table
	name    string // as errors call it
	place   string
	version abi.Version
	caps    *dl.Capabilities
	devices []string

	mu    sync.Mutex
	pools map[*device.Device]*pool // of those with memory in use
}

// Supply makes a library of a table that the caller has filled: a stand-in, or a library that the program is linked
// with. It's for devices of the given types or names. place is its name in CHORUS_NCCL_LIBRARY or the hint library
// from then on; a library that was supplied for the same place is replaced.
func Supply(name, place string, table abi.Table, devices ...string) (*Library, error) {
	l := &Library{Table: table, name: name, place: place, devices: devices}
	l.guard()
	if table.GetVersion == nil {
		return nil, &dl.SymbolError{Library: name, Version: "unknown", Path: place, Symbols: []string{"ncclGetVersion"}}
	}
	if err := l.askVersion(); err != nil {
		return nil, err
	}
	var err error
	if l.caps, err = dl.Supplied(name, l.version.String(), place, &l.Table); err != nil {
		return nil, err
	}
	libraries.Lock()
	defer libraries.Unlock()
	libraries.open[place] = l
	return l, nil
}

// libraries are those that are open, by their places.
var libraries = struct {
	sync.Mutex
	open map[string]*Library
}{open: map[string]*Library{}}

// Load returns the library of a backend: nccl, ncclx or rccl. It's the one at place, or else the one
// that CHORUS_NCCL_LIBRARY names, or else the first that is found of those that package abi knows. Another name is
// [backend.ErrInvalidArgument].
func Load(name, place string) (*Library, error) {
	f := abi.FamilyNamed(name)
	if f == nil {
		return nil, fmt.Errorf("%w: no library is called %q", backend.ErrInvalidArgument, name)
	}
	if place == "" {
		cfg, err := env.Load(nil)
		if err != nil {
			return nil, err
		}
		place = cfg.NCCLLibrary
	}
	libraries.Lock()
	defer libraries.Unlock()
	key, candidates := place, []string{place}
	if place == "" {
		key, candidates = "first of "+name, f.Candidates()
	}
	if l := libraries.open[key]; l != nil {
		return l, nil
	}
	opened, err := dl.Source{Name: f.Title, Candidates: candidates, Version: func(l *dl.Library) (string, error) {
		v := new(int32)
		a, ok := l.Symbol("ncclGetVersion")
		if !ok || abi.Result(dl.Func(a).Call(uintptr(unsafe.Pointer(v)))) != abi.Success {
			return "", nil
		}
		return abi.Version(*v).String(), nil
	}}.Open()
	if err != nil {
		return nil, err
	}
	l := &Library{name: f.Title, place: opened.Path(), devices: f.Devices}
	if l.caps, err = opened.Resolve(&l.Table); err != nil {
		return nil, err
	}
	l.guard()
	if err := l.askVersion(); err != nil {
		return nil, err
	}
	libraries.open[key] = l
	return l, nil
}

// guard refuses what no version survives: ncclCommShrink crashes without a communicator.
func (l *Library) guard() {
	shrink := l.Shrink
	if shrink == nil {
		return
	}
	l.Shrink = func(c abi.Comm, exclude *int32, n int32, child *abi.Comm, config unsafe.Pointer, flags int32) abi.Result {
		if c == 0 {
			return abi.InvalidArgument
		}
		return shrink(c, exclude, n, child, config, flags)
	}
}

func (l *Library) askVersion() error {
	v := new(int32)
	if err := l.failed("ncclGetVersion", l.GetVersion(v), 0); err != nil {
		return err
	}
	l.version = abi.Version(*v)
	return nil
}

// Version is what the library says of itself.
func (l *Library) Version() abi.Version { return l.version }

// Capabilities are what it can do beyond what all versions can.
func (l *Library) Capabilities() *dl.Capabilities { return l.caps }

// String names the library, its version and its place.
func (l *Library) String() string { return fmt.Sprintf("%s %v (%s)", l.name, l.version, l.place) }

// need is an *backend.UnsupportedError that names the capability, the version and the first one that has it, or nil.
func (l *Library) need(at backend.Where, capability string) error {
	if err := l.caps.Need(capability); err != nil {
		return &backend.UnsupportedError{Where: at, Detail: err.Error()}
	}
	return nil
}

// Error is what a function of the library has returned.
type Error struct {
	Library string // with its version
	Call    string // the function
	Result  abi.Result
	Text    string // what the library calls the result
	Last    string // its last error text; may be of another call, since success doesn't clear it
}

func (e *Error) Error() string {
	s := fmt.Sprintf("%s: %s: %s (%v)", e.Library, e.Call, e.Text, e.Result)
	if e.Last != "" {
		s += ": " + e.Last
	}
	return s
}

// failed makes an *Error of a result, unless that's success.
func (l *Library) failed(call string, r abi.Result, c abi.Comm) error {
	if r == abi.Success || r == abi.InProgress {
		return nil
	}
	e := &Error{Library: fmt.Sprintf("%s %v", l.name, l.version), Call: call, Result: r, Text: r.String()}
	if l.GetErrorString != nil {
		e.Text = l.GetErrorString(r)
	}
	if l.GetLastError != nil {
		e.Last = l.GetLastError(c)
	}
	return e
}
