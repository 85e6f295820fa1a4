// Package sshtest starts a real sshd for tests, which stands for several hosts.
//
//	hosts := sshtest.Start(t)
//	cmd := exec.Command("chorus", "run", "--ssh", hosts.SSH, "-H", "node-a:1,node-b:1", program)
package sshtest

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/chorus-comms/chorus/internal/testutil"
	"github.com/chorus-comms/chorus/internal/testutil/nettest"
)

// Hosts is an sshd of this user on the loopback. Under any name ssh finds it there, and knows its key. But the key of
// "unknown" is not known, that of "changed" is another, and "gone" can't be reached.
type Hosts struct {
	SSH     string // the program ssh, with the configuration for these hosts
	Args    string // a file to which it adds its arguments, with a line for each call
	Version string // of the server, such as "OpenSSH_9.2p1"
}

// Start starts sshd, which ends with the test. Without sshd or ssh, or if this user can't log in, the test is skipped.
func Start(t testing.TB) *Hosts {
	t.Helper()
	sshd, err := exec.LookPath("sshd")
	if err != nil {
		sshd = "/usr/sbin/sshd" // not on every user's PATH
	}
	if _, err := os.Stat(sshd); err != nil {
		t.Skip("left out: there is no sshd (openssh-server)")
	}
	if _, err := exec.LookPath("ssh"); err != nil {
		t.Skip("left out: there is no ssh (openssh-client)")
	}
	if os.Getuid() == 0 {
		os.MkdirAll("/run/sshd", 0o755) // sshd wants it of root
	}
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	read := func(name string) string {
		text, err := os.ReadFile(path(name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	write := func(name, text string, mode os.FileMode) {
		if err := os.WriteFile(path(name), []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	port, err := nettest.FreePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"host", "other", "user"} {
		keygen := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path(key))
		if out, err := keygen.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	write("sshd_config", fmt.Sprintf("Port %d\nListenAddress 127.0.0.1\nHostKey %s\nAuthorizedKeysFile %s\n"+
		"PidFile none\nStrictModes no\nUsePAM no\nPermitRootLogin yes\nPasswordAuthentication no\n",
		port, path("host"), path("user.pub")), 0o600)
	write("known", "job "+read("host.pub")+"changed "+read("other.pub"), 0o600)
	write("ssh_config", fmt.Sprintf("Host changed\n  HostKeyAlias changed\n"+
		"Host unknown\n  HostKeyAlias unknown\nHost gone\n  Port 1\nHost *\n  HostName 127.0.0.1\n"+
		"  Port %d\n  IdentityFile %s\n  IdentitiesOnly yes\n  UserKnownHostsFile %s\n"+
		"  GlobalKnownHostsFile none\n  HostKeyAlias job\n", port, path("user"), path("known")), 0o600)
	h := &Hosts{SSH: path("ssh"), Args: path("args")}
	write("ssh", "#!/bin/sh\necho \"$@\" >>"+h.Args+"\nexec ssh -F "+path("ssh_config")+" \"$@\"\n", 0o755)

	cmd := exec.Command(sshd, "-D", "-e", "-f", path("sshd_config"))
	var log bytes.Buffer
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	testutil.Eventually(t, func() bool {
		c, err := net.Dial("tcp", "127.0.0.1:"+strconv.Itoa(port))
		if err != nil {
			return false
		}
		defer c.Close()
		greeting := make([]byte, 100) // SSH-2.0-OpenSSH_9.2p1 Debian-2
		n, _ := c.Read(greeting)
		words := bytes.Fields(bytes.TrimPrefix(greeting[:n], []byte("SSH-2.0-")))
		if len(words) > 0 {
			h.Version = string(words[0])
		}
		return n > 0
	}, "sshd listens")
	if out, err := exec.Command(h.SSH, "-o", "BatchMode=yes", "node-a", "true").CombinedOutput(); err != nil {
		t.Skipf("left out: this user can't log in by ssh here: %v: %s", err, out)
	}
	return h
}
