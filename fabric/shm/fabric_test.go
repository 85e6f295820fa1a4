package shm

import (
	"sync"
	"testing"

	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/fabric/fabrictest"
	"github.com/chorus-comms/chorus/hostmem"
)

func TestFabric(t *testing.T) {
	for name, options := range map[string]map[string]string{
		"cma": nil, "staged": {"cma": "off"}, "blocking": {"wait": "block"}, "yielding": {"wait": "yield"},
	} {
		t.Run(name, func(t *testing.T) {
			checkLeaks(t)
			var mu sync.Mutex
			var blocks []*hostmem.Block
			t.Cleanup(func() {
				for _, b := range blocks {
					b.Free()
				}
			})
			alloc := func(_ fabric.Fabric, n int) []byte {
				b, err := hostmem.AllocZero(n)
				if err != nil {
					t.Fatal(err)
				}
				mu.Lock()
				blocks = append(blocks, b)
				mu.Unlock()
				return b.Bytes()
			}
			fabrictest.Run(t, func(t testing.TB, size int) []fabric.Fabric {
				var fabrics []fabric.Fabric
				for _, f := range openWorld(t, size, options) {
					fabrics = append(fabrics, f)
				}
				return fabrics
			}, fabrictest.Kill(func(f fabric.Fabric) { f.(*Fabric).Kill() }), fabrictest.Alloc(alloc))
		})
	}
}
