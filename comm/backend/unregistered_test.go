package backend_test

import (
	"context"
	"fmt"
	"go/build"
	"strings"
	"testing"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/device"
)

// TestImportLines asks for backends and devices of this module that the program hasn't imported: the error is the line
// to add, which imports a package that there is.
func TestImportLines(t *testing.T) {
	line := func(text string) {
		t.Helper()
		_, rest, _ := strings.Cut(text, `import _ "github.com/chorus-comms/chorus/`)
		path, _, ok := strings.Cut(rest, `"`)
		if !ok {
			t.Errorf("no import in %q", text)
		} else if _, err := build.ImportDir("../../"+path, 0); err != nil {
			t.Error(err)
		}
	}
	for _, name := range []string{"gloo", "nccl", "ncclx", "rccl", "accl", "fake"} {
		line(backend.Unknown(name))
	}
	for _, name := range []string{"cuda", "hip", "accl"} {
		_, err := device.Get(name + ":0")
		line(fmt.Sprint(err))
	}
	_, err := comm.New(context.Background(), comm.WithRank(0, 1), comm.WithBackend("rccl"))
	line(fmt.Sprint(err))
	_, err = comm.New(context.Background(), comm.WithRank(0, 1), comm.WithDevice("hip:1"))
	line(fmt.Sprint(err))
	if text := backend.Unknown("no-such"); strings.Contains(text, "import _") {
		t.Error(text)
	}
}
