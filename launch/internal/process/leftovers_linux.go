package process

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A process that a rank has started may leave its process group and its session, and outlive it: a daemon. Such
// processes are recognized by the error file in their environment, which lies in the launcher's own directory. Where
// the launcher's process adopts orphans and starts nothing else (Job.Adopt), its children are such processes, too.

// EndLeftovers kills the processes that were started with an error file in the directory scratch, and, if adopted isn't
// nil, the children of this process for which it returns true. It returns when there are none any more, or when they
// can't be killed.
func EndLeftovers(scratch string, adopted func(pid int) bool) {
	mark := []byte(ErrorFileVariable + "=" + scratch + string(filepath.Separator))
	for pause := time.Millisecond; pause < time.Second; pause *= 2 {
		if killLeftovers(mark, adopted) == 0 {
			return
		}
		time.Sleep(pause) // they may be starting others
	}
}

// killLeftovers goes through all processes once and returns how many it has killed.
func killLeftovers(mark []byte, adopted func(pid int) bool) (killed int) {
	names, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range names {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil || pid == os.Getpid() {
			continue
		}
		if state, ppid := stateOf(pid); state == 'Z' {
			if adopted != nil && ppid == os.Getpid() && adopted(pid) {
				syscall.Wait4(pid, nil, syscall.WNOHANG, nil)
			}
			continue
		}
		child := adopted != nil && ParentOf(pid) == os.Getpid() && adopted(pid)
		if !child && !marked(dir, mark) {
			continue
		}
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			continue
		}
		// The number may be another process's by now; what the descriptor stands for, if it's what was meant before and still
		// is, was meant all along.
		if child && ParentOf(pid) == os.Getpid() || !child && marked(dir, mark) {
			if unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) == nil {
				killed++
			}
		}
		unix.Close(fd)
	}
	return killed
}

// marked reports whether a process was started with a text in its environment; never of one of another user, or that is
// dead.
func marked(dir string, mark []byte) bool {
	environ, err := os.ReadFile(filepath.Join(dir, "environ"))
	return err == nil && (bytes.HasPrefix(environ, mark) || bytes.Contains(environ, append([]byte{0}, mark...)))
}

// ParentOf returns the parent of a process; 0 if there is none.
func ParentOf(pid int) int {
	_, ppid := stateOf(pid)
	return ppid
}

// Identity tells a process from all others of this host, those included that had or will have its number.
func Identity(pid int) string {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	const start = 19 // field 22 of the line, of which the name is the second
	if len(fields) <= start {
		return strconv.Itoa(pid)
	}
	return fmt.Sprintf("%d@%s", pid, fields[start])
}

// stateOf returns the state of a process, such as 'Z', and its parent.
func stateOf(pid int) (state byte, ppid int) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0
	}
	rest := text[bytes.LastIndexByte(text, ')')+1:] // the name before it may be anything
	fmt.Sscanf(string(rest), " %c %d", &state, &ppid)
	return state, ppid
}

// reapAdopted reaps the dead children of this process that it has not started itself.
func (s *Spawner) reapAdopted() {
	names, _ := filepath.Glob("/proc/[0-9]*")
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, dir := range names {
		pid, _ := strconv.Atoi(filepath.Base(dir))
		if state, ppid := stateOf(pid); state == 'Z' && ppid == os.Getpid() && !s.own[pid] {
			syscall.Wait4(pid, nil, syscall.WNOHANG, nil)
		}
	}
}
