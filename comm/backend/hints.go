package backend

import "strings"

// OpHint is a hint that each operation may have, and the communicator for all of them.
type OpHint struct {
	Name string
	// Check says what is wrong with a value, in words that name the hint, the value and what is allowed; nil if nothing
	// is.
	Check func(value string) error
}

// OpHints are those that a backend knows.
type OpHints []OpHint

// HintsOf returns the hints of the named backend's operations; none if there is no such backend.
func HintsOf(name string) OpHints {
	mu.RLock()
	defer mu.RUnlock()
	return registered[name].hints
}

// Has reports whether an operation may have a hint.
func (hs OpHints) Has(name string) bool {
	for i := range hs {
		if hs[i].Name == name {
			return true
		}
	}
	return false
}

// String lists their names.
func (hs OpHints) String() string {
	if len(hs) == 0 {
		return "none"
	}
	names := make([]string, len(hs))
	for i, h := range hs {
		names[i] = h.Name
	}
	return strings.Join(names, ", ")
}

// Check returns an *InvalidArgumentError if a hint has a value that it can't have.
func (hs OpHints) Check(at Where, hints map[string]string) error {
	for _, h := range hs {
		if v, given := hints[h.Name]; given {
			if err := h.Check(v); err != nil {
				return &InvalidArgumentError{Where: at, Detail: err.Error()}
			}
		}
	}
	return nil
}

// Split divides hints into those of the communicator and those that apply to each of its operations.
func (hs OpHints) Split(all map[string]string) (own, op map[string]string) {
	own, op = map[string]string{}, map[string]string{}
	for k, v := range all {
		if hs.Has(k) {
			op[k] = v
		} else {
			own[k] = v
		}
	}
	return own, op
}
