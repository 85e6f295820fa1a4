package bootstrap

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/secure"
)

// strangerAddr, in the environment, makes this test binary a process that says something at a socket and tells what it hears.
const strangerAddr = "CHORUS_TEST_STRANGER"

func stranger(addr string) {
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

// TestSeatOfAnotherUser has a process of another user connect to a seat, whose socket has no permissions: it's turned away without a word, and
// this user's processes don't notice.
func TestSeatOfAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("left out: only root can start processes of another user")
	}
	seat, err := Host("", Options{Security: &secure.Policy{}})
	if err != nil {
		t.Fatal(err)
	}
	defer seat.Close()
	dir, err := os.MkdirTemp("", "chorus-") // others may enter it, unlike t.TempDir's
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
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
	keys, err := seat.Local().NumKeys(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = []string{strangerAddr + "=" + seat.Address().Unix}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "heard 0 bytes, closed: true") {
		t.Errorf("another user's process: %v: %s", err, out)
	}
	if got, err := seat.Local().NumKeys(t.Context()); err != nil || got != keys {
		t.Errorf("%d keys, %v; there were %d", got, err, keys)
	}
	st, err := Reach(t.Context(), seat.Address(), Options{Security: &secure.Policy{}})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	if err := st.Set(t.Context(), "key", []byte("value")); err != nil {
		t.Error(err)
	}
}
