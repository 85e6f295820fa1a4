package text

import (
	"fmt"
	"log/slog"
	"runtime/debug"
)

// Contain is deferred by a function that reads a text, or plans or writes one, and changes nothing that others use. A
// panic of it is a bug, by which the process loses nothing but the result: it's logged with its stack, and is an error
// of this call alone.
func Contain(what string, err *error) {
	if r := recover(); r != nil {
		slog.Error("chorus: a bug in "+what+" was caught", "panic", r, "stack", string(debug.Stack()))
		*err = fmt.Errorf("kernel: a bug in %s was caught: %v", what, r)
	}
}
