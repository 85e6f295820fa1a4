package process

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// RunGuard is the main function of the guard, a small process beside the launcher. On r, its standard input, the
// launcher writes which process groups are alive and which directory is its own. When r ends, because the launcher is
// gone, RunGuard kills the groups that are left, and all other processes that the ranks have started, and removes the
// directory.
//
// The ranks themselves need no guard: the kernel kills them with the launcher. But it leaves alone what they have
// started, such as the program below `go run` or below a shell script, or a daemon.
func RunGuard(r io.Reader) error {
	alive := map[int]bool{}
	scratch := ""
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		if dir, ok := strings.CutPrefix(lines.Text(), "="); ok && strings.HasPrefix(filepath.Base(dir), scratchPrefix) {
			scratch = dir
			continue
		}
		op, pid, err := parseGuardLine(lines.Text())
		if err != nil {
			return err
		}
		if op == '+' {
			alive[pid] = true
		} else {
			delete(alive, pid)
		}
	}
	for pid := range alive {
		syscall.Kill(-pid, syscall.SIGKILL)
	}
	if scratch != "" {
		EndLeftovers(scratch, nil)
		os.RemoveAll(scratch)
	}
	return lines.Err()
}

// parseGuardLine reads "+PID" or "-PID". Pids 0 and 1 would mean this group and everybody.
func parseGuardLine(line string) (op byte, pid int, err error) {
	if line == "" || strings.Trim(line[1:], "0123456789") != "" {
		return 0, 0, fmt.Errorf("launch: guard: want +PID or -PID, not %q", line)
	}
	pid, err = strconv.Atoi(line[1:])
	if err != nil || pid < 2 || line[0] != '+' && line[0] != '-' {
		return 0, 0, fmt.Errorf("launch: guard: want +PID or -PID, not %q", line)
	}
	return line[0], pid, nil
}

// Guard is the launcher's end. A nil guard does nothing.
type Guard struct {
	mu  sync.Mutex
	cmd *exec.Cmd
	w   io.WriteCloser
}

// StartGuard starts the command that calls RunGuard and tells it of the directory scratch. It runs in a session of its
// own, out of reach of the terminal's signals.
func StartGuard(command []string, scratch string) (*Guard, error) {
	if len(command) == 0 {
		return nil, nil
	}
	cmd := exec.Command(command[0], command[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	w, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("launch: cannot start the guard: %w", err)
	}
	g := &Guard{cmd: cmd, w: w}
	g.say("=%s\n", scratch)
	return g, nil
}

// Pid is the guard's; 0 if there is none.
func (g *Guard) Pid() int {
	if g == nil {
		return 0
	}
	return g.cmd.Process.Pid
}

// Add tells the guard of a process group.
func (g *Guard) Add(pid int)    { g.say("+%d\n", pid) }
func (g *Guard) remove(pid int) { g.say("-%d\n", pid) }

func (g *Guard) say(format string, what any) {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	// A guard that died early can only be missed if the launcher is killed as well.
	fmt.Fprintf(g.w, format, what)
}

// Close ends the guard.
func (g *Guard) Close() error {
	if g == nil {
		return nil
	}
	return errors.Join(g.w.Close(), g.cmd.Wait())
}
