//go:build linux

package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/internal/testutil"
	"github.com/chorus-comms/chorus/internal/testutil/sshtest"
)

// sshHosts are hosts with a folder for what the tests write.
type sshHosts struct {
	*sshtest.Hosts
	dir string
}

func newSSHHosts(t *testing.T) *sshHosts { return &sshHosts{sshtest.Start(t), t.TempDir()} }

func (h *sshHosts) path(name string) string { return filepath.Join(h.dir, name) }

func (h *sshHosts) write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(h.path(name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (h *sshHosts) read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// command is chorus run with ssh of these hosts.
func (h *sshHosts) command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	chorus, err := exec.LookPath("chorus")
	if err != nil {
		t.Fatal(err)
	}
	own := []string{"run", "--ssh", h.SSH, "--remote-chorus", chorus, "-x", "TMPDIR", "--grace", "5s"}
	cmd := exec.Command(chorus, append(own, args...)...)
	cmd.Dir = h.dir
	cmd.Env = append(os.Environ(), "TMPDIR="+h.dir)
	return cmd
}

// run runs it to its end.
func (h *sshHosts) run(t *testing.T, args ...string) (out, errs string, code int) {
	t.Helper()
	cmd := h.command(t, args...)
	var o, e bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader("line one\nline two\n"), &o, &e
	if err := cmd.Run(); cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return o.String(), e.String(), cmd.ProcessState.ExitCode()
}

// start starts it with ranks that print "RANK PID", and returns the pids when all have. The other lines come on rest.
func (h *sshHosts) start(t *testing.T, ranks int, args ...string) (cmd *exec.Cmd, pids map[int]int, rest chan string,
	errs *bytes.Buffer) {
	t.Helper()
	cmd = h.command(t, args...)
	errs = new(bytes.Buffer)
	cmd.Stderr = errs
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	pids = map[int]int{}
	for len(pids) < ranks {
		line, err := lines.ReadString('\n')
		if err != nil {
			cmd.Wait()
			t.Fatalf("%v: %s", err, errs)
		}
		var prefix, rank, pid int
		if _, err := fmt.Sscanf(line, "[%d]: %d %d", &prefix, &rank, &pid); err == nil {
			pids[rank] = pid
		}
	}
	rest = make(chan string, 1)
	go func() {
		text, _ := io.ReadAll(lines)
		rest <- string(text)
	}()
	return cmd, pids, rest, errs
}

const waiting = `trap 'echo interrupted $RANK; exit 0' INT; echo $RANK $$; while :; do sleep 0.1; done`

// awaitGone waits for the end of processes.
func awaitGone(t *testing.T, pids map[int]int) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		left := 0
		for _, pid := range pids {
			if syscall.Kill(pid, 0) == nil {
				left++
			}
		}
		if left == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d of the ranks' processes %v are left", left, pids)
		}
	}
}

func wantParts(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(text, p) {
			t.Errorf("%q is missing in:\n%s", p, text)
		}
	}
}

// TestRunOnHosts starts launchers by a real sshd.
func TestRunOnHosts(t *testing.T) {
	h := newSSHHosts(t)

	t.Run("job", func(t *testing.T) {
		secret := strings.Repeat("5ec2e7", 8)
		t.Setenv("CHORUS_SECRET", secret)
		out, errs, code := h.run(t, "-H", "localhost:1,node-a:2,node-b", "-x", "WHO=me", "sh", "-c",
			`echo $RANK of $WORLD_SIZE on $GROUP_RANK for $WHO in $PWD: $(cat $CHORUS_SECRET_FILE) ${CHORUS_SECRET-unset}; cat`)
		if code != 0 || errs != "" {
			t.Errorf("status %d: %s", code, errs)
		}
		for rank, node := range []int{0, 1, 1, 2} {
			wantParts(t, out, fmt.Sprintf("[%d]: %d of 4 on %d for me in %s: %s unset\n", rank, rank, node, h.dir, secret))
		}
		wantParts(t, out, "[0]: line one\n[0]: line two\n")
		if args := h.read(t, h.Args); strings.Contains(args, secret) || !strings.Contains(args, "BatchMode=yes") {
			t.Errorf("arguments of ssh: %s", args)
		}
	})

	t.Run("collectives", func(t *testing.T) {
		testutil.SkipIfShort(t) // builds a program
		first := h.path("first")
		build := exec.Command("go", "build", "-o", first, "./examples/first")
		build.Dir = testutil.ModuleRoot(t)
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		h.write(t, "hosts", "node-a slots=2 # two ranks\nnode-b:2\n")
		out, errs, code := h.run(t, "--hostfile", "hosts", "./first")
		if code != 0 {
			t.Errorf("status %d: %s", code, errs)
		}
		wantParts(t, out, "[0]: rank 0 of 4: [1.5 1]", "[3]: rank 3 of 4: [1.5 1]")
	})

	t.Run("failure", func(t *testing.T) {
		out, errs, code := h.run(t, "-H", "node-a:1,node-b:2", "sh", "-c",
			`echo up; [ $RANK = 2 ] || exec sleep 60; echo broken >&2; exit 7`)
		if code != 7 || strings.Count(errs, "exited with status 7") != 1 {
			t.Errorf("status %d: %s%s", code, out, errs)
		}
		wantParts(t, errs, "node-b: rank 2 (local rank 1", "[2]: broken", "node-a: stopped rank 0")
	})

	for name, c := range map[string]struct {
		args []string
		want []string
		code int
	}{
		"unknown key": {[]string{"-H", "localhost:1,unknown:2", "true"}, []string{
			"chorus: unknown: Host key verification failed.",
			"node 1 (unknown, ranks 1-2) is lost", "run `ssh unknown` once"}, 1},
		"changed key": {[]string{"-H", "localhost,changed,changed", "true"}, []string{
			"REMOTE HOST IDENTIFICATION HAS CHANGED",
			"node 1 (changed, ranks 1-2) is lost", "ssh-keygen -R"}, 1},
		"unreachable": {[]string{"-H", "node-a,gone", "-n", "2", "true"}, []string{
			"Connection refused", "node 1 (gone, ranks 2-3) is lost"}, 1},
		"no chorus": {[]string{"-H", "localhost:1,node-b:1", "--remote-chorus", "/no/chorus", "true"},
			[]string{"node 1 (node-b, rank 1) is lost", "--remote-chorus PATH"}, 1},
		"no program": {[]string{"-H", "node-a:1,node-b:1", "./nosuch"}, []string{"node-a: ", "./nosuch"}, 127},
		"bad list":   {[]string{"-H", "a:x", "true"}, []string{"--host: ", "chorus run --help"}, 2},
		"two counts": {[]string{"-H", "a:2,b:2", "-n", "2", "true"}, []string{"--nproc-per-node"}, 2},
		"bad flag":   {[]string{"-H", "node-a:2", "--bind-to", "foot", "true"}, []string{`cannot be bound to "foot"`}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			if _, errs, code := h.run(t, c.args...); code != c.code {
				t.Errorf("status %d: %s", code, errs)
			} else {
				wantParts(t, errs, c.want...)
			}
		})
	}

	if testutil.Short() {
		return // the others wait for processes that end: make test-long
	}
	t.Run("interrupted", func(t *testing.T) {
		cmd, pids, rest, errs := h.start(t, 3, "-H", "localhost:1,node-a:1,node-b:1", "sh", "-c", waiting)
		cmd.Process.Signal(os.Interrupt)
		out := <-rest
		cmd.Wait()
		if code := cmd.ProcessState.ExitCode(); code != 130 || strings.Count(errs.String(), "received SIGINT") != 1 {
			t.Errorf("status %d: %s", code, errs)
		}
		wantParts(t, out, "interrupted 0", "interrupted 1", "interrupted 2")
		awaitGone(t, pids)
	})

	t.Run("dropped", func(t *testing.T) {
		cmd, pids, rest, errs := h.start(t, 3, "-H", "localhost:1,node-a:1,node-b:1", "sh", "-c", waiting)
		syscall.Kill(sshSession(t, pids[1]), syscall.SIGKILL)
		<-rest
		cmd.Wait()
		if code := cmd.ProcessState.ExitCode(); code != 1 || strings.Count(errs.String(), "is lost") != 1 {
			t.Errorf("status %d: %s", code, errs)
		}
		wantParts(t, errs.String(), "node 1 (node-a, rank 1) is lost: the connection to its launcher has ended: ssh ended")
		awaitGone(t, pids)
	})

	t.Run("silent", func(t *testing.T) {
		cmd, pids, rest, errs := h.start(t, 1, "-H", "node-a:1", "--heartbeat", "1s", "sh", "-c", waiting)
		launcher := parentOf(t, pids[0])
		syscall.Kill(launcher, syscall.SIGSTOP)
		<-rest
		cmd.Wait()
		syscall.Kill(launcher, syscall.SIGCONT)
		if code := cmd.ProcessState.ExitCode(); code != 1 {
			t.Errorf("status %d: %s", code, errs)
		}
		wantParts(t, errs.String(), "node 0 (node-a, rank 0) is lost: its launcher has been silent since ")
		awaitGone(t, pids)
	})

	t.Run("killed", func(t *testing.T) {
		cmd, pids, rest, _ := h.start(t, 2, "-H", "localhost:1,node-a:1", "sh", "-c", waiting)
		cmd.Process.Kill()
		cmd.Wait()
		<-rest
		awaitGone(t, pids)
	})
}

// parentOf is the parent of a process.
func parentOf(t *testing.T, pid int) (parent int) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	fmt.Sscanf(rest, "%c %d", new(rune), &parent)
	return parent
}

// sshSession is the process of sshd below which another one runs.
func sshSession(t *testing.T, pid int) int {
	t.Helper()
	for pid > 1 {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			t.Fatal(err)
		}
		name, rest, _ := strings.Cut(string(text), ") ")
		if strings.Contains(name, "(sshd") {
			return pid
		}
		fmt.Sscanf(rest, "%c %d", new(rune), &pid)
	}
	t.Fatal("no sshd above the rank")
	return 0
}
