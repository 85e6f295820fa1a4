package launch

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/bootstrap"
	"github.com/chorus-comms/chorus/internal/testutil"
	"github.com/chorus-comms/chorus/launch/internal/launchtest"
	"github.com/chorus-comms/chorus/secure"
)

func init() {
	// nodewith is node args[0] of two, which meet at args[1] and run the rest of args.
	roles["nodewith"] = func(args []string) {
		check(os.Unsetenv(role))
		job := &Job{
			Command: args[2:], RanksPerNode: 1, Nodes: 2, NodeRank: int(args[0][0] - '0'), Endpoint: args[1],
			Stdout: os.Stdout, Stderr: os.Stderr, JoinTimeout: time.Minute, Grace: time.Second,
		}
		err := job.Run(context.Background())
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(ExitCode(err))
	}
	// meet has a rank meet the others.
	roles["meet"] = func([]string) {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		info, err := bootstrap.Detect(os.Getenv)
		check(err)
		st, err := bootstrap.Open(ctx, info, bootstrap.Options{})
		check(err)
		all, err := bootstrap.Exchange(ctx, st, info.Rank, info.Size, []byte(strconv.Itoa(info.Rank)))
		check(err)
		fmt.Printf("met %s at %s\n", bytes.Join(all, []byte(" ")), info.MasterAddr)
		check(st.Close())
	}
}

// hosts are two network name spaces with a cable between them, and in front of its end an interface that leads nowhere.
// Only what is started within them is there.
type hosts [2]string

// address is that of a host, and cable the name of either end of that.
func (h hosts) address(n int) string { return fmt.Sprintf("10.213.7.%d", n+1) }

const cable = "chorus0"

// twoHosts makes them; without the permission the test is skipped.
func twoHosts(t *testing.T) hosts {
	t.Helper()
	if _, err := exec.LookPath("ip"); err != nil || os.Geteuid() != 0 {
		t.Skip("left out: network name spaces need root and ip (Debian: iproute2)")
	}
	h := hosts{fmt.Sprintf("chorus-%d-a", os.Getpid()), fmt.Sprintf("chorus-%d-b", os.Getpid())}
	ip := func(args string) error {
		out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("ip %s: %w: %s", args, err, out)
		}
		return nil
	}
	t.Cleanup(func() {
		for _, name := range h {
			ip("netns del " + name)
		}
	})
	for _, name := range h {
		if err := ip("netns add " + name); err != nil {
			t.Skip("left out: no permission for network name spaces: ", err)
		}
	}
	for n, name := range h {
		for _, args := range []string{"link add nowhere0 type veth peer name nowhere1",
			fmt.Sprintf("addr add 192.0.2.%d/32 dev nowhere0", n+1),
			"link set nowhere1 up", "link set nowhere0 up"} {
			if err := ip("-n " + name + " " + args); err != nil {
				t.Skip("left out: no interfaces in network name spaces: ", err)
			}
		}
	}
	if err := ip(fmt.Sprintf("link add %s netns %s type veth peer name %s netns %s", cable, h[0], cable,
		h[1])); err != nil {
		t.Skip("left out: no cable between network name spaces: ", err)
	}
	for n, name := range h {
		for _, args := range []string{"addr add " + h.address(n) + "/24 dev " + cable, "link set lo up", "link set " + cable +
			" up"} {
			if err := ip("-n " + name + " " + args); err != nil {
				t.Fatal(err)
			}
		}
	}
	return h
}

// launch runs a command by a launcher on each host, and returns what each of them prints.
func (h hosts) launch(t *testing.T, env []string, command ...string) (outs [2]string) {
	t.Helper()
	var nodes sync.WaitGroup
	for n := range h {
		args := append([]string{"netns", "exec", h[n], os.Args[0], strconv.Itoa(n), h.address(0) + ":29400"}, command...)
		cmd := exec.CommandContext(t.Context(), "ip", args...)
		cmd.Env = append(env[:len(env):len(env)], role+"=nodewith", "TMPDIR="+t.TempDir())
		cmd.WaitDelay = 5 * time.Second
		nodes.Go(func() {
			out, err := cmd.CombinedOutput()
			if outs[n] = string(out); err != nil {
				t.Errorf("node %d: %v\n%s", n, err, out)
			}
		})
	}
	nodes.Wait()
	return outs
}

// TestTorchOnTwoHosts runs programs of PyTorch on two hosts that have a secret: PyTorch's clients can't prove that they
// have it.
func TestTorchOnTwoHosts(t *testing.T) {
	testutil.SkipIfShort(t) // TestTorch and TestRanksOnTwoHosts are brief
	python := testutil.Python(t)
	h := twoHosts(t)
	secret := filepath.Join(t.TempDir(), "job.secret")
	if err := os.WriteFile(secret, []byte(secure.Generate()), 0o600); err != nil {
		t.Fatal(err)
	}
	const program = `
import datetime, os, sys, torch, torch.distributed as dist
for backend in sys.argv[1:]:
    if backend == "chorus":
        import chorus
    dist.init_process_group(backend, timeout=datetime.timedelta(seconds=20))
    t = torch.full((1000,), float(dist.get_rank() + 1))
    dist.all_reduce(t)
    dist.barrier()
    print(backend, "sum", t[999].item(), "of", dist.get_world_size(), "met at", os.environ["MASTER_ADDR"])
    dist.destroy_process_group()
`
	backends := []string{"gloo"}
	path := filepath.Join(testutil.ModuleRoot(t), "python")
	if _, err := os.Stat(filepath.Join(path, "chorus", "libchorus.so")); err == nil {
		backends = append(backends, "chorus")
	} else {
		t.Log("left out: backend chorus; no library in python/chorus (sh capi/build.sh python/chorus/libchorus.so)")
	}
	env := testutil.PythonEnv("TORCH_DEVICE_BACKEND_AUTOLOAD=1", "CHORUS_SECRET_FILE="+secret,
		"GLOO_SOCKET_IFNAME="+cable, "PYTHONPATH="+path)
	for n, out := range h.launch(t, env, append([]string{python, "-u", "-c", program}, backends...)...) {
		for _, b := range backends {
			launchtest.WantText(t, out, fmt.Sprintf("[%d]: %s sum 3.0 of 2 met at 127.0.0.1", n, b))
		}
	}
}

// TestRanksOnTwoHosts meet at the store itself, encrypted.
func TestRanksOnTwoHosts(t *testing.T) {
	h := twoHosts(t)
	env := append(os.Environ(), "CHORUS_SECRET="+secure.Generate(), "CHORUS_TLS=1")
	for n, out := range h.launch(t, env, "env", role+"=meet", os.Args[0]) {
		launchtest.WantText(t, out, fmt.Sprintf("[%d]: met 0 1 at %s", n, h.address(0)))
	}
}
