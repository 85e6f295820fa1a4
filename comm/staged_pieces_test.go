//go:build linux && (amd64 || arm64)

package comm_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/device/gpu/abi"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/internal/testutil"
	"github.com/chorus-comms/chorus/tensor"
)

// large is how many float32 have four pieces, the last of 20 bytes.
const large = 3<<17 + 5

func bytesOf(x *tensor.Tensor) []byte { return unsafe.Slice((*byte)(x.Pointer()), x.NBytes()) }

// scattered is host memory of numbers whose sum depends on their order.
func scattered(rank int) *tensor.Tensor {
	x := tensor.Must(tensor.Empty(dtype.Float32, large))
	r := rand.New(rand.NewPCG(uint64(rank), 1))
	for i, v := 0, unsafe.Slice((*float32)(x.Pointer()), large); i < len(v); i++ {
		v[i] = float32(r.IntN(1<<20) << r.IntN(20))
	}
	return x
}

// inPieces are operations on large tensors, with the copies that they make on rank 0.
var inPieces = []struct {
	name     string
	run      func(ctx context.Context, c *comm.Comm, x, y *tensor.Tensor) error
	down, up int64
}{
	{"all_reduce", func(ctx context.Context, c *comm.Comm, x, y *tensor.Tensor) error {
		return c.AllReduce(ctx, x, comm.Sum, comm.Into(y))
	}, 4, 4},
	{"all_reduce in place", func(ctx context.Context, c *comm.Comm, x, y *tensor.Tensor) error {
		return errors.Join(c.AllReduce(ctx, x, comm.Avg), c.Broadcast(ctx, y, 1))
	}, 4, 8},
	{"reduce", func(ctx context.Context, c *comm.Comm, x, y *tensor.Tensor) error {
		return c.Reduce(ctx, x, 0, comm.Sum)
	}, 4, 4},
	{"broadcast", func(ctx context.Context, c *comm.Comm, x, y *tensor.Tensor) error {
		return c.Broadcast(ctx, x, 0)
	}, 4, 0},
	{"a factor", func(ctx context.Context, c *comm.Comm, x, y *tensor.Tensor) error { // needs all at once
		return c.AllReduce(ctx, x, comm.PremulSum(0.5))
	}, 1, 1},
}

// Large operands of ranks on a device come and go in pieces, with the bits of a group of the host. Other ranks may be
// on the host.
func TestStagedPieces(t *testing.T) {
	defer comm.SetPieceBytes(512 << 10)()
	for name, device := range map[string]func(t *testing.T) string{"OpenCL": openCLBuffers, "GPU": oneQueue} {
		t.Run(name, func(t *testing.T) { testStagedPieces(t, device(t), name == "GPU") })
	}
}

func testStagedPieces(t *testing.T, on string, counts bool) {
	algorithms := testutil.Pick([]string{""}, []string{"", "staged?", "ring?", "doubling?", "rabenseifner?", "binomial?"})
	for k, algorithm := range algorithms {
		fabric, n := []string{"shm", "tcp"}[min(k%2+k/2, 1)], 2+k%2
		results := map[string][][]byte{} // by the operation and the rank
		var mu sync.Mutex
		for _, devices := range []int{0, 1, n} { // the first so many ranks are on it
			comms := open(t, n, func(r int) []comm.NewOption {
				hints := map[string]string{"algorithm": algorithm}
				if devices > 0 && fabric == "shm" { // other processes can't map a GPU's pinned memory, as they can the stand-in's
					hints["mapped"] = "off"
				}
				opts := []comm.NewOption{comm.WithFabric(fabric), comm.WithHints(hints)}
				if r < devices {
					opts = append(opts, comm.WithDevice(on))
				}
				return opts
			})
			run := func(c *comm.Comm) error {
				ctx, place := context.Background(), (*device.Device)(nil)
				if c.Rank() < devices {
					place = c.Stream().Device()
				}
				for _, op := range inPieces {
					x, err := scattered(c.Rank()).To(ctx, place)
					y, failed := scattered(c.Rank()+n).To(ctx, place)
					if err = errors.Join(err, failed, c.Barrier(ctx)); err != nil {
						return err
					}
					before := copied.Load()
					if err := op.run(ctx, c, x, y); err != nil {
						return fmt.Errorf("%s: %w", op.name, err)
					}
					copies := copied.Load() - before
					if counts && fabric == "shm" && devices == 1 && c.Rank() == 0 && copies != op.down+op.up {
						return fmt.Errorf("%s copies %d times, want %d times down and %d times up", op.name, copies, op.down, op.up)
					}
					for i, z := range []*tensor.Tensor{x, y} {
						host, err := z.To(ctx, nil)
						if err != nil {
							return err
						}
						key := fmt.Sprint(op.name, i)
						mu.Lock()
						if results[key] == nil {
							results[key] = make([][]byte, n)
						}
						if want := results[key][c.Rank()]; devices == 0 {
							results[key][c.Rank()] = bytesOf(host)
						} else if !bytes.Equal(want, bytesOf(host)) {
							err = fmt.Errorf("%s: %d ranks on the device have other bits than the host's", key, devices)
						}
						mu.Unlock()
						runtime.KeepAlive(z)
						if err != nil {
							return err
						}
					}
				}
				return c.Finalize(ctx)
			}
			var wg sync.WaitGroup
			for _, c := range comms {
				wg.Go(func() {
					if err := run(c); err != nil {
						t.Errorf("rank %d of %d, by %q: %v", c.Rank(), n, algorithm, err)
						c.Abort(err)
					}
				})
			}
			wg.Wait()
			if t.Failed() {
				return
			}
		}
	}
}

// withDevice runs f on two ranks with large operands, of which rank 0's is on a device.
func withDevice(t *testing.T, on string, f func(ctx context.Context, c *comm.Comm, x *tensor.Tensor) error) {
	t.Helper()
	defer comm.SetPieceBytes(512 << 10)()
	comms := open(t, 2, func(r int) []comm.NewOption {
		opts := []comm.NewOption{comm.WithFabric("shm"), comm.WithHints(map[string]string{"mapped": "off"})}
		if r == 0 {
			opts = append(opts, comm.WithDevice(on))
		}
		return opts
	})
	var wg sync.WaitGroup
	for _, c := range comms {
		wg.Go(func() {
			ctx, place := context.Background(), (*device.Device)(nil)
			if c.Rank() == 0 {
				place = c.Stream().Device()
			}
			x, err := scattered(c.Rank()).To(ctx, place)
			if err == nil {
				err = f(ctx, c, x)
			}
			if err != nil {
				t.Errorf("rank %d: %v", c.Rank(), err)
			}
		})
	}
	wg.Wait()
	runtime.KeepAlive(comms)
}

// An operation whose operand stops coming fails on all ranks.
func TestStagedPiecesFail(t *testing.T) {
	on := oneQueue(t)
	for _, call := range []string{"cuEventQuery", "cuMemcpyAsync"} {
		told := make(chan struct{})
		withDevice(t, on, func(ctx context.Context, c *comm.Comm, x *tensor.Tensor) error {
			limit := 50 * time.Millisecond // when rank 1 asks why rank 0 isn't there
			if c.Rank() == 0 {
				limit = time.Minute
				failing.Store(&failure{call: call, after: copied.Load() + 2})
				defer close(told)
				defer failing.Store(nil)
			} else {
				<-told
			}
			err := c.AllReduce(ctx, x, comm.Sum, comm.Timeout(limit))
			if err == nil || !strings.Contains(err.Error(), call[2:]) {
				return fmt.Errorf("%s fails, and the error is %v", call, err)
			}
			return nil
		})
	}
}

// heldUp is the error of an all-reduce on rank 0, whose queue a gate holds up before a copy that then comes after, and
// whether the gate was open when it returned. The gate opens after a while, or then.
func heldUp(t *testing.T, limit time.Duration, before int64, then func(), while time.Duration) (late bool, err error) {
	t.Helper()
	gate, ready := make(chan struct{}), make(chan struct{})
	open := sync.OnceFunc(func() { close(gate) })
	withDevice(t, oneQueue(t), func(ctx context.Context, c *comm.Comm, x *tensor.Tensor) error {
		if c.Rank() == 1 {
			<-ready
			if c.AllReduce(ctx, x, comm.Sum, comm.Timeout(time.Minute)) == nil {
				return errors.New("rank 0 fails, and this one doesn't")
			}
			return nil
		}
		s, failed := c.Stream().Device().NewStream(device.Normal)
		if failed != nil {
			return failed
		}
		defer s.Close()
		defer failing.Store(nil)
		failing.Store(&failure{call: "cuMemcpyAsync", after: copied.Load() + before, once: func() abi.Result {
			if err := s.HostFunc("gate", func() error { <-gate; return nil }); err != nil {
				t.Error(err)
			}
			time.AfterFunc(while, open)
			then()
			return abi.Success
		}})
		close(ready)
		err = c.AllReduce(ctx, x, comm.Sum, comm.Timeout(limit))
		select {
		case <-gate:
			late = true
		default:
			open()
		}
		return s.Synchronize(ctx)
	})
	return late, err
}

// A call that fails returns when copies to its result are done.
func TestStagedPiecesSettle(t *testing.T) {
	late, err := heldUp(t, time.Minute, 5, func() {
		failing.Store(&failure{call: "cuEventQuery", once: func() abi.Result { return abi.InvalidValue }})
	}, 20*time.Millisecond)
	if err == nil || !strings.Contains(err.Error(), "EventQuery") {
		t.Fatalf("an event can't be asked for, and the error is %v", err)
	}
	if u := (*comm.UnsettledError)(nil); late == errors.As(err, &u) {
		t.Errorf("copies are done: %v, and the error is %v", late, err)
	}
}

// An operation's time ends also while it waits for its operands.
func TestStagedPiecesTimeout(t *testing.T) {
	late, err := heldUp(t, 50*time.Millisecond, 1, func() {}, 5*time.Second)
	if late || !errors.Is(err, comm.ErrTimeout) {
		t.Errorf("operands came: %v, and the error is %v", late, err)
	}
}
