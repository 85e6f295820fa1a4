package launch

import (
	"errors"
	"os"
	"os/exec"

	"github.com/chorus-comms/chorus/launch/internal/process"
)

// startError means that the program cannot be started at all.
type startError struct{ err error }

func (e *startError) Error() string { return "launch: " + e.err.Error() }
func (e *startError) Unwrap() error { return e.err }

// ExitCode is the exit status of a launcher whose Run returned err.
func ExitCode(err error) int {
	var s *startError
	var has interface{ Code() int } // a *Failure, or the error of a launcher on another host
	switch {
	case err == nil:
		return 0
	case errors.As(err, &has):
		return has.Code()
	case errors.As(err, &s):
		if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
			return process.CodeNotFound
		}
		return process.CodeNotStarted
	default:
		return 1
	}
}
