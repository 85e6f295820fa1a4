package tcp

import (
	"errors"
	"net"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

func TestNobodyListens(t *testing.T) {
	refused := &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", unix.ECONNREFUSED)}
	late := &net.OpError{Op: "dial", Err: os.ErrDeadlineExceeded}
	for _, c := range []struct {
		name string
		err  error
		want bool
	}{
		{"all addresses refuse", errors.Join(refused, refused), true},
		{"one may be of another host", errors.Join(refused, late), false},
		{"none answers", errors.Join(late, late), false},
		{"somebody listens, and doesn't want this rank", errRefused, false},
	} {
		if got := allRefused(c.err); got != c.want {
			t.Errorf("%s: %t", c.name, got)
		}
	}
}
