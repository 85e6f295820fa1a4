package comm_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/bootstrap"
	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/internal/sys"
	"github.com/chorus-comms/chorus/observe/endpoint"
	"github.com/chorus-comms/chorus/secure"
	"github.com/chorus-comms/chorus/store"
	"github.com/chorus-comms/chorus/tensor"
)

func init() {
	programs["flooded"] = flooded
	programs["flooder"] = flooder
}

// BenchmarkFlood measures what garbage connections to each listener cost a running job. Two ranks in one process, which
// has every kind of listener, reduce 64 KiB over TCP as fast as they can on one core. A process on another core makes
// garbage connections as fast as it can.
//
// The flooding process' own work costs the machine time, too, which is not the listener's doing. So blocks in which it
// floods the listener alternate with blocks in which it floods one of its own, a store with the same secret. An
// iteration is one block of each, and one of silence; at 250 connections a block, -benchtime 40x makes 10,000.
func BenchmarkFlood(b *testing.B) {
	const connections = 250
	b.Setenv("CHORUS_SECRET", secure.Generate())
	last := runtime.NumCPU() - 1
	job := begin(b, "flooded", 0)
	stranger := begin(b, "flooder", last)
	var listeners map[string]string
	if err := json.Unmarshal([]byte(job.answer(b)), &listeners); err != nil {
		b.Fatal(err)
	}
	decoy := stranger.answer(b)
	// work adds what the job does while the other process floods an address, or sleeps if the address
	// is empty.
	work := func(b *testing.B, w *worked, address string) {
		operations := func() float64 {
			n, err := strconv.Atoi(job.ask(b, "count"))
			if err != nil {
				b.Fatal(err)
			}
			return float64(n)
		}
		n, began := operations(), time.Now()
		stranger.ask(b, fmt.Sprintf("%d %s", connections, address))
		w.operations += operations() - n
		w.seconds += time.Since(began).Seconds()
	}
	for _, name := range slices.Sorted(maps.Keys(listeners)) {
		b.Run(name, func(b *testing.B) {
			work(b, new(worked), listeners[name]) // what is free of charge at first is used up
			var quiet, base, flood worked
			for b.Loop() {
				work(b, &quiet, "")
				work(b, &base, decoy)
				work(b, &flood, listeners[name])
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(quiet.speed(), "quiet/s")
			b.ReportMetric(base.speed(), "decoy/s")
			b.ReportMetric(100*(1-flood.speed()/base.speed()), "%-lost")
			b.ReportMetric(connections*float64(b.N)/flood.seconds, "connections/s")
		})
	}
}

// worked is what a job has done in some time.
type worked struct{ operations, seconds float64 }

func (w worked) speed() float64 { return w.operations / w.seconds }

// A companion is a process of this binary that answers each line with a line.
type companion struct {
	name string
	in   io.Writer
	out  *bufio.Reader
}

// begin starts a program on one of the cores that this process may use; it's killed at the end of the test.
func begin(b *testing.B, program string, core int) *companion {
	b.Helper()
	exe, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), rankMain+"="+program)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	sys.SetDeathSignal(cmd.SysProcAttr)
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2); err != nil {
		b.Fatal(err)
	}
	// A process begins on the cores of the thread that starts it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before, err := sys.AllowedCPUs()
	if err != nil {
		b.Skip(err)
	}
	if err := sys.PinThread(0, sys.CPUSet{before[core]}); err != nil {
		b.Skip(err)
	}
	defer sys.PinThread(0, before)
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	return &companion{program, in, bufio.NewReader(out)}
}

func (c *companion) answer(b *testing.B) string {
	b.Helper()
	line, err := c.out.ReadString('\n')
	if err != nil {
		b.Fatalf("%s ends: %v %s", c.name, err, line)
	}
	return strings.TrimSpace(line)
}

func (c *companion) ask(b *testing.B, line string) string {
	b.Helper()
	fmt.Fprintln(c.in, line)
	return c.answer(b)
}

// flooded is a job that works until it's killed. It says where it listens, and then, for each line, how many operations
// are done.
func flooded() error {
	ctx := context.Background()
	links, err := net.Listen("tcp", "127.0.0.1:0") // a port that is free
	if err != nil {
		return err
	}
	links.Close()
	policy, err := secure.Environment()
	if err != nil {
		return err
	}
	server, err := store.ListenTCP("127.0.0.1:0", store.ServerOptions{Security: policy})
	if err != nil {
		return err
	}
	hosted, err := bootstrap.Host("", bootstrap.Options{})
	if err != nil {
		return err
	}
	metrics, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	go endpoint.Serve(ctx, metrics, os.TempDir)

	var done atomic.Int64
	errs := make(chan error)
	for rank := range 2 {
		go func() {
			hints := map[string]string{"fabric": "tcp"}
			if rank == 0 {
				_, hints["fabric.ports"], _ = net.SplitHostPort(links.Addr().String())
			}
			c, err := comm.New(ctx, comm.WithRank(rank, 2), comm.WithStore(server.Local()), comm.WithHints(hints))
			x := tensor.Of(make([]float32, 16<<10))
			for err == nil {
				if err = c.AllReduce(ctx, x, comm.Max); rank == 0 && done.Add(1) == 1 {
					json.NewEncoder(os.Stdout).Encode(map[string]string{"links": "tcp " + links.Addr().String(),
						"store": "tcp " + server.Addr().String(), "hosted": "unix " + hosted.Address().Unix, "metrics": "tcp " +
							metrics.Addr().String()})
				}
			}
			errs <- err
		}()
	}
	go func() {
		for s := bufio.NewScanner(os.Stdin); s.Scan(); {
			fmt.Println(done.Load())
		}
	}()
	return <-errs
}

// flooder makes garbage connections. It prints where its own listener is. Then it answers each line "COUNT NETWORK
// ADDRESS" with a line, once all connections are made and the listener has seen the last one. Without an address it
// answers after a second.
func flooder() error {
	policy, err := secure.Environment()
	if err != nil {
		return err
	}
	own, err := store.ListenTCP("127.0.0.1:0", store.ServerOptions{Security: policy})
	if err != nil {
		return err
	}
	fmt.Println("tcp", own.Addr())
	garbage := [][]byte{
		[]byte("GIVE / HTTP/1.1\r\nHost\r\n\r\n"), make([]byte, 300), []byte(strings.Repeat("\xff", 300) + "\r\n\r\n"),
		append([]byte("\xffCHORUS\x01"), make([]byte, 64)...),
		{0x16, 3, 1, 0, 200}, nil,
	}
	throw := func(network, address string, what []byte, wait bool) error {
		c, err := net.Dial(network, address)
		if err != nil {
			return err
		}
		defer c.Close()
		c.Write(what)
		if wait {
			c.SetDeadline(time.Now().Add(time.Minute))
			_, err = io.Copy(io.Discard, c)
			if ne, ok := err.(net.Error); ok && ne.Timeout() {
				return err
			}
		}
		return nil
	}
	for s := bufio.NewScanner(os.Stdin); s.Scan(); {
		f := strings.Fields(s.Text())
		if len(f) != 3 {
			time.Sleep(time.Second)
			fmt.Println("slept")
			continue
		}
		n, err := strconv.ParseInt(f[0], 10, 32)
		if err != nil {
			return err
		}
		left := new(atomic.Int64)
		left.Store(n - 1)
		var wg sync.WaitGroup
		for range 16 {
			wg.Go(func() {
				for i := left.Add(-1); i >= 0; i = left.Add(-1) {
					// A unix socket refuses while its queue is full.
					for throw(f[1], f[2], garbage[i%int64(len(garbage))], false) != nil {
						time.Sleep(time.Millisecond)
					}
				}
			})
		}
		wg.Wait()
		if err := throw(f[1], f[2], garbage[2], true); err != nil { // connections are accepted in order
			return err
		}
		fmt.Println("done")
	}
	return nil
}
