package gloo_test

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/chorus-comms/chorus/comm/gloo/glootest"
)

// TestIPv6 is TestWithPyTorch on a host without IPv4: a network of its own, which takes privileges.
func TestIPv6(t *testing.T) {
	const inside = "CHORUS_TEST_GLOO_IPV6"
	if os.Getenv(inside) == "" {
		cmd := exec.Command("sh", "-c", "ip link set lo up && ip addr del 127.0.0.1/8 dev lo && exec "+os.Args[0]+
			" -test.run=^TestIPv6$ -test.v")
		cmd.Env = append(os.Environ(), inside+"=1", "GLOO_SOCKET_IFNAME=lo", glootest.Door(t))
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWUSER,
			UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}}
		out, err := cmd.CombinedOutput()
		if !strings.Contains(string(out), "=== RUN") {
			t.Skipf("left out: no network of its own for a test: %v %s", err, out)
		}
		if err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	home = "::1"
	compare(t, 3, []string{"pgg", "gpp"}, append(everything([]string{"float32"}, 17), groups(3)...))
}
