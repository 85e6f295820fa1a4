package gloo_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/comm/commtest"
	"github.com/chorus-comms/chorus/comm/gloo/glootest"
	"github.com/chorus-comms/chorus/internal/testutil"
	"github.com/chorus-comms/chorus/store"
)

// certified has the ranks of this process, and those of PyTorch, connect by TLS, with a certificate of an authority of
// their own. It returns the variables that say so.
func certified(t *testing.T) []string {
	t.Helper()
	authority := testutil.NewCertAuthority(t)
	cert, key := authority.Issue(t, time.Now().Add(time.Hour))
	vars := []string{"GLOO_DEVICE_TRANSPORT=TCP_TLS"}
	for what, file := range map[string]string{"PKEY": key, "CERT": cert, "CA_FILE": authority.File} {
		vars = append(vars, "GLOO_DEVICE_TRANSPORT_TCP_TLS_"+what+"="+file)
	}
	for _, v := range vars {
		name, value, _ := strings.Cut(v, "=")
		t.Setenv(name, value)
	}
	return vars
}

// TestTLS is TestConformance, and TestWithPyTorch, with encrypted connections.
func TestTLS(t *testing.T) {
	testutil.SkipIfShort(t)
	t.Run("Go", func(t *testing.T) {
		certified(t)
		commtest.Run(t, commtest.Config{Open: worlds, Worlds: []int{3}})
	})
	t.Run("PyTorch", func(t *testing.T) {
		vars := certified(t)
		there := glootest.Start(t, t.TempDir(), `import torch.distributed as d
d.init_process_group("gloo", store=d.HashStore(), rank=0, world_size=1)`, vars...)
		if out, err := there.Wait(); err != nil && strings.Contains(out, "unsupported gloo device") {
			t.Skip("left out: this PyTorch has no TLS; that of PyPI's torch==2.6.0 has: CHORUS_TEST_PYTHON=...")
		}
		steps := append(everything([]string{"float32", "int64"}, 0, 17, 4096), groups(3)...)
		compare(t, 3, []string{"pgg", "gpp", "pgp", "gpg", "ppg"}, steps, vars...)
	})
}

// TestTLSStranger demands that a rank with a certificate of another authority isn't let in.
func TestTLSStranger(t *testing.T) {
	certified(t)
	st := store.NewHash(30 * time.Second)
	join := func(rank int) (*comm.Comm, error) {
		return comm.New(context.Background(), comm.WithBackend("gloo"), comm.WithRank(rank, 2), comm.WithStore(st),
			comm.WithTimeout(time.Second))
	}
	failed := make(chan error, 1)
	go func() {
		c, err := join(0)
		if err == nil { // TLS 1.3: the other one finds out first
			err = c.Barrier(context.Background())
			c.Finalize(context.Background())
		}
		failed <- err
	}()
	testutil.Eventually(t, func() bool {
		there, _ := st.Check(context.Background(), "default_pg/0//cpu//0/0")
		return there
	}, "rank 0 has published its address")
	certified(t)
	c, err := join(1)
	if err == nil {
		err = c.Barrier(context.Background())
		c.Finalize(context.Background())
	}
	if first := <-failed; err == nil || first == nil {
		t.Errorf("%v, %v", first, err)
	} else if !strings.Contains(first.Error()+err.Error(), "certificate") {
		t.Errorf("no word of certificates: %v, %v", first, err)
	}
}

// TestTransports demands that what isn't there is refused.
func TestTransports(t *testing.T) {
	for _, vars := range [][]string{{"UV"}, {"TCP_TLS"}} {
		t.Setenv("GLOO_DEVICE_TRANSPORT", vars[0])
		c, err := comm.New(context.Background(), comm.WithBackend("gloo"), comm.WithRank(0, 2),
			comm.WithStore(store.NewHash(time.Second)))
		if err == nil {
			c.Finalize(context.Background())
		}
		if !errors.Is(err, comm.ErrUnsupported) || !strings.Contains(err.Error(), "GLOO_DEVICE_TRANSPORT") {
			t.Errorf("%v: %v", vars, err)
		}
	}
}
