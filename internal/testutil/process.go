package testutil

import (
	"cmp"
	"io"
	"os"
	"os/exec"
	"testing"
)

// StartPiped starts a process and returns the ends of its standard input and output; what it writes to standard error
// the test writes, unless that goes elsewhere. The caller waits for it.
//
//	in, out := testutil.StartPiped(t, exec.Command(self, "share"))
//	fmt.Fprintln(in, "open")
//	answer, err := bufio.NewReader(out).ReadString('\n')
func StartPiped(t testing.TB, c *exec.Cmd) (in io.WriteCloser, out io.ReadCloser) {
	t.Helper()
	c.Stderr = cmp.Or[io.Writer](c.Stderr, os.Stderr)
	in, err := c.StdinPipe()
	if err == nil {
		out, err = c.StdoutPipe()
	}
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	return in, out
}
