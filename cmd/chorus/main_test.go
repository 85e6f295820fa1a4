package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/chorus-comms/chorus/internal/testutil"
	"github.com/chorus-comms/chorus/internal/testutil/nettest"
	_ "github.com/chorus-comms/chorus/internal/testutil/seccomptest" // env CHORUS_TEST_REFUSE=memfd_create=EPERM in a script
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"chorus": main, "deserters": deserters})
}

// deserters is a rank that is many clients of its launcher, of its page, at the port that it's given, and of its store.
func deserters() {
	store := net.JoinHostPort(os.Getenv("MASTER_ADDR"), os.Getenv("MASTER_PORT"))
	for range 20 {
		if err := errors.Join(nettest.ResetHTTPClient("127.0.0.1:"+os.Args[1]), nettest.ResetStoreClient(store)); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	}
	fmt.Println("all have gone")
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Condition: func(name string) (bool, error) { // [brief] and [!brief]
			if name != "brief" {
				return false, fmt.Errorf("unknown condition %s", name)
			}
			return testutil.Short(), nil
		},
		Setup: func(e *testscript.Env) error {
			port, err := nettest.FreePorts(4)
			e.Setenv("PORT", strconv.Itoa(port)) // free, as the next three are
			e.Setenv("TMPDIR", e.WorkDir)
			e.Setenv("GORACE", "atexit_sleep_ms=0") // under the race detector every process would end a second later
			for _, name := range []string{"mypython", "script.py", "rank.sh"} {
				os.Chmod(e.WorkDir+"/"+name, 0o755) // archives carry no modes
			}
			return err
		},
	})
}
