package comm_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/internal/sys"
	"github.com/chorus-comms/chorus/internal/testutil"
	"github.com/chorus-comms/chorus/store"
	"github.com/chorus-comms/chorus/tensor"
)

// rankMain, in the environment, makes this test binary one rank of a job.
const rankMain = "CHORUS_TEST_RANK_MAIN"

// programs are what a rank may run instead of the program below, by the value of rankMain.
var programs = map[string]func() error{}

func TestMain(m *testing.M) {
	if mode := os.Getenv(rankMain); mode != "" {
		run := programs[mode]
		if run == nil {
			run = func() error { return rank(mode) }
		}
		if err := run(); err != nil {
			fmt.Println("FAILED:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	code := m.Run()
	if builtChorus != "" {
		os.RemoveAll(filepath.Dir(builtChorus))
	}
	os.Exit(code)
}

var builtChorus string // the command, once a test has needed it

var buildChorus = sync.OnceValue(func() error {
	dir, err := os.MkdirTemp("", "chorus-command-")
	if err != nil {
		return err
	}
	builtChorus = filepath.Join(dir, "chorus")
	if out, err := exec.Command("go", "build", "-o", builtChorus, "../cmd/chorus").CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
})

// chorusCommand is the command, which is built once for all tests.
func chorusCommand(t *testing.T) string {
	t.Helper()
	if err := buildChorus(); err != nil {
		t.Fatal(err)
	}
	return builtChorus
}

// join makes this process a rank of the job that its test, or else a launcher, has described.
func join(ctx context.Context, more ...comm.NewOption) (*comm.Comm, error) {
	opts := append([]comm.NewOption{comm.WithTimeout(20 * time.Second)}, more...)
	if addr := os.Getenv("CHORUS_TEST_STORE"); addr != "" {
		st, err := store.DialTCP(ctx, addr, store.TCPOptions{})
		if err != nil {
			return nil, err
		}
		r, _ := strconv.Atoi(os.Getenv("CHORUS_TEST_RANK"))
		n, _ := strconv.Atoi(os.Getenv("CHORUS_TEST_SIZE"))
		opts = append(opts, comm.WithStore(st), comm.WithRank(r, n), comm.WithFabric(os.Getenv("CHORUS_TEST_FABRIC")))
	}
	return comm.New(ctx, opts...)
}

// rank is the program of one rank: it finds its place from whatever launched it.
func rank(mode string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	c, err := join(ctx)
	if err != nil {
		return err
	}
	n := c.Size()
	for _, count := range []int{1, 1000, 1_000_000} {
		for _, shared := range []bool{false, true} {
			x := tensor.Must(tensor.Empty(dtype.Float32, count))
			if shared {
				x = tensor.Must(c.Empty(dtype.Float32, count))
			}
			for round := range 20 {
				if err := x.Fill(float32(c.Rank() + round)); err != nil {
					return err
				}
				if err := c.AllReduce(ctx, x, comm.Sum); err != nil {
					return err
				}
				if got, want := x.At(count-1), float64(n*(n-1)/2+n*round); got != want {
					return fmt.Errorf("%d elements, shared %v: sum %v, want %v", count, shared, got, want)
				}
			}
		}
	}
	if mode == "doomed" {
		fmt.Printf("ready %d\n", c.Rank())
		for {
			start := time.Now()
			if err := c.Barrier(ctx); err != nil {
				var lost *comm.PeerLostError
				if !errors.As(err, &lost) {
					return fmt.Errorf("not a *PeerLostError: %w", err)
				}
				fmt.Printf("lost %d after %d ms: %v\n", lost.Peer, time.Since(start).Milliseconds(), err)
				c.Finalize(ctx)
				return nil
			}
		}
	}
	if err := c.Barrier(ctx); err != nil {
		return err
	}
	if err := c.Finalize(ctx); err != nil {
		return err
	}
	fmt.Printf("ok %d of %d\n", c.Rank(), n)
	return nil
}

// runJob runs a command whose processes are ranks of this binary.
func runJob(t *testing.T, ranks int, name string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), rankMain+"=1", "CUDA_VISIBLE_DEVICES=", testutil.OpenMPIFolder(t))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", name, err, out)
	}
	for r := range ranks {
		if want := fmt.Sprintf("ok %d of %d", r, ranks); !bytes.Contains(out, []byte(want)) {
			t.Errorf("the output lacks %q:\n%s", want, out)
		}
	}
}

func self(t *testing.T) string {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return exe
}

func TestUnderMPI(t *testing.T) {
	mpirun, err := exec.LookPath("mpirun")
	if err != nil {
		t.Skip("mpirun is not installed")
	}
	for _, n := range []int{1, 2, 4} {
		runJob(t, n, mpirun, "--allow-run-as-root", "--oversubscribe", "-n", strconv.Itoa(n), self(t))
	}
}

func TestUnderTorchrun(t *testing.T) {
	testutil.SkipIfShort(t)
	python := testutil.Python(t)
	for _, n := range []int{2, 3} {
		runJob(t, n, python, "-m", "torch.distributed.run", "--standalone", "--no-python", "--nproc-per-node",
			strconv.Itoa(n), self(t))
	}
}

func TestUnderChorusRun(t *testing.T) {
	chorus := chorusCommand(t)
	for _, n := range []int{1, 2, 4} {
		runJob(t, n, chorus, "run", "--nproc-per-node", strconv.Itoa(n), self(t))
	}
}

// TestKilledRank kills a rank in the middle of operations: every other rank
// learns which one it was.
func TestKilledRank(t *testing.T) {
	for _, fabric := range []string{"shm", "tcp", "auto"} {
		for _, n := range []int{2, 4} {
			t.Run(fmt.Sprintf("%s/world=%d", fabric, n), func(t *testing.T) { killOne(t, fabric, n) })
		}
	}
}

// start starts the ranks of a job of this binary, which meet at a store in this
// process and are killed when the test ends.
func start(t *testing.T, mode, fabric string, n int, env ...string) ([]*exec.Cmd, []*lines) {
	t.Helper()
	server, err := store.ListenTCP("127.0.0.1:0", store.ServerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	return startAt(t, server.Addr().String(), mode, fabric, n, env...)
}

// startAt is start with a store that is somewhere else.
func startAt(t *testing.T, store, mode, fabric string, n int, env ...string) ([]*exec.Cmd, []*lines) {
	t.Helper()
	cmds := make([]*exec.Cmd, n)
	outs := make([]*lines, n)
	for r := range n {
		cmd := exec.Command(self(t))
		cmd.Env = append(os.Environ(), rankMain+"="+mode, "CHORUS_TEST_STORE="+store, "CHORUS_TEST_FABRIC="+fabric,
			"CHORUS_TEST_RANK="+strconv.Itoa(r), "CHORUS_TEST_SIZE="+strconv.Itoa(n))
		cmd.Env = append(cmd.Env, env...)
		cmd.SysProcAttr = &syscall.SysProcAttr{}
		sys.SetDeathSignal(cmd.SysProcAttr)
		outs[r] = &lines{}
		cmd.Stdout, cmd.Stderr = outs[r], outs[r]
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { cmd.Process.Kill() })
		cmds[r] = cmd
	}
	return cmds, outs
}

func killOne(t *testing.T, fabric string, n int) { killOneOf(t, "doomed", fabric, n) }

// killOneOf starts ranks of a program, which say that they are ready, and kills the last; the others must say that it
// is lost.
func killOneOf(t *testing.T, program, fabric string, n int) {
	t.Helper()
	cmds, outs := start(t, program, fabric, n)
	victim := n - 1
	for r := range n {
		if !outs[r].wait("ready", 60*time.Second) {
			t.Fatalf("rank %d is not ready:\n%s", r, outs[r])
		}
	}
	cmds[victim].Process.Kill()
	for r := range n {
		err := cmds[r].Wait()
		if r == victim {
			continue
		}
		if want := fmt.Sprintf("lost %d", victim); err != nil || !strings.Contains(outs[r].String(), want) {
			t.Errorf("rank %d: %v; its output lacks %q:\n%s", r, err, want, outs[r])
		}
	}
}

// lines collects output that is waited for.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func (l *lines) wait(text string, most time.Duration) bool {
	for end := time.Now().Add(most); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if strings.Contains(l.String(), text) {
			return true
		}
	}
	return false
}
