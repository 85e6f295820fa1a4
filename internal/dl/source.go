package dl

import (
	"errors"
	"fmt"
	"iter"
	"path/filepath"
	"slices"
	"strings"

	"github.com/chorus-comms/chorus/internal/dl/libfile"
)

// A Source says where a library may be.
type Source struct {
	Name string // what errors call the library

	// Candidates are tried in turn. One with a slash is a path, which may be a pattern of [filepath.Glob], of whose
	// matches the last in lexical order comes first; another is a name that the dynamic linker looks for. Before all
	// comes a name that the process has loaded already: a second copy of a library would know nothing of the first one's
	// streams and memory.
	Candidates []string

	// Version asks an open library for its version, for the texts of errors; nil if the library has no such function.
	Version func(l *Library) (string, error)

	// Global makes the library's symbols visible to libraries that are opened later (RTLD_GLOBAL).
	Global bool
}

// Open opens the first candidate that can be. The error is a [*NotFoundError].
func (s Source) Open() (*Library, error) {
	missing := &NotFoundError{Library: s.Name}
	for l := range s.each(missing) {
		return l, nil
	}
	return nil, missing
}

// OpenAll opens all candidates that can be, each library once: for a caller that chooses by their versions. The error
// is a [*NotFoundError].
func (s Source) OpenAll() (all []*Library, err error) {
	missing := &NotFoundError{Library: s.Name}
	for l := range s.each(missing) {
		if !slices.ContainsFunc(all, func(o *Library) bool { return o.handle == l.handle }) {
			all = append(all, l)
		}
	}
	if all == nil {
		return nil, missing
	}
	return all, nil
}

// each opens candidates in turn, and tells missing why others can't be opened.
func (s Source) each(missing *NotFoundError) iter.Seq[*Library] {
	return func(yield func(*Library) bool) {
		for _, c := range s.Candidates {
			if strings.Contains(c, "/") {
				continue
			}
			if handle, ok := loaded(c, s.Global); ok && !yield(s.library(c, handle)) {
				return
			}
		}
		for _, c := range s.Candidates {
			places, err := files(c)
			if err != nil {
				missing.Tried = append(missing.Tried, err)
			}
			for _, place := range places {
				err := libfile.Check(place)
				var handle uintptr
				if err == nil {
					handle, err = open(place, s.Global)
				}
				if err != nil {
					missing.Tried = append(missing.Tried, err)
				} else if !yield(s.library(place, handle)) {
					return
				}
			}
		}
	}
}

func (s Source) library(place string, handle uintptr) *Library {
	return &Library{name: s.Name, place: place, handle: handle, ask: s.Version}
}

// files are a candidate's, in the order in which they are tried.
func files(candidate string) ([]string, error) {
	if !strings.ContainsAny(candidate, "*?[") || !strings.Contains(candidate, "/") {
		return []string{candidate}, nil
	}
	matches, err := filepath.Glob(candidate)
	if err == nil && len(matches) == 0 {
		err = errors.New("no such file")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", candidate, err)
	}
	slices.Reverse(matches) // Glob sorts them
	return matches, nil
}

// NotFoundError reports that no candidate for a library can be opened.
type NotFoundError struct {
	Library string
	Tried   []error // one for each candidate
}

func (e *NotFoundError) Error() string {
	if len(e.Tried) == 0 {
		return e.Library + " is not on this machine: there was nowhere to look"
	}
	return fmt.Sprintf("%s is not on this machine: %v", e.Library, errors.Join(e.Tried...))
}

func (e *NotFoundError) Unwrap() []error { return e.Tried }
