package etcd

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"github.com/chorus-comms/chorus/internal/testutil/nettest"
)

// memberVar, in the environment, makes this test binary a member of a cluster, as its value says.
const memberVar = "CHORUS_TEST_ETCD_MEMBER"

// A member is a process that serves etcd.
type member struct {
	Name, Dir, Cluster string
	Client, Peer       int    // ports
	Cert, Key, CA      string // files; empty: no TLS
	process            *exec.Cmd
	stdin              io.Closer
}

// A cluster is some members, which end with the test.
type cluster []*member

// startCluster starts n members, and returns when all of them serve.
func startCluster(t testing.TB, n int, change func(m *member)) cluster {
	t.Helper()
	port, err := nettest.FreePorts(2 * n)
	if err != nil {
		t.Fatal(err)
	}
	c := make(cluster, n)
	var all []string
	for i := range c {
		c[i] = &member{Name: fmt.Sprint("m", i), Dir: filepath.Join(t.TempDir(), "etcd"), Client: port + 2*i,
			Peer: port + 2*i + 1}
		all = append(all, fmt.Sprintf("%s=http://127.0.0.1:%d", c[i].Name, c[i].Peer))
	}
	for _, m := range c {
		m.Cluster = strings.Join(all, ",")
		change(m)
	}
	ready := make(chan error, n)
	for _, m := range c {
		go func() { ready <- m.start() }()
	}
	t.Cleanup(c.stop)
	for range c {
		if err := <-ready; err != nil {
			t.Fatal(err)
		}
	}
	return c
}

func (c cluster) stop() {
	for _, m := range c {
		m.kill()
	}
}

// endpoints are where clients connect.
func (c cluster) endpoints() []string {
	var all []string
	for _, m := range c {
		all = append(all, fmt.Sprint("127.0.0.1:", m.Client))
	}
	return all
}

// start runs the member, and returns when it serves.
func (m *member) start() error {
	say, err := json.Marshal(m)
	if err != nil {
		return err
	}
	m.process = exec.Command(os.Args[0])
	m.process.Env = append(os.Environ(), memberVar+"="+string(say))
	m.process.Stderr = os.Stderr
	out, err := m.process.StdoutPipe()
	if err != nil {
		return err
	}
	if m.stdin, err = m.process.StdinPipe(); err != nil { // which ends with this process, and the member with it
		return err
	}
	if err := m.process.Start(); err != nil {
		return err
	}
	if line, _ := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		return fmt.Errorf("member %s doesn't start", m.Name)
	}
	return nil
}

// kill kills the member as a fault of its host would.
func (m *member) kill() {
	if m.process == nil || m.process.Process == nil {
		return
	}
	m.process.Process.Kill()
	m.process.Wait()
	m.process = nil
}

// leader returns the member that leads.
func (c cluster) leader(t testing.TB) *member {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: c.endpoints(), Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for i, at := range c.endpoints() {
		if s, err := client.Status(ctx, at); err == nil && s.Leader == s.Header.MemberId {
			return c[i]
		}
	}
	t.Fatal("no member leads")
	return nil
}

// serveMember is the program of a member.
func serveMember(text string) error {
	var m member
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		return err
	}
	at := func(scheme string, port int) []url.URL {
		return []url.URL{{Scheme: scheme, Host: fmt.Sprint("127.0.0.1:", port)}}
	}
	c := embed.NewConfig()
	c.Name, c.Dir, c.InitialCluster = m.Name, m.Dir, m.Cluster
	c.ListenPeerUrls, c.AdvertisePeerUrls = at("http", m.Peer), at("http", m.Peer)
	scheme := "http"
	if m.CA != "" {
		scheme = "https"
		c.ClientTLSInfo.CertFile, c.ClientTLSInfo.KeyFile, c.ClientTLSInfo.TrustedCAFile = m.Cert, m.Key, m.CA
		c.ClientTLSInfo.ClientCertAuth = true
	}
	c.ListenClientUrls, c.AdvertiseClientUrls = at(scheme, m.Client), at(scheme, m.Client)
	c.TickMs, c.ElectionMs = 50, 500 // so that a lease may last a second
	c.UnsafeNoFsync = true
	c.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	e, err := embed.StartEtcd(c)
	if err != nil {
		return err
	}
	<-e.Server.ReadyNotify()
	fmt.Println("ready")
	io.Copy(io.Discard, os.Stdin)
	return nil // and the process ends as it is
}
