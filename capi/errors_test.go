//go:build cgo

package capi

import (
	"errors"
	"strings"
	"testing"

	"github.com/chorus-comms/chorus/comm"
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
