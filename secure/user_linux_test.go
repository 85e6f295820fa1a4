package secure

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// otherUserEnv, in the environment, makes this test binary connect to an address and wait for its end.
const otherUserEnv = "CHORUS_TEST_STRANGER"

func init() {
	addr := os.Getenv(otherUserEnv)
	if addr == "" {
		return
	}
	network := "tcp"
	if filepath.IsAbs(addr) {
		network = "unix"
	}
	if c, err := net.Dial(network, addr); err == nil {
		c.Read(make([]byte, 1))
	}
	os.Exit(0)
}

// TestSameUser asks the kernel about processes of this user and, where this one may start them, of another.
func TestSameUser(t *testing.T) {
	dir, err := os.MkdirTemp("", "chorus-") // others may enter it, unlike t.TempDir's
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, at := range [][2]string{{"tcp", "127.0.0.1:0"}, {"tcp", "[::1]:0"}, {"tcp", ":0"},
		{"unix", filepath.Join(dir, "socket")}} {
		l, err := net.Listen(at[0], at[1])
		if err != nil {
			t.Logf("left out: %v", err)
			continue
		}
		if at[0] == "unix" {
			os.Chmod(at[1], 0o777)
		}
		addr := l.Addr().String()
		for _, uid := range []int{os.Geteuid(), 65534} {
			cmd := exec.Command(self(t, dir))
			cmd.Env = []string{otherUserEnv + "=" + addr}
			if uid != os.Geteuid() {
				if os.Geteuid() != 0 {
					continue // only root can start processes of others
				}
				cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			l.(interface{ SetDeadline(time.Time) error }).SetDeadline(time.Now().Add(20 * time.Second))
			c, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			var want error
			if uid != os.Geteuid() {
				want = ErrOtherUser
			}
			if err := SameUser(c); !errors.Is(err, want) {
				t.Errorf("%s, user %s: %v, want %v", addr, strconv.Itoa(uid), err, want)
			}
			c.Close()
			cmd.Wait()
		}
		l.Close()
	}
}

// self is a copy of this binary that every user may run.
func self(t *testing.T, dir string) string {
	t.Helper()
	path := filepath.Join(dir, "self")
	if _, err := os.Stat(path); err == nil {
		return path
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(exe)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}
