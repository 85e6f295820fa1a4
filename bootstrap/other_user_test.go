package bootstrap

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/config"
	"github.com/chorus-comms/chorus/internal/testutil"
	"github.com/chorus-comms/chorus/secure"
)

// otherUserEnv, in the environment, makes this test binary a process that says something at a socket and tells what it
// hears.
const otherUserEnv = "CHORUS_TEST_STRANGER"

// Instead of an address it takes "listen " and names, at which it listens until it's killed.
func otherUserMain(addr string) {
	if names, ok := strings.CutPrefix(addr, "listen "); ok {
		for name := range strings.FieldsSeq(names) {
			network := "unix"
			if name[0] != '@' {
				network = "tcp"
			}
			l, err := net.Listen(network, name)
			if err != nil {
				fmt.Println(err)
				return
			}
			go func() {
				for {
					if _, err := l.Accept(); err != nil {
						return
					}
				}
			}()
		}
		fmt.Println("ready")
		io.Copy(io.Discard, os.Stdin)
		return
	}
	c, err := net.Dial("unix", addr)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(20 * time.Second))
	io.WriteString(c, "\x00\xce\xf7\x85\x3c\x00\x01\x00\x00\x00\x00\x00\x00\x00key") // as PyTorch's clients begin
	heard, err := io.ReadAll(c)
	fmt.Printf("heard %d bytes, closed: %v", len(heard), !errors.Is(err, os.ErrDeadlineExceeded))
}

// otherUserCommand returns a process of another user that runs otherUserMain. The caller starts it.
func otherUserCommand(t *testing.T, what string) *exec.Cmd {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("left out: only root can start processes of another user")
	}
	dir, err := os.MkdirTemp("", "chorus-") // others may enter it, unlike t.TempDir's
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(exe)
	if err != nil {
		t.Fatal(err)
	}
	self := filepath.Join(dir, "self")
	if err := os.WriteFile(self, data, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = []string{otherUserEnv + "=" + what}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	return cmd
}

// holdNames has a process of another user take names.
func holdNames(t *testing.T, names ...string) (pid int) {
	t.Helper()
	cmd := otherUserCommand(t, "listen "+strings.Join(names, " "))
	in, out := testutil.StartPiped(t, cmd)
	t.Cleanup(func() { in.Close(); cmd.Wait() })
	if line, _ := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatalf("it says %q", line)
	}
	return cmd.Process.Pid
}

// TestNameTakenByAnotherUser has another user take every socket name that can be known before the job's ranks start.
func TestNameTakenByAnotherUser(t *testing.T) {
	info := Info{Size: 2, LocalSize: 2, Launcher: OpenMPI, RunID: "name taken " + strconv.Itoa(os.Getpid())}
	name, err := socketName(info)
	if err != nil {
		t.Fatal(err)
	}
	pid := holdNames(t, name, name+"-", name+"-0", name+"-AAAAAAAAAAAAAAAAAAAAAAAAAA")
	opts := Options{Timeout: 300 * time.Millisecond, Security: &secure.Policy{}}

	// No process of this user serves: the error names the one that has the socket's name.
	info.Rank = 1
	_, err = Open(t.Context(), info, opts)
	if want := fmt.Sprintf("uid 65534, pid %d", pid); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v doesn't name %s", err, want)
	}

	opts.Timeout = 20 * time.Second
	var ranks sync.WaitGroup
	for r, st := range world(t, info, opts) {
		ranks.Go(func() {
			if _, err := Exchange(t.Context(), st, r, 2, nil); err != nil {
				t.Error(err)
			}
		})
	}
	ranks.Wait()
}

// TestPortTakenByAnotherUser has another user listen at the job's port: each rank's error names that user, at
// once.
func TestPortTakenByAnotherUser(t *testing.T) {
	info := Info{Size: 2, LocalSize: 2, MasterAddr: "127.0.0.1", MasterPort: freePort(t)}
	holdNames(t, info.master())
	for info.Rank = range 2 {
		_, err := Open(t.Context(), info, Options{Timeout: 20 * time.Second,
			Security: &secure.Policy{Plain: config.PlainUser}})
		if err == nil || !strings.Contains(err.Error(), "uid 65534") || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("rank %d: %v", info.Rank, err)
		}
	}
}

// TestTwoRanksZero opens rank 0 of a job twice: the second one's error names the first one's
// process.
func TestTwoRanksZero(t *testing.T) {
	info := Info{Size: 2, LocalSize: 2, RunID: "twice " + strconv.Itoa(os.Getpid())}
	first, err := Open(t.Context(), info, Options{Security: &secure.Policy{}})
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	second, err := Open(t.Context(), info, Options{Security: &secure.Policy{}})
	if want := fmt.Sprintf("another process (pid %d) is rank 0", os.Getpid()); err == nil || !strings.Contains(err.Error(),
		want) {
		t.Errorf("%v, want %q", err, want)
	}
	if err == nil {
		second.Close()
	}
}

// TestHostOfAnotherUser has a process of another user connect to a host's socket, which has no permissions. The
// connection is closed without a byte, and this user's processes don't notice.
func TestHostOfAnotherUser(t *testing.T) {
	hosted, err := Host("", Options{Security: &secure.Policy{}})
	if err != nil {
		t.Fatal(err)
	}
	defer hosted.Close()
	keys, err := hosted.Local().NumKeys(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	cmd := otherUserCommand(t, hosted.Address().Unix)
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "heard 0 bytes, closed: true") {
		t.Errorf("another user's process: %v: %s", err, out)
	}
	if got, err := hosted.Local().NumKeys(t.Context()); err != nil || got != keys {
		t.Errorf("%d keys, %v; there were %d", got, err, keys)
	}
	st, err := Reach(t.Context(), hosted.Address(), Options{Security: &secure.Policy{}})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	if err := st.Set(t.Context(), "key", []byte("value")); err != nil {
		t.Error(err)
	}
}
