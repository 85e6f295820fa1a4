package fabric_test

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"

	"github.com/chorus-comms/chorus/fabric"
)

// A lack of this process' resources is told apart from a peer's failure, however the fabric has
// wrapped the error.
func TestExhausted(t *testing.T) {
	for _, c := range []struct {
		err  error
		want bool
	}{
		{syscall.EMFILE, true},
		{&fabric.PeerError{Peer: 1, Err: fmt.Errorf("connection 2: %w", os.NewSyscallError("fcntl", syscall.EMFILE))}, true},
		{&fabric.PeerError{Peer: 1, Err: syscall.ECONNRESET}, false},
		{errors.New("too many open files"), false}, // a peer's word
		{nil, false},
	} {
		if got := fabric.Exhausted(c.err); got != c.want {
			t.Errorf("%v: %v", c.err, got)
		}
	}
}
