package members

import (
	"strings"
	"testing"

	"github.com/chorus-comms/chorus/fabric"
)

// TestDepartedIsPrintable has another process say anything of why it leaves: the error stays a line of bounded length.
func TestDepartedIsPrintable(t *testing.T) {
	for why, want := range map[string]string{
		"":                                "it finalized the communicator after operation #3",
		"it raised\n\x1b]0;x\a\xff\u2028": `it raised\n\x1b]0;x\a\u2028` + ", after operation #3",
		strings.Repeat("x", 5000):         strings.Repeat("x", fabric.MaxWhy) + ", after operation #3",
	} {
		if got := Departed(&fabric.LeftError{Peer: 1, After: 3, Why: why}); got != want {
			t.Errorf("of %q: %q, and not %q", why, got, want)
		}
	}
}
