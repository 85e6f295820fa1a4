package observe_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/launch"
	"github.com/chorus-comms/chorus/observe"
	"github.com/chorus-comms/chorus/observe/record"
	"github.com/chorus-comms/chorus/tensor"
)

// role, in the environment, makes this test binary a rank of a job that goes wrong in the way of that name.
const role = "CHORUS_OBSERVE_TEST_ROLE"

func TestMain(m *testing.M) {
	if name := os.Getenv(role); name != "" {
		if mistakes[name] != nil {
			mistaken(name)
		}
		if err := program(name); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(0) // so that the launcher doesn't stop the others before they have dumped
	}
	os.Exit(m.Run())
}

// program is what each of four ranks does: ten operations together, and then something that rank 2 does otherwise.
func program(name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := comm.New(ctx, comm.WithTimeout(20*time.Second))
	if err != nil {
		return err
	}
	defer c.Finalize(ctx)
	x := tensor.Of(make([]float32, 8))
	part, err := c.Split(ctx, []int{0, 1, 2, 3}, comm.SplitName("part"))
	if err != nil {
		return err
	}
	defer part.Finalize(ctx)
	for range 10 {
		if err := c.AllReduce(ctx, x, comm.Sum); err != nil {
			return err
		}
	}
	if marks := os.Getenv(role + "_MARKS"); marks != "" {
		if err := os.WriteFile(filepath.Join(marks, fmt.Sprint(c.Rank())), nil, 0o600); err != nil {
			return err
		}
	}
	short := comm.Timeout(500 * time.Millisecond)
	culprit := c.Rank() == 2
	// Rank 0 times out, when the others are where they stay.
	timeout := func(waiting func(*observe.Top) bool) ([]comm.Option, error) {
		if c.Rank() != 0 {
			return nil, nil
		}
		return []comm.Option{short}, await(ctx, waiting)
	}
	switch name {
	case "hang":
		if culprit {
			return elsewhere(c)
		}
		o, err := timeout(func(top *observe.Top) bool { return waits(top, "all_reduce", 1, 3) })
		if err != nil {
			return err
		}
		return c.AllReduce(ctx, x, comm.Sum, o...)
	case "mismatch":
		if culprit {
			return c.AllReduce(ctx, tensor.Of(make([]float64, 8)), comm.Sum) // the culprit's line
		}
		return c.AllReduce(ctx, x, comm.Sum)
	case "die":
		if culprit {
			return syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
		return c.AllReduce(ctx, x, comm.Sum)
	case "crossed":
		if culprit {
			return part.Barrier(ctx)
		}
		o, err := timeout(func(top *observe.Top) bool {
			return waits(top, "barrier", 1, 3) && waits(top, "barrier", 2)
		})
		if err != nil {
			return err
		}
		return c.Barrier(ctx, o...)
	case "refuse":
		if culprit {
			c.AllReduce(ctx, x, comm.Sum, comm.Into(tensor.Of(make([]float32, 9))))
			<-c.Broken()
			return dumped(ctx, c.Rank())
		}
		return c.AllReduce(ctx, x, comm.Sum, short)
	case "message":
		if culprit {
			return c.Recv(ctx, x, 1) // SIGUSR1 comes in the middle
		}
		if c.Rank() == 1 {
			return elsewhere(part)
		}
		return c.Barrier(ctx)
	case "late":
		if !culprit {
			return c.Recv(ctx, x, 2, short)
		}
		for others := 0; others < 3; time.Sleep(5 * time.Millisecond) {
			dumps, _ := filepath.Glob(filepath.Join(os.Getenv("CHORUS_DUMP_DIR"), "*.json"))
			others = len(dumps)
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
		}
		return nil
	case "slow":
		large := tensor.Of(make([]float32, 64<<10)) // large enough for each to be timed
		for range 20 {
			if culprit {
				if err := await(ctx, func(top *observe.Top) bool { return waits(top, "all_reduce", 0, 1, 3) }); err != nil {
					return err
				}
				time.Sleep(10 * time.Millisecond) // for which the others wait
			}
			if err := c.AllReduce(ctx, large, comm.Sum); err != nil {
				return err
			}
		}
		if _, err := record.DumpAll(os.Getenv("CHORUS_DUMP_DIR")); err != nil {
			return err
		}
		return c.Barrier(ctx)
	}
	return fmt.Errorf("no role %s", name)
}

// elsewhere is where a rank is that should be in an operation.
func elsewhere(c *comm.Comm) error {
	written := make(chan error, 1)
	go func() { // so that the dump finds this function waiting, and not what looks for the dump
		<-c.Broken()
		written <- dumped(context.Background(), c.Rank())
	}()
	select {
	case err := <-written:
		return err
	case <-time.After(20 * time.Second):
		return nil
	}
}

// dumped waits until this rank has written its dump.
func dumped(ctx context.Context, rank int) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	for {
		names, err := filepath.Glob(filepath.Join(os.Getenv("CHORUS_DUMP_DIR"), fmt.Sprintf("*_rank_%d.json", rank)))
		if err != nil || len(names) > 0 {
			return err
		}
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("rank %d writes no dump: %w", rank, ctx.Err())
		}
	}
}

// await looks at the job from outside until what it sees is as wanted.
func await(ctx context.Context, wanted func(*observe.Top) bool) error {
	for {
		answers, err := observe.AskLive(ctx, os.Getenv("CHORUS_DUMP_DIR"))
		if err != nil {
			return err
		}
		top := observe.NewTop(nil, answers)
		if wanted(top) {
			return nil
		}
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("the other ranks don't come: %w\n%v", ctx.Err(), top)
		}
	}
}

// waits reports whether exactly these ranks wait in an operation of one communicator.
func waits(top *observe.Top, op string, ranks ...int) bool {
	return slices.ContainsFunc(top.Waits, func(w observe.TopWait) bool {
		return strings.HasPrefix(w.Op, op) && slices.Equal(w.Waiting, ranks)
	})
}

// job runs four ranks in a role, and returns what is explained of their dumps, and these.
func job(t *testing.T, name string) (*observe.Report, []*observe.Dump) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	var out bytes.Buffer
	// The shell hides a rank's death from the launcher, which would stop the others before they have dumped.
	j := &launch.Job{Command: []string{"sh", "-c", `"$0"; exit 0`, exe}, RanksPerNode: 4, Stderr: &out,
		Env: append(os.Environ(), role+"="+name, "CHORUS_DUMP_DIR="+dir)}
	err = j.Run(t.Context())
	if failed := (*launch.Failure)(nil); err != nil && !errors.As(err, &failed) {
		t.Fatalf("%v\n%s", err, &out)
	}
	dumps, err := observe.ReadDir(dir, 0)
	if err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	r := observe.Explain(dumps)
	t.Logf("%s\n%s", &out, r)
	return r, dumps
}

func TestJobs(t *testing.T) {
	page, err := os.ReadFile("../docs/observability.md")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]struct {
		kind    observe.Kind
		ranks   []int
		op, say string
	}{
		"hang":     {observe.KindMissing, []int{2}, "all_reduce", "job_test.go:"},
		"mismatch": {observe.KindMismatch, []int{2}, "all_reduce", "float64[8]"},
		"die":      {observe.KindNoDump, []int{2}, "all_reduce", "rank 2"},
		"crossed":  {observe.KindCrossed, nil, "barrier", `"part"`},
		"slow":     {observe.KindSlow, []int{2}, "all_reduce", "rank 2"},
		"refuse":   {observe.KindRefused, []int{2}, "all_reduce", "9 elements"},
		"late":     {observe.KindNoDump, []int{2}, "recv", "rank 2"},
	} {
		t.Run(name, func(t *testing.T) {
			r, _ := job(t, name)
			if len(r.Findings) == 0 {
				t.Fatal("no finding")
			}
			f := r.Findings[0]
			if f.Kind != want.kind || want.ranks != nil && !slices.Equal(f.Ranks, want.ranks) || !strings.Contains(f.Op,
				want.op) || !strings.Contains(r.String(), want.say) {
				t.Errorf("got %+v", f)
			}
			// The page shows the first line as it's printed.
			number := regexp.MustCompile(`#\d+`) // which depends on how far the others were when a rank died
			line := number.ReplaceAllString(strings.Split(r.String(), "\n")[2], "#")
			if name != "slow" && name != "refuse" && name != "late" && !strings.Contains(number.ReplaceAllString(string(page), "#"), line+"\n") {
				t.Errorf("observability.md lacks\n%s", line)
			}
			if name == "crossed" && !slices.Contains(f.Ranks, 2) {
				t.Errorf("rank 2 is not in the circle: %v", f.Ranks)
			}
			if name == "hang" && !strings.Contains(f.Culprits[0].At, "elsewhere") {
				t.Errorf("it is not said where rank 2 is: %+v", f.Culprits)
			}
		})
	}
}

// TestSignal dumps a job that is stuck, and has not failed, by SIGUSR1.
func TestSignal(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir, marks := t.TempDir(), t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
	signals := make(chan os.Signal)
	j := &launch.Job{Command: []string{exe}, RanksPerNode: 4, Stderr: os.Stderr, Signals: signals, Grace: time.Second,
		Env: append(os.Environ(), role+"=message", role+"_MARKS="+marks, "CHORUS_DUMP_DIR="+dir)}
	ended := make(chan error, 1)
	go func() { ended <- j.Run(ctx) }()
	files := func(pattern string) int {
		names, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		return len(names)
	}
	wait := func(what string, until func() bool) {
		for !until() {
			select {
			case err := <-ended:
				t.Fatalf("the job ended while it was waited for %s: %v", what, err)
			case <-time.After(5 * time.Millisecond):
			}
		}
	}
	wait("the ranks", func() bool { return files(filepath.Join(marks, "*")) == 4 })
	// A signal may come before the ranks are where they stay, so it's repeated until they are.
	wait("rank 1 to be blamed", func() bool {
		signals <- syscall.SIGUSR1
		wait("dumps", func() bool { return files(filepath.Join(dir, "*.json")) == 4 })
		dumps, err := observe.ReadDir(dir, 256)
		if err != nil {
			t.Fatal(err)
		}
		r := observe.Explain(dumps)
		for i := range 4 {
			os.Remove(filepath.Join(dir, fmt.Sprintf("%s_rank_%d.json", dumps[0].Chorus.Job, i)))
		}
		blamed := map[string]bool{}
		for _, f := range r.Findings {
			if f.Kind != observe.KindMissing || !slices.Equal(f.Ranks, []int{1}) || !strings.Contains(f.Culprits[0].At,
				"elsewhere") {
				return false
			}
			blamed[f.Op] = true
		}
		return blamed["barrier"] && blamed["recv(float32[8], from 1)"]
	})
	cancel()
	<-ended
}

// TestLive looks at a job that is stuck from outside, until it sees which ranks wait for which.
func TestLive(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
	j := &launch.Job{Command: []string{exe}, RanksPerNode: 4, Stderr: os.Stderr, Grace: time.Second,
		Env: append(os.Environ(), role+"=message", "CHORUS_DUMP_DIR="+dir)}
	ended := make(chan error, 1)
	go func() { ended <- j.Run(ctx) }()
	var top *observe.Top
	for seen := false; !seen; {
		select {
		case err := <-ended:
			t.Fatalf("the job ended before it was seen to be stuck: %v\n%v", err, top)
		case <-time.After(5 * time.Millisecond):
		}
		answers, err := observe.AskLive(ctx, dir)
		if err != nil {
			t.Fatal(err)
		}
		top = observe.NewTop(nil, answers)
		receives := slices.ContainsFunc(top.Rows, func(r observe.TopRow) bool {
			return r.Rank == 2 && r.Op == "recv(float32[8], from 1)" && strings.Contains(r.At, "job_test.go")
		})
		seen = receives && slices.ContainsFunc(top.Waits, func(w observe.TopWait) bool {
			return w.Op == "barrier" && slices.Equal(w.Waiting, []int{0, 3}) && slices.Equal(w.For, []int{1, 2})
		})
	}
	t.Logf("%v", top)
	cancel()
	<-ended
}
