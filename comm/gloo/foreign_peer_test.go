package gloo_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/comm/gloo/glootest"
	"github.com/chorus-comms/chorus/store"
)

// A job is a job of PyTorch's and Go's ranks: ranks says of each which it is, "p" or "g".
type job struct {
	t      *testing.T
	ranks  string
	dir    string
	server *store.TCPServer
	addr   string           // the server's
	peers  []*glootest.Rank // by rank; nil for those in Go
}

// home is where the stores of jobs are.
var home = "127.0.0.1"

// start starts the store of a job, and PyTorch's ranks with a script or, without one, the steps.
func start(t *testing.T, ranks, script string, steps []glootest.Operation, env ...string) *job {
	t.Helper()
	s, err := store.ListenTCP(net.JoinHostPort(home, "0"), store.ServerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	j := &job{t: t, ranks: ranks, dir: t.TempDir(), server: s, addr: s.Addr().String(),
		peers: make([]*glootest.Rank, len(ranks))}
	if err := glootest.Write(j.dir, steps); err != nil {
		t.Fatal(err)
	}
	for r, kind := range ranks {
		if kind == 'p' {
			j.peers[r] = glootest.Start(t, j.dir, script, append(glootest.Environ(s.Addr(), r, len(ranks)), env...)...)
		}
	}
	return j
}

// join makes a rank in Go.
func (j *job) join(ctx context.Context, rank int, opts ...comm.NewOption) (*comm.Comm, error) {
	st, err := store.DialTCP(ctx, j.addr, store.TCPOptions{})
	if err != nil {
		return nil, err
	}
	j.t.Cleanup(func() { st.Close() })
	return comm.New(ctx, append([]comm.NewOption{comm.WithBackend("gloo"), comm.WithRank(rank, len(j.ranks)),
		comm.WithStore(st), comm.WithTimeout(60 * time.Second), comm.WithHints(version(j.t))}, opts...)...)
}

// versionName is the PyTorch of the others, as the hint "pytorch" has it.
func versionName(t testing.TB) string {
	v := glootest.Version(t)
	return fmt.Sprintf("%d.%d", v/100, v%100)
}

// version is the hints that say which PyTorch the others are.
func version(t testing.TB) map[string]string {
	if glootest.Version(t) < 200 {
		return map[string]string{"pytorch": "1.13", "prefix": "/worker/attempt_0/default_pg"}
	}
	return nil
}

// end kills PyTorch's ranks.
func (j *job) end() {
	for _, p := range j.peers {
		if p != nil {
			p.Kill()
		}
	}
}

// each runs f on all ranks in Go, and returns when all ranks have ended.
func (j *job) each(f func(ctx context.Context, c *comm.Comm) error) {
	j.t.Helper()
	var wg sync.WaitGroup
	for r, kind := range j.ranks {
		wg.Go(func() {
			if kind == 'p' {
				if out, err := j.peers[r].Wait(); err != nil {
					j.t.Errorf("PyTorch's rank %d: %v\n%s", r, err, out)
					j.end()
				}
				return
			}
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
			defer cancel()
			c, err := j.join(ctx, r)
			if err == nil {
				err = errors.Join(f(ctx, c), c.Finalize(ctx))
			}
			if err != nil {
				j.t.Errorf("rank %d in Go: %v", r, err)
				j.end()
			}
		})
	}
	wg.Wait()
}

// results runs the steps on all ranks, and returns what each got.
func results(t *testing.T, ranks string, steps []glootest.Operation, env ...string) [][]byte {
	t.Helper()
	j := start(t, ranks, "", steps, env...)
	all := make([][]byte, len(ranks))
	j.each(func(ctx context.Context, c *comm.Comm) (err error) {
		all[c.Rank()], err = glootest.Play(ctx, c, steps)
		return err
	})
	for r, kind := range ranks {
		if kind == 'p' {
			all[r], _ = os.ReadFile(filepath.Join(j.dir, fmt.Sprint(r)))
		}
	}
	return all
}

// splits are all ways in which ranks are PyTorch's or Go's, both among them.
func splits(n int) (all []string) {
	for bits := 1; bits < 1<<n-1; bits++ {
		var b strings.Builder
		for r := range n {
			b.WriteByte("pg"[bits>>r&1])
		}
		all = append(all, b.String())
	}
	return all
}
