package accl

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/comm/commtest"
	_ "github.com/chorus-comms/chorus/comm/native"
	"github.com/chorus-comms/chorus/internal/testutil"
	"github.com/chorus-comms/chorus/store"
	"github.com/chorus-comms/chorus/tensor"
)

// Variables of a process that is a rank of a test.
const (
	rankVar  = "CHORUS_TEST_ACCL_RANK"
	sizeVar  = "CHORUS_TEST_ACCL_SIZE"
	storeVar = "CHORUS_TEST_ACCL_STORE"
)

// inProcesses runs f in n processes of the test that calls it, and returns their errors. In each of them, it runs f
// and doesn't return.
func inProcesses(t *testing.T, n int, f func(ctx context.Context, st store.Store, rank, n int) error) []error {
	t.Helper()
	if rank, size, ok := asRank(); ok {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		st, err := store.OpenFile(ctx, os.Getenv(storeVar), store.FileOptions{})
		if err == nil {
			err = errors.Join(f(ctx, st, rank, size), st.Close())
		}
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	return processes(t, n)
}

// asRank reports whether this process is a rank of a test, and which.
func asRank() (rank, size int, ok bool) {
	rank, err := strconv.Atoi(os.Getenv(rankVar))
	size, err2 := strconv.Atoi(os.Getenv(sizeVar))
	return rank, size, err == nil && err2 == nil
}

// processes runs the test that calls it in n processes, which are ranks of it, and returns their errors. When one has
// failed, the others have some time to find out.
func processes(t *testing.T, n int) []error {
	t.Helper()
	path := filepath.Join(t.TempDir(), "store")
	outs, cmds, errs := make([]strings.Builder, n), make([]*exec.Cmd, n), make([]error, n)
	for r := range n {
		cmds[r] = exec.Command(os.Args[0], "-test.timeout=1h", "-test.run=^"+strings.ReplaceAll(t.Name(), "/", "$/^")+"$")
		cmds[r].Env = append(os.Environ(), rankVar+"="+strconv.Itoa(r), sizeVar+"="+strconv.Itoa(n), storeVar+"="+path)
		cmds[r].Stdout, cmds[r].Stderr = &outs[r], &outs[r]
		if err := cmds[r].Start(); err != nil {
			t.Fatal(err)
		}
		defer cmds[r].Process.Kill()
	}
	var all sync.WaitGroup
	for r, c := range cmds {
		all.Go(func() {
			if errs[r] = c.Wait(); errs[r] != nil {
				errs[r] = fmt.Errorf("rank %d of %d: %w: %s", r, n, errs[r], outs[r].String())
				time.AfterFunc(time.Minute, func() {
					for _, other := range cmds {
						other.Process.Kill()
					}
				})
			}
		})
	}
	all.Wait()
	return errs
}

// conformApart runs the suite in n processes, or in an ordinary run the collectives of it.
func conformApart(t *testing.T, n int, w way) {
	rank, _, ok := asRank()
	if !ok {
		if err := errors.Join(processes(t, n)...); err != nil {
			t.Error(err)
		}
		return
	}
	st, err := store.OpenFile(t.Context(), os.Getenv(storeVar), store.FileOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	worlds, meetings := 0, 0
	cfg := suite([]int{n}, nil)
	cfg.Ordinary, cfg.Limit = true, gridLimit
	cfg.Open = func(t testing.TB, size int) []*comm.Comm {
		t.Helper()
		if size != n {
			t.Skipf("it's for a world of %d", size)
		}
		worlds++
		c, err := openRank(context.Background(), Name, fmt.Sprint("world", worlds), st, rank, n, w.hints,
			comm.WithTimeout(gridLimit))
		if err != nil {
			t.Fatal(err)
		}
		return []*comm.Comm{c}
	}
	cfg.Meet = func(t testing.TB) {
		meetings++
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		key := fmt.Sprint("meeting/", meetings, "/")
		err := st.Set(ctx, key+fmt.Sprint(rank), nil)
		for r := range n {
			if err == nil {
				_, err = st.Get(ctx, key+fmt.Sprint(r))
			}
		}
		if err != nil {
			t.Error(err)
		}
	}
	if w.compressed {
		cfg.Skip = []string{"Specials"}
	}
	if commtest.Long() {
		commtest.Run(t, cfg)
	} else {
		commtest.Collectives(t, cfg)
	}
}

func openRank(ctx context.Context, backend, name string, st store.Store, rank, n int,
	hints map[string]string, more ...comm.NewOption) (*comm.Comm, error) {
	opts := []comm.NewOption{comm.WithBackend(backend), comm.WithRank(rank, n), comm.WithStore(st), comm.WithName(name),
		comm.WithTimeout(30 * time.Second)}
	if hints != nil {
		opts = append(opts, comm.WithHints(hints))
	}
	return comm.New(ctx, append(opts, more...)...)
}

// TestProcesses has an engine in each of several processes, whose random programs give what native's give: every way
// that engines of several processes can go.
func TestProcesses(t *testing.T) {
	worlds := []int{2, 4}
	if commtest.Long() {
		worlds = sizes[1:]
	} else if testutil.Short() {
		worlds = []int{3}
	}
	for _, n := range worlds {
		if err := errors.Join(inProcesses(t, n, programs)...); err != nil {
			t.Fatal(err)
		}
	}
}

func programs(ctx context.Context, st store.Store, rank, n int) error {
	seed := 1000
	for _, w := range apart() {
		if w.compressed {
			continue
		}
		name := strings.ReplaceAll(w.name, "/", "-")
		own, err := openRank(ctx, Name, name, st, rank, n, w.hints)
		if err != nil {
			return err
		}
		other, err := openRank(ctx, "native", name+"-native", st, rank, n, nil)
		if err != nil {
			return err
		}
		for range testutil.Pick(1, 4) {
			seed++
			if _, err := compare(ctx, seed, own, other); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		if err := errors.Join(own.Finalize(ctx), other.Finalize(ctx)); err != nil {
			return err
		}
	}
	return nil
}

// TestKilledProcess has an engine in each of three processes, of which one is killed: the others name its rank.
func TestKilledProcess(t *testing.T) {
	const n = 3
	for r, err := range inProcesses(t, n, oneDies) {
		if r < n-1 && err != nil {
			t.Error(err)
		}
	}
}

// oneDies is a rank; the last one kills itself when the others are there.
func oneDies(ctx context.Context, st store.Store, rank, n int) error {
	c, err := openRank(ctx, Name, "killed", st, rank, n, nil)
	if err != nil {
		return err
	}
	defer c.Finalize(ctx)
	if err := c.AllReduce(ctx, tensor.Of(make([]float32, 100_000)), comm.Sum); err != nil {
		return err
	}
	done := func(r int) string { return fmt.Sprint("done/", r) }
	if err := st.Set(ctx, done(rank), nil); err != nil {
		return err
	}
	if rank == n-1 {
		for r := range n {
			if _, err := st.Get(ctx, done(r)); err != nil {
				return err
			}
		}
		self, err := os.FindProcess(os.Getpid())
		if err == nil {
			err = self.Kill()
		}
		return err
	}
	start := time.Now()
	err = c.AllReduce(ctx, tensor.Of(make([]float32, 100_000)), comm.Sum)
	if lost := (*comm.PeerLostError)(nil); !errors.As(err, &lost) || lost.Peer != n-1 {
		return fmt.Errorf("not the loss of rank %d: %v", n-1, err)
	}
	if took := time.Since(start); took > 20*time.Second {
		return fmt.Errorf("it took %v to notice", took)
	}
	return nil
}
