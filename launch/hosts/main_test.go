package hosts

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/chorus-comms/chorus/launch/internal/process"
)

// The test binary is also ssh, with a launcher behind it: role says so.
const role = "CHORUS_HOSTS_TEST_ROLE"

func TestMain(m *testing.M) {
	if os.Getenv(role) == "ssh" {
		ssh()
		os.Exit(0)
	}
	os.Setenv("GORACE", "atexit_sleep_ms=0") // under the race detector every process would end a second later
	goleak.VerifyTestMain(m)
}

// ssh says so much of what a launcher says, and hangs.
func ssh() {
	if slices.Contains(os.Args, "-G") {
		return
	}
	check := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(97)
		}
	}
	out := &frameWriter{w: os.Stdout}
	switch os.Getenv(hangs) {
	case "silent":
		fmt.Print(frameMagic)
	case "other version":
		fmt.Print(frameMagicBegin + "1\n")
	case "begins nothing":
		fmt.Print(frameMagic)
		process.Tick(time.Millisecond, func() bool { return out.write(frameBeat, nil) == nil })
	case "begun":
		fmt.Print(frameMagic)
		check(out.write(frameBegun, nil))
		check(out.write(frameStdout, []byte("begun\n")))
		process.Tick(time.Millisecond, func() bool { return out.write(frameBeat, nil) == nil })
	}
	time.Sleep(time.Minute) // it ends with a signal, or with an error before the test's own time is over
	os.Exit(98)
}
