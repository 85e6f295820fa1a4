package sys

import (
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/internal/testutil"
)

// A line of /proc counts if it's of the group, whatever the process is called.
func TestTicksOf(t *testing.T) {
	const rest = " S 1 77 77 0 -1 4194304 100 0 0 0 10 20 300 4000 20 0 1 0 5 0"
	for line, want := range map[string]int64{
		"99 (sh)" + rest: 4330, "99 (a) b S 1 78)" + rest: 4330, "": 0, "99 (sh) S 1 77": 0,
		"99 (sh) S 1 78 77 0 -1 4194304 100 0 0 0 10 20 300 4000 20": 0,
	} {
		if got := ticksOf([]byte(line), 77); got != want {
			t.Errorf("%q: %d, want %d", line, got, want)
		}
	}
}

// The time of a group has that of its processes' children, and is no other group's.
func TestGroupTime(t *testing.T) {
	c := exec.Command("/bin/sh", "-c", "sh -c 'while :; do :; done' & while :; do :; done")
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL)
		_ = c.Wait()
	}()
	testutil.Eventually(t, func() bool {
		used, err := GroupTime(c.Process.Pid)
		return err == nil && used >= 50*time.Millisecond
	}, "the group's processes have used no time")
	if used, err := GroupTime(c.Process.Pid + 1<<22); err != nil || used != 0 {
		t.Errorf("a group that isn't there: %v, %v", used, err)
	}
}
