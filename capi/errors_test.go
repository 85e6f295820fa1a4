//go:build cgo

package capi

import (
	"errors"
	"strings"
	"testing"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/kernel/loader"
)

// TestBeginsOnce has the library's own texts quote an error of package comm: C gets the beginning once.
func TestBeginsOnce(t *testing.T) {
	why := &comm.UnsupportedError{Where: comm.Where{Comm: "world", Op: "reduce"}, Detail: "no such thing"}
	for _, err := range []error{why, refused("input: %v", why), errors.Join(errors.New("chorus: too many works"), why)} {
		f := factsOf(err, 0)
		if strings.Count(f.message, "chorus:") != 1 || !strings.HasPrefix(f.message, "chorus: ") ||
			!strings.HasSuffix(f.message, `rank 0 of "world": reduce: no such thing`) {
			t.Errorf("%T: %s", err, f.message)
		}
	}
}

// A compiler's message about a kernel keeps its lines, and other errors stand on one line.
func TestLinesOfCompilers(t *testing.T) {
	refused := noKernel(&loader.CompileError{Source: "a\nb\n", Log: "k.cl:2:1: error: no b"})
	f := factsOf(refused, 0)
	if !strings.HasPrefix(f.message, "chorus: ") || !strings.Contains(f.message, "error: no b\n    1  a\n>   2  b") {
		t.Errorf("%q", f.message)
	}
	if f := factsOf(errors.Join(errors.New("one"), errors.New("two")), 0); f.message != "one; two" {
		t.Errorf("%q", f.message)
	}
}

// In C, too, peer is the lost rank alone, by the one that aborted, and reporter the one that reports.
func TestNamesOfRanks(t *testing.T) {
	at := comm.Where{Comm: "world", Reporter: 3}
	for _, c := range []struct {
		err      error
		peer, by int
	}{
		{&comm.PeerLostError{Where: at, Peer: 2}, 2, -1}, {&comm.AbortedError{Where: at, By: 1}, -1, 1},
		{&comm.TimeoutError{Where: at}, -1, -1},
	} {
		if f := factsOf(c.err, 0); f.at.Reporter != 3 || f.peer != c.peer || f.by != c.by {
			t.Errorf("%T: reporter %d, peer %d, by %d", c.err, f.at.Reporter, f.peer, f.by)
		}
	}
}
