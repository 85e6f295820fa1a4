package observe_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/launch"
	"github.com/chorus-comms/chorus/observe"
	"github.com/chorus-comms/chorus/tensor"
)

// mistakes are the roles of jobs of two ranks under the launcher, in which rank 1 makes a mistake. The output stands in
// docs/debugging.md.
var mistakes = map[string]func(ctx context.Context, c, part *comm.Comm) error{
	"print crossed": func(ctx context.Context, _, part *comm.Comm) error { return part.Barrier(ctx) },
	"print missing": func(context.Context, *comm.Comm, *comm.Comm) error { time.Sleep(time.Minute); return nil },
	"print dtype": func(ctx context.Context, c, _ *comm.Comm) error {
		err := c.AllReduce(ctx, tensor.Of(make([]float64, 8)), comm.Sum)
		for !exists(printedMark()) { // else the launcher may end rank 0 before it has printed what it got
			time.Sleep(time.Millisecond)
		}
		return err
	},
	"print panic": func(ctx context.Context, c, _ *comm.Comm) error {
		awaitWaiting(ctx, 0, c.Name()) // else the launcher may end it before it has come to wait
		var batch []float32
		return fmt.Errorf("the first loss is %v", batch[0])
	},
}

// mistaken is the program of a rank.
func mistaken(name string) {
	ctx := context.Background()
	c, err := comm.New(ctx)
	check(err)
	defer c.Finalize(ctx)
	part, err := c.Split(ctx, []int{0, 1}, comm.SplitName("part"))
	check(err)
	defer part.Finalize(ctx)
	x := tensor.Of(make([]float32, 8))
	for range 10 {
		check(c.AllReduce(ctx, x, comm.Sum))
	}
	if c.Rank() == 1 {
		check(mistakes[name](ctx, c, part))
	}
	err = c.AllReduce(ctx, x, comm.Sum, comm.Timeout(time.Second))
	if name == "print crossed" || name == "print missing" { // rank 1 has learned nothing
		check(err)
	}
	fmt.Fprintln(os.Stderr, err)
	check(os.WriteFile(printedMark(), nil, 0o600))
	time.Sleep(time.Minute) // the launcher ends it because of rank 1
}

// printedMark is the file that says that rank 0 has printed its error.
func printedMark() string { return filepath.Join(os.Getenv("CHORUS_DUMP_DIR"), "printed") }

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// awaitWaiting returns when a rank is in an operation of a communicator.
func awaitWaiting(ctx context.Context, rank int, name string) {
	for {
		answers, err := observe.AskLive(ctx, os.Getenv("CHORUS_DUMP_DIR"))
		check(err)
		for _, a := range answers {
			if a.Live != nil && a.Live.Rank == rank && slices.ContainsFunc(a.Live.Comms,
				func(c observe.LiveComm) bool { return c.Name == name && c.Op != "" }) {
				return
			}
		}
		time.Sleep(time.Millisecond)
	}
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// constant replaces what differs from run to run: times, processes, places, and the job's name.
func constant(line string) string {
	for _, r := range varying {
		line = r.pattern.ReplaceAllString(line, r.by)
	}
	return line
}

var varying = []struct {
	pattern *regexp.Regexp
	by      string
}{
	{regexp.MustCompile(`\b\d+(\.\d+)? ?(ms|µs|s)\b`), "T"},
	{regexp.MustCompile(`pid \d+ on \S+\)`), "pid N on HOST)"},
	{regexp.MustCompile(`\S+\.go:\d+ \(\S+\)`), "PLACE"},
	{regexp.MustCompile(`records in \S+:\n`), "records in DIR:\n"},
}

// TestPrinted demands that each line which the page shows of such a job is printed by one.
func TestPrinted(t *testing.T) {
	page, err := os.ReadFile("../docs/debugging.md")
	if err != nil {
		t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name := range mistakes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out syncBuffer
			j := &launch.Job{Command: []string{exe}, RanksPerNode: 2, Stdout: &out, Stderr: &out, Records: t.TempDir(),
				Grace: time.Second,
				Env:   append(os.Environ(), role+"="+name, "CHORUS_DUMP_DIR=")}
			if err := j.Run(t.Context()); err == nil {
				t.Error("nothing failed")
			}
			t.Logf("%s", &out)
			printed := map[string]bool{}
			for l := range strings.Lines(out.String()) {
				printed[constant(l)] = true
			}
			_, block, ok := strings.Cut(string(page), "<!-- printed: "+strings.TrimPrefix(name, "print ")+" -->\n```text\n")
			if !ok {
				t.Fatal("debugging.md doesn't show it")
			}
			block, _, _ = strings.Cut(block, "```")
			for l := range strings.Lines(block) {
				if !printed[constant(l)] {
					t.Errorf("debugging.md shows what is not printed:\n%s", l)
				}
			}
		})
	}
}

// TestExplainAcrossNodes runs such a job on two nodes, each of which gets the explanation from the records of both
// nodes' ranks.
func TestExplainAcrossNodes(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	var outs [2]syncBuffer
	var wg sync.WaitGroup
	for n := range outs {
		wg.Go(func() {
			j := &launch.Job{Command: []string{exe}, RanksPerNode: 1, Nodes: 2, NodeRank: n, Endpoint: l.Addr().String(),
				RunID: "across", Stdout: &outs[n], Stderr: &outs[n],
				Records: t.TempDir(), Grace: 30 * time.Second, Env: append(os.Environ(), role+"=print missing", "CHORUS_DUMP_DIR=")}
			if err := j.Run(t.Context()); err == nil {
				t.Error("nothing failed")
			}
		})
	}
	wg.Wait()
	for n := range outs {
		for _, want := range []string{
			"chorus: from the records of all nodes' ranks:\n",
			"chorus: 1. missing: rank 1 is missing from all_reduce(float32[8], sum) #12 of \"world\"\n",
			"chorus:    rank 1: busy elsewhere [sleep] after all_reduce(float32[8], sum) #11 of ",
			"chorus:    waiting: rank 0: all_reduce(float32[8], sum) #12, at ",
		} {
			if !strings.Contains(outs[n].String(), want) {
				t.Errorf("node %d doesn't print %q:\n%s", n, want, &outs[n])
			}
		}
	}
}

// syncBuffer may be written by several goroutines.
type syncBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}
