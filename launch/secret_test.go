package launch

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/launch/internal/launchtest"
	"github.com/chorus-comms/chorus/secure"
	"github.com/chorus-comms/chorus/store"
)

// TestASecretForEachJob looks at what a rank finds in its environment.
func TestASecretForEachJob(t *testing.T) {
	texts := map[string]bool{}
	for range 2 {
		job, out, errs := newJob(t, 1, "show", "CHORUS_SECRET_FILE")
		if err := job.Run(t.Context()); err != nil {
			t.Fatal(err, errs)
		}
		var path, mode, text string
		for line := range strings.Lines(out.String()) {
			_, line, _ = strings.Cut(strings.TrimSpace(line), ": ")
			switch name, value, _ := strings.Cut(line, "="); name {
			case "path":
				path = value
			case "mode":
				mode = value
			case "text":
				text = value
			}
		}
		if _, err := secure.Parse(text); err != nil || mode != "-rw-------" || texts[text] {
			t.Errorf("the rank found %q, %s: %v; seen before: %v", path, mode, err, texts[text])
		}
		texts[text] = true
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s outlives the job: %v", path, err)
		}
	}
	own := filepath.Join(t.TempDir(), "own")
	if err := os.WriteFile(own, []byte(secure.Generate()), 0o600); err != nil {
		t.Fatal(err)
	}
	job, out, errs := newJob(t, 1, "env", "CHORUS_SECRET_FILE")
	job.Env = append(job.Env, "CHORUS_SECRET_FILE="+own)
	if err := job.Run(t.Context()); err != nil {
		t.Fatal(err, errs)
	}
	launchtest.WantText(t, out.String(), "CHORUS_SECRET_FILE="+own)
}

// TestNodesNeedASecret unless they meet on the loopback.
func TestNodesNeedASecret(t *testing.T) {
	job, _, _ := newJob(t, 1, "env")
	job.Nodes, job.Endpoint = 2, "192.0.2.7:29400"
	if err := job.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "chorus secret > job.secret") {
		t.Errorf("without: %v", err)
	}
	job.Env = append(job.Env, "CHORUS_SECRET=short")
	if err := job.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "CHORUS_SECRET: ") ||
		strings.Contains(err.Error(), "short") {
		t.Errorf("too short: %v", err)
	}
}

// TestNodesWithSecrets meet if they have the same one.
func TestNodesWithSecrets(t *testing.T) {
	same := secure.Generate()
	nodes := startNodes(t, []int{1, 1}, true,
		func(_ int, j *Job) { j.Env = append(j.Env, "CHORUS_SECRET="+same, "CHORUS_TLS=1") }, "env", "RANK")
	for i, n := range nodes {
		if err := <-n.result; err != nil {
			t.Errorf("node %d: %v\n%s", i, err, n.errs)
		}
	}
}

// TestNodesSetUpOtherwise learn at once what differs, on both sides, and not at their deadlines.
func TestNodesSetUpOtherwise(t *testing.T) {
	same := "CHORUS_SECRET=" + secure.Generate()
	for name, c := range map[string]struct {
		env  [2][]string
		want error  // of node 1
		said string // by node 0
	}{
		"another secret": {[2][]string{{same}, {"CHORUS_SECRET=" + secure.Generate()}}, secure.ErrRefused,
			"calls itself the launcher of node 1 on "},
		"no secret": {[2][]string{{same}, nil}, secure.ErrWantsSecret, "connected without the secret of the job"},
		"a secret":  {[2][]string{nil, {same}}, secure.ErrNoSecret, "it has a secret, but this process has none"},
		"TLS on one": {[2][]string{{same}, {same, "CHORUS_TLS=1"}}, secure.ErrNoTLS,
			"it uses TLS, but this process doesn't"},
		"TLS on the server": {[2][]string{{same, "CHORUS_TLS=1"}, {same}}, secure.ErrWantsTLS,
			"it doesn't use TLS, but this process does"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			nodes := startNodes(t, []int{1, 1}, true, func(n int, j *Job) {
				j.Env = append(j.Env, c.env[n]...)
				if n == 1 {
					j.JoinTimeout = time.Minute
				}
			}, "env", "RANK")
			if err := <-nodes[1].result; !errors.Is(err, c.want) || errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("node 1: %v, want %v", err, c.want)
			}
			nodes[0].errs.Await(t, c.said, 1)
			nodes[0].signals <- syscall.SIGTERM
			<-nodes[0].result
		})
	}
}

// TestAPlainClientIsMentioned on the console, once.
func TestAPlainClientIsMentioned(t *testing.T) {
	job, out, errs := newJob(t, 1, "echo")
	addr := freeEndpoint(t)
	_, port, _ := net.SplitHostPort(addr)
	job.MasterPort, _ = strconv.Atoi(port)
	job.Env = append(job.Env, "CHORUS_STORE_PLAIN=none")
	signals := make(chan os.Signal)
	job.Signals = signals
	result := make(chan error, 1)
	go func() { result <- job.Run(t.Context()) }()
	out.Await(t, "ready", 1)
	for range 3 {
		st, err := store.DialTCP(t.Context(), addr, store.TCPOptions{Timeout: 100 * time.Millisecond})
		if err == nil {
			st.Close()
			t.Error("a client without the secret was let in")
		}
	}
	signals <- syscall.SIGINT
	<-result
	if n := strings.Count(errs.String(), "CHORUS_STORE_PLAIN=any"); n != 1 {
		t.Errorf("mentioned %d times:\n%s", n, errs)
	}
}
