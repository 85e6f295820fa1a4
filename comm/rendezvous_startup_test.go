package comm_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/internal/testutil"
	"github.com/chorus-comms/chorus/store"
	"github.com/chorus-comms/chorus/tensor"
)

// startupLimit bounds the processor time of a start-up of 1,000 ranks with its first all-reduce: 5 s on two cores that
// do nothing else.
const startupLimit = 10 * time.Second

// TestStartup starts a world whose ranks are goroutines, each with a connection of its own to a real store and links of
// TCP on the loopback. In the long tests they are 1,000, if the process may open enough descriptors. It logs what that,
// the first all-reduce and a second communicator take in time, and each rank in memory and descriptors.
func TestStartup(t *testing.T) {
	size := testutil.Pick(32, 1000)
	var files syscall.Rlimit
	const each = 16 // descriptors that a rank takes here, both ends of its connections counted
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		t.Fatal(err)
	}
	if most := int(min(files.Cur, 1<<20)) / each; size > most {
		t.Logf("this process may open %d descriptors: %d ranks instead of %d", files.Cur, most, size)
		size = most
	}
	server, err := store.ListenTCP("127.0.0.1:0", store.ServerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s := startup{t: t, size: size, used: usedNow(t)}
	comms, splits := make([]*comm.Comm, size), make([]*comm.Comm, size)
	stores := make([]store.Store, size)
	start := s.step("comm.New", func(rank int) (err error) {
		if stores[rank], err = store.DialTCP(ctx, server.Addr().String(), store.TCPOptions{}); err != nil {
			return err
		}
		comms[rank], err = comm.New(ctx, comm.WithRank(rank, size), comm.WithStore(stores[rank]), comm.WithFabric("tcp"),
			comm.WithTimeout(time.Minute))
		return err
	})
	start += s.step("the first all-reduce", func(rank int) error {
		x := tensor.Of([]int32{1})
		if err := comms[rank].AllReduce(ctx, x, comm.Sum); err != nil {
			return err
		}
		if x.At(0) != float64(size) {
			t.Errorf("rank %d: %v", rank, x)
		}
		return nil
	})
	if start > startupLimit && !raceEnabled {
		t.Errorf("the start-up took %v of processor time; the limit is %v", start, startupLimit)
	}
	all := make([]int, size)
	for r := range all {
		all[r] = r
	}
	s.step("a second communicator of all", func(rank int) (err error) {
		splits[rank], err = comms[rank].Split(ctx, all)
		return err
	})
	s.step("the end", func(rank int) error {
		defer stores[rank].Close()
		if err := splits[rank].Finalize(ctx); err != nil {
			return err
		}
		return comms[rank].Finalize(ctx)
	})
}

func init() { programs["start-up"] = firstAllReduce }

// firstAllReduce is a rank that starts, and ends after its first all-reduce.
func firstAllReduce() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := comm.New(ctx, comm.WithTimeout(time.Minute))
	if err != nil {
		return err
	}
	x := tensor.Of([]int32{1})
	if err := c.AllReduce(ctx, x, comm.Sum); err != nil {
		return err
	}
	if x.At(0) != float64(c.Size()) {
		return fmt.Errorf("%d ranks have the sum %v", c.Size(), x)
	}
	return c.Finalize(ctx)
}

// TestStartupProcesses starts real processes by chorus run, which share memory: 100 in the long tests. It fails if that,
// the first all-reduce and the end take more than 15 s of processor time.
func TestStartupProcesses(t *testing.T) {
	const limit = 15 * time.Second
	size := testutil.Pick(4, 100)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	job := exec.CommandContext(ctx, chorusCommand(t), "run", "-n", strconv.Itoa(size), self(t))
	job.Env = append(os.Environ(), rankMain+"=start-up", "CHORUS_FABRIC=")
	begin := time.Now()
	out, err := job.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	cpu := job.ProcessState.UserTime() + job.ProcessState.SystemTime()
	t.Logf("%d processes: from their start to their end in %v, with %v of processor time", size,
		time.Since(begin).Round(time.Millisecond), cpu.Round(time.Millisecond))
	if cpu > limit && !raceEnabled {
		t.Errorf("the processes took %v of processor time; the limit is %v", cpu, limit)
	}
}

// A startup has all ranks do one thing after the other.
type startup struct {
	t    *testing.T
	size int
	used used // before the next step
}

// step has each rank do something, logs what it took, and returns the processor time.
func (s *startup) step(what string, do func(rank int) error) time.Duration {
	s.t.Helper()
	begin := time.Now()
	var ranks sync.WaitGroup
	for r := range s.size {
		ranks.Go(func() {
			if err := do(r); err != nil {
				s.t.Errorf("rank %d: %v", r, err)
			}
		})
	}
	ranks.Wait()
	took, cpu := time.Since(begin), processorTime(s.t)-s.used.cpu
	if s.t.Failed() {
		s.t.FailNow()
	}
	now := usedNow(s.t)
	s.t.Logf("%d ranks: %s in %v, with %v of processor time; each rank has %d KiB, %.1f goroutines and %.1f descriptors more",
		s.size, what, took.Round(time.Millisecond), cpu.Round(time.Millisecond), (now.memory-s.used.memory)/int64(s.size)>>10,
		float64(now.goroutines-s.used.goroutines)/float64(s.size), float64(now.files-s.used.files)/float64(s.size))
	s.used = now
	return cpu
}

// used is what this process uses.
type used struct {
	cpu               time.Duration
	memory            int64 // bytes of objects and stacks
	goroutines, files int
}

func usedNow(t *testing.T) used {
	t.Helper()
	runtime.GC()
	runtime.GC() // what finalizers and pools have held
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	files, _ := os.ReadDir("/dev/fd")
	return used{processorTime(t), int64(m.HeapAlloc + m.StackInuse), runtime.NumGoroutine(), len(files)}
}

// processorTime is what this process has used, as user and in the kernel.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
