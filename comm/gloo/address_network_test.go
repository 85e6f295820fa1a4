package gloo_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/store"
)

// TestInterfaces demands that ranks listen where they're told: the hint wins over GLOO_SOCKET_IFNAME, and that over
// TP_SOCKET_IFNAME. An interface that isn't there is named.
func TestInterfaces(t *testing.T) {
	const none = "nosuch0"
	for _, test := range []struct {
		gloo, tensorPipe, hint string
		found                  bool
	}{{none, "", "", false}, {"lo," + none, "", "", false}, {"", none, "", false}, {"", "lo", none, false},
		{"", "lo", "", true}, {"lo", none, "", true}, {none, none, "lo", true}} {
		t.Setenv("GLOO_SOCKET_IFNAME", test.gloo)
		t.Setenv("TP_SOCKET_IFNAME", test.tensorPipe)
		hints := map[string]string{}
		if test.hint != "" {
			hints["interface"] = test.hint
		}
		st := store.NewHash(30 * time.Second)
		var wg sync.WaitGroup
		for r := range 2 {
			wg.Go(func() {
				c, err := comm.New(context.Background(), comm.WithBackend("gloo"), comm.WithRank(r, 2), comm.WithStore(st),
					comm.WithTimeout(30*time.Second), comm.WithHints(hints))
				if err == nil {
					c.Finalize(context.Background())
				}
				if (err == nil) != test.found || err != nil && !strings.Contains(err.Error(), none) {
					t.Errorf("%+v: %v", test, err)
				}
			})
		}
		wg.Wait()
	}
}

// TestLazy is TestWithPyTorch with ranks of PyTorch that connect when they first need to.
func TestLazy(t *testing.T) {
	steps := append(everything([]string{"float32"}, 17), groups(4)...)
	compare(t, 4, []string{"pgpg"}, steps, "TORCH_GLOO_LAZY_INIT=1")
}

// TestSeveralInterfaces is TestWithPyTorch where the collectives take turns on two interfaces; of the messages, those
// to anyone take the first, and those of rings the second, by their tags.
func TestSeveralInterfaces(t *testing.T) {
	t.Setenv("GLOO_SOCKET_IFNAME", "lo,lo")
	steps := append(everything([]string{"float32"}, 17), groups(4)...)
	compare(t, 4, []string{"pggg", "gppg"}, steps, "GLOO_SOCKET_IFNAME=lo,lo")
}
