package launch

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/chorus-comms/chorus/launch/internal/process"
)

// TestADaemonEndsWithTheJob though it has left its rank's session: also one that has another environment, if the
// launcher adopts orphans; and, if it kept its environment, when the launcher is killed.
func TestADaemonEndsWithTheJob(t *testing.T) {
	for _, how := range []string{"go", "bare", "killed"} {
		t.Run(how, func(t *testing.T) {
			l := newLives(t)
			launcher := exec.Command(os.Args[0], "daemon", l.path, how)
			launcher.Env = append(os.Environ(), role+"=launcher", "TMPDIR="+t.TempDir())
			launcher.Stderr = os.Stderr
			if err := launcher.Start(); err != nil {
				t.Fatal(err)
			}
			l.begun(t, 2)
			if how == "killed" {
				launcher.Process.Kill()
			}
			if err := launcher.Wait(); err != nil && how != "killed" {
				t.Error(err)
			}
			l.over(t)
		})
	}
}

// TestADaemonOfALibrary ends with the job, and the program's own daemons don't.
func TestADaemonOfALibrary(t *testing.T) {
	own := exec.Command("sleep", "1000")
	own.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := own.Start(); err != nil {
		t.Fatal(err)
	}
	l := newLives(t)
	job, _, errs := newJob(t, 2, "daemon", l.path, "go")
	if err := job.Run(t.Context()); err != nil {
		t.Fatal(err, errs)
	}
	l.begun(t, 2)
	l.over(t)
	if err := own.Process.Signal(syscall.Signal(0)); err != nil {
		t.Error("the program's own child is dead: ", err)
	}
	own.Process.Kill()
	own.Wait()
}

// TestNothingStaysAfterAKill kills a launcher and its guard: no secret is left then, and the next launcher removes what
// is.
func TestNothingStaysAfterAKill(t *testing.T) {
	tmp := t.TempDir()
	l := newLives(t)
	launcher := exec.Command(os.Args[0], "record", l.path)
	launcher.Env = append(os.Environ(), role+"=launcher", "TMPDIR="+tmp)
	if err := launcher.Start(); err != nil {
		t.Fatal(err)
	}
	l.begun(t, 2)
	before := files(t, tmp)
	if !slices.ContainsFunc(before, func(path string) bool { return strings.HasSuffix(path, ".sock") }) {
		t.Errorf("the ranks have no sockets: %v", before)
	}
	for _, pid := range childrenOf(launcher.Process.Pid) { // the guard first
		if sid, err := unix.Getsid(pid); err == nil && sid == pid {
			syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	launcher.Process.Kill()
	launcher.Wait()
	l.over(t)
	for _, path := range files(t, tmp) {
		text, err := os.ReadFile(path)
		if err == nil && filepath.Base(path) != labelName && len(strings.TrimSpace(string(text))) >= 64 {
			t.Errorf("%s may be a secret", path)
		}
	}
	again := exec.Command(os.Args[0], "env")
	again.Env = append(os.Environ(), role+"=launcher", "TMPDIR="+tmp)
	if text, err := again.CombinedOutput(); err != nil {
		t.Fatal(err, string(text))
	}
	left := slices.DeleteFunc(files(t, tmp),
		func(path string) bool { return path == filepath.Join(tmp, filepath.Base(JobsDir())) })
	if len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func childrenOf(pid int) (pids []int) {
	names, _ := filepath.Glob("/proc/[0-9]*")
	for _, name := range names {
		if n, err := strconv.Atoi(filepath.Base(name)); err == nil && process.ParentOf(n) == pid {
			pids = append(pids, n)
		}
	}
	return pids
}
