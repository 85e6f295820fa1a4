package comm_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/comm/commtest"
	"github.com/chorus-comms/chorus/plan"
)

// TestSpecialsByEveryAlgorithm reduces NaN, infinities and zeros on one host and on several, in all worlds from 2 to 5:
// each algorithm must have run in each of them, but for one that needs three ranks.
func TestSpecialsByEveryAlgorithm(t *testing.T) {
	worlds := []int{2, 3, 4, 5}
	if suiteWorlds != nil {
		worlds = suiteWorlds[1:]
	}
	type ran struct {
		kind, algorithm string
		world           int
	}
	var mu sync.Mutex
	seen := map[ran]bool{}
	for name, hosts := range map[string][]int{"one host": {0, 0, 0, 0, 0}, "several hosts": {0, 1, 0, 2, 1}} {
		t.Run(name, func(t *testing.T) {
			commtest.Specials(t, commtest.Config{Shared: true, Worlds: worlds, Open: func(t testing.TB, size int) []*comm.Comm {
				comms := open(t, size, func(r int) []comm.NewOption {
					return []comm.NewOption{comm.WithFabric("mem"), comm.WithHints(map[string]string{"host_id": fmt.Sprint("host",
						hosts[r])})}
				})
				comms[0].RegisterCompletionHook(func(i comm.OpInfo, err error) {
					if err == nil {
						mu.Lock()
						defer mu.Unlock()
						seen[ran{i.Kind.String(), i.Algorithm, size}] = true
					}
				})
				return comms
			}})
		})
	}
	for _, kind := range []plan.Collective{plan.AllReduce, plan.Reduce, plan.ReduceScatter} {
		for _, a := range plan.Algorithms(kind) {
			for _, world := range worlds {
				if a.Name == "two_level" && world == 2 {
					continue // it needs two ranks on one of several hosts
				}
				what := ran{kind.String(), a.Name, world}
				if kind == plan.ReduceScatter {
					what.kind = backend.ReduceScatterSingle.String()
				}
				if !seen[what] {
					t.Errorf("%+v has not run", what)
				}
			}
		}
	}
}
