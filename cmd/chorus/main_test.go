package main

import (
	"net"
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	_ "github.com/chorus-comms/chorus/internal/refusal" // env CHORUS_TEST_REFUSE=memfd_create=EPERM in a script
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"chorus": main})
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(e *testscript.Env) error {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				return err
			}
			defer l.Close()
			_, port, err := net.SplitHostPort(l.Addr().String())
			// PORT is free, and scripts that want it can have it: the system does not give it away again soon.
			e.Setenv("PORT", port)
			e.Setenv("TMPDIR", e.WorkDir)
			e.Setenv("GORACE", "atexit_sleep_ms=0") // under the race detector every process would end a second later
			for _, name := range []string{"mypython", "script.py", "rank.sh"} {
				os.Chmod(e.WorkDir+"/"+name, 0o755) // archives carry no modes
			}
			return err
		},
	})
}
