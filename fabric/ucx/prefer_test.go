package ucx_test

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/fabric/fabrictest"
	"github.com/chorus-comms/chorus/fabric/hybrid"
	"github.com/chorus-comms/chorus/fabric/ucx"
	"github.com/chorus-comms/chorus/secure"
)

// port describes a device with one port as the kernel does, and returns the folder.
func port(t *testing.T, state string) string {
	t.Helper()
	folder := t.TempDir()
	dir := filepath.Join(folder, "mlx5_0", "ports", "1")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "state"), []byte(state+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return folder
}

// TestChosen opens worlds that name no fabric: UCX leads to other hosts where a port of an RDMA device is active and
// UCX has a fast transport, here one that counts as such.
func TestChosen(t *testing.T) {
	need(t)
	made, err := secure.SelfMade()
	if err != nil {
		t.Fatal(err)
	}
	secret, err := secure.Parse(secure.Generate())
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		name, state, family, library, want string
		change                             func(*fabric.Config)
	}{
		{name: "a fast transport", state: "4: ACTIVE", family: "tcp", want: ucx.Name},
		{name: "no port with a link", state: "1: DOWN", family: "tcp", want: "tcp"},
		{name: "no fast transport", state: "4: ACTIVE", family: "rc", want: "tcp"},
		{name: "no library", state: "4: ACTIVE", family: "tcp", library: "/no/such/libucp.so.0", want: "tcp"},
		{name: "TLS", state: "4: ACTIVE", family: "tcp", want: "tcp",
			change: func(c *fabric.Config) { c.Security = secure.Policy{Secret: secret, TLS: made} }},
	} {
		t.Run(x.name, func(t *testing.T) {
			t.Setenv("CHORUS_UCX_LIBRARY", x.library)
			ucx.Pretend(t, port(t, x.state), x.family)
			var wg sync.WaitGroup
			for _, f := range world(t, 3, func(c *fabric.Config) {
				c.HostID = []string{"here", "here", "there"}[c.Rank]
				c.Options["far"] = "auto"
				if x.change != nil {
					x.change(c)
				}
			}) {
				if got := f.(*hybrid.Fabric).Path(2 - 2*(f.Rank()/2)); got != x.want {
					t.Errorf("rank %d reaches the other host by %s, want %s", f.Rank(), got, x.want)
				}
				wg.Go(func() {
					if x.want == ucx.Name {
						if err := fabrictest.Program(f, 1); err != nil {
							t.Errorf("rank %d: %v", f.Rank(), err)
						}
					}
					f.Close(context.Background())
				})
			}
			wg.Wait()
		})
	}
}

// TestFast knows transports that are faster than TCP by their names in UCX 1.
func TestFast(t *testing.T) {
	for name, want := range map[string]bool{"rc_verbs": true, "rc_mlx5": true, "dc_mlx5": true, "ud_verbs": true,
		"ud_mlx5": true, "srd": true, "ugni_rdma": true, "tcp": false, "posix": false, "sysv": false, "cma": false,
		"knem": false, "xpmem": false, "self": false, "cuda_ipc": false, "cuda_copy": false, "gga_mlx5": false} {
		if got := (ucx.Description{Resources: []ucx.Resource{{Transport: name, Device: "x"}}}).Fast(); got != want {
			t.Errorf("%s is fast: %v, want %v", name, got, want)
		}
	}
}
