package launch

import (
	"bufio"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// lives tells whether processes are alive that hold a fifo open for writing. A look at their pids would not do: those
// may belong to others by then.
type lives struct {
	path    string
	r, hold *os.File
}

func newLives(t *testing.T) *lives {
	t.Helper()
	l := &lives{path: filepath.Join(t.TempDir(), "fifo")}
	err := syscall.Mkfifo(l.path, 0o600)
	if err == nil {
		// With a writer of our own, neither opening nor reading sees an end before the others have come.
		l.hold, err = os.OpenFile(l.path, os.O_RDWR, 0)
	}
	if err == nil {
		l.r, err = os.OpenFile(l.path, os.O_RDONLY, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	l.r.SetReadDeadline(time.Now().Add(20 * time.Second))
	t.Cleanup(func() { l.hold.Close(); l.r.Close() })
	return l
}

// begun returns when n processes have written a line.
func (l *lives) begun(t *testing.T, n int) {
	t.Helper()
	lines := bufio.NewScanner(l.r)
	for range n {
		if !lines.Scan() {
			t.Fatal("not all processes began:", lines.Err())
		}
	}
	l.hold.Close()
}

// over returns when all are dead.
func (l *lives) over(t *testing.T) {
	t.Helper()
	if _, err := io.Copy(io.Discard, l.r); err != nil {
		t.Fatal("processes are still alive: ", err)
	}
}

// TestWhatARankLeavesBehindDiesWithIt also when the rank has ended well.
func TestWhatARankLeavesBehindDiesWithIt(t *testing.T) {
	l := newLives(t)
	job, _, errs := newJob(t, 2, "parent", l.path, "go")
	if err := job.Run(t.Context()); err != nil {
		t.Fatal(err, errs)
	}
	l.begun(t, 2)
	l.over(t)
}

func TestStoppingARankStopsWhatItStarted(t *testing.T) {
	l := newLives(t)
	job, _, _ := newJob(t, 2, "parent", l.path, "wait")
	signals := make(chan os.Signal)
	job.Signals = signals
	result := make(chan error, 1)
	go func() { result <- job.Run(t.Context()) }()
	l.begun(t, 2)
	signals <- syscall.SIGTERM
	if ExitCode(<-result) != 128+15 {
		t.Error("want the status of SIGTERM")
	}
	l.over(t)
}

// TestAKilledLauncherLeavesNobody kills a launcher with SIGKILL. Its ranks die even without a guard, and with one also
// what they started.
func TestAKilledLauncherLeavesNobody(t *testing.T) {
	for _, ranks := range []string{"hold", "parent"} {
		t.Run(ranks, func(t *testing.T) {
			l := newLives(t)
			launcher := exec.Command(os.Args[0], ranks, l.path, "wait")
			tmp := t.TempDir()
			launcher.Env = append(os.Environ(), role+"=launcher", "TMPDIR="+tmp)
			launcher.Stderr = os.Stderr
			if err := launcher.Start(); err != nil {
				t.Fatal(err)
			}
			l.begun(t, 2)
			launcher.Process.Kill()
			launcher.Wait()
			l.over(t)
			if ranks == "parent" { // the guard kills first and removes then
				awaitFiles(tmp, "0")
			}
		})
	}
}

// files lists what is below a directory.
func files(t *testing.T, dir string) (paths []string) {
	t.Helper()
	if err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if path != dir {
			paths = append(paths, path)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return paths
}
