package accl

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/accl/abi"
	"github.com/chorus-comms/chorus/accl/wire"
	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/internal/testutil/nettest"
	"github.com/chorus-comms/chorus/tensor"
)

// emulatorVar has world, rank, port and protocol of a process that is an emulator of TestEmulators.
const emulatorVar = "CHORUS_TEST_ACCL_EMULATOR"

// emulators starts a process for each engine.
func emulators(t *testing.T, n int, protocol abi.Protocol) (start int, processes []*exec.Cmd) {
	t.Helper()
	start, err := nettest.FreePorts(4 * n)
	if err != nil {
		t.Fatal(err)
	}
	for r := range n {
		p := exec.Command(os.Args[0], "-test.run=^TestEmulators$")
		p.Env = append(os.Environ(), fmt.Sprintf("%s=%d %d %d %d", emulatorVar, n, r, start, protocol))
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			p.Process.Kill()
			p.Wait()
		})
		processes = append(processes, p)
	}
	return start, processes
}

// TestEmulators has the engines in processes of their own, behind the emulator's sockets. Then one is killed, and all
// ranks learn whose it was.
func TestEmulators(t *testing.T) {
	if text := os.Getenv(emulatorVar); text != "" {
		var c wire.Config
		if _, err := fmt.Sscan(text, &c.World, &c.Rank, &c.StartPort, &c.Protocol); err != nil {
			t.Fatal(err)
		}
		e, err := wire.Listen(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		e.Serve(t.Context())
		return
	}
	t.Setenv("CHORUS_DUMP_DIR", t.TempDir()) // a rank that fails is dumped
	for _, protocol := range []abi.Protocol{abi.RDMA, abi.UDP, abi.TCP} {
		t.Run(protocol.String(), func(t *testing.T) { onEmulators(t, protocol) })
	}
}

func onEmulators(t *testing.T, protocol abi.Protocol) {
	const n = 3
	start, processes := emulators(t, n, protocol)
	comms, err := openWorld(Name, n, map[string]string{"accl.emulator": strconv.Itoa(start), "accl.rx_buffer_size": "4096",
		"accl.max_eager_size": "4096", "accl.max_rendezvous_size": "16384", "accl.max_segment_size": "4096"})
	if err != nil {
		t.Fatal(err)
	}
	var done sync.WaitGroup
	done.Add(n)
	each(t, comms, func(ctx context.Context, c *comm.Comm) error {
		for _, count := range []int{1, 1000, 5000} {
			x, least := make([]float32, count), make([]int8, count)
			for i := range x {
				x[i], least[i] = float32(c.Rank()+i), int8(c.Rank()+i%100)
			}
			all := tensor.Of(make([]float32, n*count))
			err := errors.Join(c.AllGatherSingle(ctx, all, tensor.Of(x)), c.AllReduce(ctx, tensor.Of(x), comm.Sum),
				c.AllReduce(ctx, tensor.Of(least), comm.Min), c.Barrier(ctx))
			if err != nil {
				return err
			}
			for i := range x {
				if x[i] != float32(3+3*i) || least[i] != int8(i%100) || all.At(count+i) != float64(1+i) {
					return fmt.Errorf("element %d of %d: %v, %v, %v", i, count, x[i], least[i], all.At(count+i))
				}
			}
		}
		if done.Done(); c.Rank() == 0 {
			done.Wait()
			processes[2].Process.Kill()
			processes[2].Wait()
		}
		begin := time.Now()
		var err error
		for err == nil {
			err = c.Barrier(ctx, comm.Timeout(20*time.Second))
		}
		if took := time.Since(begin); took > 10*time.Second {
			return fmt.Errorf("it took %v to notice", took)
		}
		if c.Rank() == 2 {
			if !strings.Contains(err.Error(), "rank 2") || !strings.Contains(err.Error(), "the engine is gone") {
				return fmt.Errorf("it isn't the loss of its engine: %v", err)
			}
		} else if lost := (*comm.PeerLostError)(nil); !errors.As(err, &lost) || lost.Peer != 2 {
			return fmt.Errorf("rank 2 isn't named: %v", err)
		}
		return nil
	})
}
