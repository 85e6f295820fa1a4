package dl

import "sync"

// A Library is a shared library that is open. Its methods may be called from any goroutine.
type Library struct {
	name   string
	place  string
	handle uintptr
	ask    func(*Library) (string, error)
	lookup func(name string) (uintptr, bool) // of symbols that the linker doesn't know; may be nil

	once    sync.Once
	version string
}

// Name is the source's.
func (l *Library) Name() string { return l.name }

// Path is the library's file, where the system tells; else the candidate that was opened.
func (l *Library) Path() string {
	if l.handle != 0 {
		if p := fileOf(l.handle); p != "" {
			return p
		}
	}
	return l.place
}

// Version is what the library says of itself; "unknown" if it says nothing.
func (l *Library) Version() string {
	l.once.Do(func() {
		l.version = "unknown"
		if l.ask == nil {
			return
		}
		if v, err := l.ask(l); err == nil && v != "" {
			l.version = v
		}
	})
	return l.version
}

// String names the library, its version and its file.
func (l *Library) String() string { return l.name + " " + l.Version() + " (" + l.Path() + ")" }

// Symbol returns the address of a symbol, and whether there is one.
func (l *Library) Symbol(name string) (uintptr, bool) {
	if l.lookup != nil {
		return l.lookup(name)
	}
	return symbol(l.handle, name)
}

// By returns the library with symbols that lookup finds, in place of the linker's: of a library that hands out a table
// of its functions, for example. version is what it says of itself.
func (l *Library) By(lookup func(name string) (uintptr, bool), version string) *Library {
	return &Library{name: l.name, place: l.place, handle: l.handle, lookup: lookup,
		ask: func(*Library) (string, error) { return version, nil }}
}

// Close gives the library up, whose exit handlers run if nothing else of the process uses it. None of its functions may
// be running, or be called any more.
func (l *Library) Close() { closeLibrary(l.handle) }
