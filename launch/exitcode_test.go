package launch

import (
	"errors"
	"fmt"
	"syscall"
	"testing"
)

func TestExitCodes(t *testing.T) {
	for want, err := range map[int]error{
		0:   nil,
		1:   errors.New("bad argument"),
		9:   &Failure{Kind: Exited, ExitStatus: 9},
		137: fmt.Errorf("run: %w", &Failure{Kind: Signaled, Signal: syscall.SIGKILL}),
		130: &Failure{Kind: Interrupted, Signal: syscall.SIGINT},
		126: &Failure{Kind: NotStarted},
	} {
		if got := ExitCode(err); got != want {
			t.Errorf("%v: %d, want %d", err, got, want)
		}
	}
}
