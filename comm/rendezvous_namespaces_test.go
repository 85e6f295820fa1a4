package comm_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/internal/sys"
	"github.com/chorus-comms/chorus/secure"
	"github.com/chorus-comms/chorus/tensor"
)

func init() { programs["namespaces"] = namespacesRank }

// ranksPerHost is how many ranks each of the two hosts has.
const ranksPerHost = 2

// TestNetworkNamespaces runs two ranks on each of two hosts, which are network
// namespaces joined by a cable: shared memory carries one part of the bytes and
// TCP the other. Each host has one more interface, which comes first and leads nowhere. Then the
// cable is cut, and every rank's error names the ranks that it has lost.
func TestNetworkNamespaces(t *testing.T) {
	for _, family := range []struct{ name, network string }{{"IPv4", "10.77.0.%d/24"}, {"IPv6", "fd77::%d/64"}} {
		t.Run(family.name, func(t *testing.T) {
			t.Parallel()
			hosts := cable(t, family.network)
			secret := secure.Generate()
			master, _, _ := strings.Cut(fmt.Sprintf(family.network, 1), "/")
			const n = 2 * ranksPerHost
			cmds, outs := make([]*exec.Cmd, n), make([]*lines, n)
			for r := range n {
				cmd := exec.Command("ip", "netns", "exec", hosts[r/ranksPerHost], self(t))
				cmd.Env = append(os.Environ(), rankMain+"=namespaces", "CHORUS_HOST_ID=", "CHORUS_FABRIC=",
					"RANK="+strconv.Itoa(r), "WORLD_SIZE="+strconv.Itoa(n), "LOCAL_RANK="+strconv.Itoa(r%ranksPerHost),
					"LOCAL_WORLD_SIZE="+strconv.Itoa(ranksPerHost), "MASTER_ADDR="+master, "MASTER_PORT=29500",
					"CHORUS_SECRET="+secret)
				cmd.SysProcAttr = &syscall.SysProcAttr{}
				sys.SetDeathSignal(cmd.SysProcAttr)
				outs[r] = &lines{}
				cmd.Stdout, cmd.Stderr = outs[r], outs[r]
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				cmds[r] = cmd
				defer cmd.Process.Kill()
			}
			for r := range n {
				if !outs[r].wait("ready", 60*time.Second) {
					t.Fatalf("rank %d is not ready:\n%s", r, outs[r])
				}
			}
			ip(t, "-n", hosts[0], "link", "set", "cable", "down")
			cut := time.Now()
			for r := range n {
				err := cmds[r].Wait()
				t.Logf("rank %d, %v after the cut: %s", r, time.Since(cut).Round(time.Millisecond), outs[r])
				var lost int
				_, line, _ := strings.Cut(outs[r].String(), "lost ")
				if _, serr := fmt.Sscan(line, &lost); err != nil || serr != nil {
					t.Errorf("rank %d: %v; it does not say whom it lost:\n%s", r, err, outs[r])
				} else if lost/ranksPerHost == r/ranksPerHost {
					t.Errorf("rank %d says it lost rank %d, which is on its own host:\n%s", r, lost, outs[r])
				}
			}
		})
	}
}

// cable makes two network namespaces joined by a link called cable, on which
// they have addresses 1 and 2 of the network, and returns their names.
func cable(t *testing.T, network string) []string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("left out: making network namespaces needs root")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("left out: ip (iproute2) is not installed")
	}
	var hosts []string
	for range 2 {
		h := fmt.Sprintf("chorus-%d-%d", os.Getpid(), worlds.Add(1))
		if out, err := exec.Command("ip", "netns", "add", h).CombinedOutput(); err != nil {
			t.Skipf("left out: this machine lets nobody make network namespaces: %v: %s", err, out)
		}
		t.Cleanup(func() { exec.Command("ip", "netns", "delete", h).Run() })
		hosts = append(hosts, h)
		ip(t, "-n", h, "link", "set", "lo", "up")
		ip(t, "-n", h, "link", "add", "decoy", "type", "veth", "peer", "name", "decoy-end")
		ip(t, "-n", h, "address", "add", "192.0.2.1/24", "dev", "decoy")
		ip(t, "-n", h, "address", "add", "2001:db8::1/64", "dev", "decoy", "nodad")
		ip(t, "-n", h, "link", "set", "decoy", "up")
		ip(t, "-n", h, "link", "set", "decoy-end", "up")
	}
	ip(t, "-n", hosts[0], "link", "add", "cable", "type", "veth", "peer", "name", "cable", "netns", hosts[1])
	for i, h := range hosts {
		address := []string{"-n", h, "address", "add", fmt.Sprintf(network, i+1), "dev", "cable"}
		if strings.Contains(network, ":") {
			address = append(address, "nodad")
		}
		ip(t, address...)
		ip(t, "-n", h, "link", "set", "cable", "up")
	}
	return hosts
}

func ip(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		t.Fatalf("ip %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

// namespacesRank is the program of one rank.
func namespacesRank() error {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	c, err := comm.New(ctx, comm.WithTimeout(30*time.Second), comm.WithFabric("auto"),
		comm.WithHints(map[string]string{"fabric.heartbeat": "500ms"}))
	if err != nil {
		return err
	}
	defer func() { c.Finalize(ctx) }()
	if err := bothPaths(ctx, c); err != nil {
		return err
	}
	if err := someOfEach(ctx, c); err != nil {
		return err
	}
	// Members of both hosts find each other once more.
	if c, err = c.Regroup(ctx, comm.AtLeast(2*ranksPerHost)); err != nil {
		return err
	}
	if err := errors.Join(bothPaths(ctx, c), sums(ctx, c)); err != nil {
		return err
	}
	fmt.Println("ready")
	x := tensor.Must(tensor.Zeros(dtype.Float32, 10_000))
	for {
		if err := c.AllReduce(ctx, x, comm.Sum); err != nil {
			var lost *comm.PeerLostError
			if !errors.As(err, &lost) {
				return fmt.Errorf("not a *PeerLostError: %w", err)
			}
			fmt.Printf("lost %d : %v\n", lost.Peer, err)
			break
		}
	}
	// Each host goes on for itself.
	if c, err = c.Regroup(ctx); err != nil {
		return err
	}
	if c.Size() != ranksPerHost {
		return fmt.Errorf("%d ranks are left", c.Size())
	}
	return sums(ctx, c)
}

// bothPaths checks that exactly the memory of the ranks of this host can be mapped, and that a
// large reduction goes in two levels: within the hosts and between them.
func bothPaths(ctx context.Context, c *comm.Comm) error {
	x := tensor.Must(c.Zeros(dtype.Float32, 300_000))
	w, err := c.NewWindow(ctx, x)
	if err != nil {
		return err
	}
	for r := range c.Size() {
		want := comm.Separate
		if r/ranksPerHost == c.Rank()/ranksPerHost {
			want = comm.Unified
		}
		if got := w.Access(r); got != want {
			return fmt.Errorf("access to rank %d's memory is %v, want %v", r, got, want)
		}
	}
	if err := w.Close(ctx); err != nil {
		return err
	}
	var algorithms []string
	hook := c.RegisterCompletionHook(func(i comm.OpInfo, _ error) { algorithms = append(algorithms, i.Algorithm) })
	defer hook.Remove()
	if err := c.AllReduce(ctx, x, comm.Sum); err != nil {
		return err
	}
	if !slices.ContainsFunc(algorithms, func(a string) bool { return strings.Contains(a, "two_level") }) {
		return fmt.Errorf("an all-reduce of %d elements went by %v, not in two levels", x.NumEl(), algorithms)
	}
	return nil
}

// someOfEach runs operations of several sizes in both kinds of memory and checks their results.
func someOfEach(ctx context.Context, c *comm.Comm) error {
	n, me := c.Size(), c.Rank()
	for _, count := range []int{1, 1000, 300_000} {
		for _, make1 := range []func(dtype.DType, ...int) (*tensor.Tensor, error){tensor.Empty, c.Empty} {
			x, all := tensor.Must(make1(dtype.Float32, count)), tensor.Must(make1(dtype.Float32, n*count))
			fill := func(v int) error { return x.Fill(float32(v)) }
			check := func(what string, t *tensor.Tensor, want func(i int) int) error {
				for i := range t.NumEl() {
					if got := t.At(i); got != float64(want(i)) {
						return fmt.Errorf("%s of %d: element %d is %v, want %v", what, count, i, got, want(i))
					}
				}
				return nil
			}
			sum := n * (n + 1) / 2
			right, left := (me+1)%n, (me+n-1)%n
			b := c.Batch()
			y := tensor.Must(make1(dtype.Float32, count))
			for _, step := range []func() error{
				func() error { return fill(me + 1) },
				func() error { return c.AllReduce(ctx, x, comm.Sum) },
				func() error { return check("all_reduce", x, func(int) int { return sum }) },
				func() error { return fill(me) },
				func() error { return c.AllGatherSingle(ctx, all, x) },
				func() error { return check("all_gather", all, func(i int) int { return i / count }) },
				func() error { return c.Broadcast(ctx, x, n-1) },
				func() error { return check("broadcast", x, func(int) int { return n - 1 }) },
				func() error { return c.Barrier(ctx) },
				func() error { return fill(me) },
				func() error { b.Send(x, right); b.Recv(y, left); return b.Issue(ctx) },
				func() error { return check("message", y, func(int) int { return left }) },
			} {
				if err := step(); err != nil {
					return err
				}
			}
			x.Free()
			y.Free()
			all.Free()
		}
	}
	return nil
}
