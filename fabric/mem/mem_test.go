package mem_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"go.uber.org/goleak"

	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/fabric/fabrictest"
	"github.com/chorus-comms/chorus/fabric/mem"
	"github.com/chorus-comms/chorus/internal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func kill(f fabric.Fabric) { f.(*mem.Rank).Kill(errors.New("killed by the test")) }

func TestFabric(t *testing.T) {
	for name, opts := range map[string][]mem.Option{
		"buffered": nil, "unbuffered": {mem.Unbuffered()},
	} {
		t.Run(name, func(t *testing.T) {
			fabrictest.Run(t, func(_ testing.TB, size int) []fabric.Fabric { return mem.NewWorld(size, opts...) },
				fabrictest.Kill(kill))
		})
	}
}

// open opens a world by name.
func open(size int, change func(*fabric.Config)) ([]fabric.Fabric, error) {
	payloads, missing, full := make([][]byte, size), size, make(chan struct{})
	var mu sync.Mutex
	fabrics, errs := make([]fabric.Fabric, size), make([]error, size)
	var wg sync.WaitGroup
	for r := range size {
		wg.Go(func() {
			c := fabric.Config{Rank: r, Size: size, HostID: "one", Timeout: 20 * time.Second, Options: map[string]string{}}
			c.Exchange = func(_ context.Context, payload []byte) ([][]byte, error) {
				mu.Lock()
				payloads[r] = payload
				if missing--; missing == 0 {
					close(full)
				}
				mu.Unlock()
				<-full
				return payloads, nil
			}
			change(&c)
			fabrics[r], errs[r] = fabric.Open(context.Background(), "mem", c)
		})
	}
	wg.Wait()
	return fabrics, errors.Join(errs...)
}

func TestOpen(t *testing.T) {
	ranks, err := open(3, func(c *fabric.Config) { c.HostID = []string{"b", "a", "b"}[c.Rank] })
	if err != nil {
		t.Fatal(err)
	}
	if h := ranks[1].(fabric.Sharer).Hosts(); h[0] != 0 || h[1] != 1 || h[2] != 0 {
		t.Errorf("hosts %v", h)
	}
	var wg sync.WaitGroup
	for _, f := range ranks {
		wg.Go(func() {
			if err := fabrictest.Program(f, 1); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if _, err := ranks[0].(fabric.Sharer).Space(t.Context(), 1, []int{0, 1}, 64); err == nil {
		t.Error("ranks of two hosts share a space")
	}
	if _, err := ranks[0].(fabric.Sharer).Space(t.Context(), 1, []int{2}, 64); err == nil {
		t.Error("a rank opened a space that it isn't in")
	}
	for _, options := range []map[string]string{{"buffer": "x"}, {"speed": "1"}} {
		if _, err := open(1, func(c *fabric.Config) { c.Options = options }); err == nil {
			t.Errorf("%v: accepted", options)
		}
	}
	_, err = open(2, func(c *fabric.Config) {
		own := c.Exchange
		c.Exchange = func(ctx context.Context, payload []byte) ([][]byte, error) {
			all, err := own(ctx, payload)
			const card = `{"Process":"elsewhere"}`
			return [][]byte{all[0], append(wire.AppendField(wire.AppendField(nil, "mem"), ""), card...)}, err
		}
	})
	if err == nil || !strings.Contains(err.Error(), "rank 1 is in another process") {
		t.Errorf("a rank in another process: %v", err)
	}
}

func BenchmarkPingPong(b *testing.B) {
	for _, n := range []int{8, 64 << 10} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			ranks := mem.NewWorld(2)
			b.ReportAllocs()
			var wg sync.WaitGroup
			for r, f := range ranks {
				wg.Go(func() {
					w := fabric.NewWaiter(fabric.NewAbort())
					buf := make([]byte, n)
					m := &fabric.Msg{Key: fabric.Key{Comm: 1}}
					for i := range 2 * b.N {
						m.Reset(w)
						m.Peer, m.Buf, m.Len = 1-r, unsafe.Pointer(&buf[0]), n
						if i%2 == r {
							f.Send(m)
						} else {
							f.Recv(m)
						}
						if err := f.Wait(m, w); err != nil {
							b.Error(err)
						}
					}
				})
			}
			wg.Wait()
		})
	}
}
