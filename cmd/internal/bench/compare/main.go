package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/chorus-comms/chorus/cmd/internal/bench"
)

// flags are what a user typed.
type flags struct {
	only, peers      []string
	dir, venv, out   string
	docs             string
	min, max         string
	rounds           int
	budget, limit    time.Duration
	installOnly, add bool
	reportOnly       bool
}

func main() {
	// A peer's thread that is stopped while it does not measure must not stay so.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := newCommand().ExecuteContext(ctx); err != nil {
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	var f flags
	cmd := &cobra.Command{
		Use:          "compare",
		Short:        "Measure Chorus beside other libraries on this host, and judge its targets",
		Args:         cobra.NoArgs,
		SilenceUsage: true,
		RunE:         func(cmd *cobra.Command, _ []string) error { return f.run(cmd.Context()) },
	}
	var names []string
	for _, p := range peers {
		names = append(names, p.name)
	}
	fs := cmd.Flags()
	fs.StringSliceVar(&f.only, "only", measureNames(), "what to measure")
	fs.StringSliceVar(&f.peers, "peers", names, "libraries to compare with")
	fs.StringVar(&f.dir, "dir", ".peers", "the folder that the libraries are installed into")
	fs.StringVar(&f.venv, "venv", ".venv",
		"a Python environment with PyTorch, for Gloo, vLLM and DeepSpeed; it's only read")
	fs.StringVar(&f.out, "out", "out/compare.json", "the document to write")
	fs.StringVar(&f.docs, "docs", "",
		"a page whose part between the compare comments is replaced by the report; plots go beside it")
	fs.StringVar(&f.min, "min", "0", "smallest size, such as 64KiB")
	fs.StringVar(&f.max, "max", "256MiB", "largest size")
	fs.IntVar(&f.rounds, "rounds", 8, "most bursts of each series at each size")
	fs.DurationVar(&f.budget, "burst", 6*time.Millisecond, "time of a burst of small rounds")
	fs.DurationVar(&f.limit, "limit", 16*time.Minute,
		"end after this long, installing included: the time is divided among the sizes, and what is missing is skipped")
	fs.BoolVar(&f.installOnly, "install-only", false, "install the libraries and measure nothing")
	fs.BoolVar(&f.add, "add", false, "add to the bursts that the document has")
	fs.BoolVar(&f.reportOnly, "report", false, "measure nothing: report on the document that is there")
	cmd.AddCommand(newWorkerCommand(), newPythonCommand(), newPagesCommand(), &cobra.Command{Use: "guard", Hidden: true,
		RunE: func(*cobra.Command, []string) error { return watch(os.Stdin, killHard) }})
	return cmd
}

// newWorkerCommand is a rank of ours, which the harness starts.
func newWorkerCommand() *cobra.Command {
	return &cobra.Command{
		Use: "worker SOCKET STORE RANK SIZE FABRIC BIND", Hidden: true, Args: cobra.ExactArgs(6), SilenceUsage: true,
		RunE: func(cmd *cobra.Command, a []string) error {
			rank, err1 := strconv.Atoi(a[2])
			size, err2 := strconv.Atoi(a[3])
			bind, err3 := strconv.ParseBool(a[5])
			if err := errors.Join(err1, err2, err3); err != nil {
				return err
			}
			return serveOurs(cmd.Context(), a[0], a[1], rank, size, a[4], bind)
		},
	}
}

func (f *flags) run(ctx context.Context) error {
	r, err := f.report(ctx)
	if r == nil {
		return err
	}
	// Measurements from before an interruption or a failure count.
	return errors.Join(err, f.finish(r))
}

func (f *flags) finish(r *report) error {
	r.Verdicts = judge(poolBursts(r.Bursts), r.Allocs)
	if err := os.MkdirAll(filepath.Dir(f.out), 0o755); err != nil {
		return err
	}
	if err := r.write(f.out); err != nil {
		return err
	}
	r.writeText(os.Stdout)
	if err := r.writePlots(strings.TrimSuffix(f.out, ".json")); err != nil {
		return err
	}
	if f.docs != "" {
		return r.writeDocs(f.docs)
	}
	return nil
}

// report measures, or reads what was measured; nil if nothing was to be.
func (f *flags) report(ctx context.Context) (*report, error) {
	if f.reportOnly {
		return readReport(f.out)
	}
	least, err1 := bench.ParseSize(f.min)
	most, err2 := bench.ParseSize(f.max)
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	for _, name := range f.only {
		if !slices.Contains(measureNames(), name) {
			return nil, fmt.Errorf("--only %s: there are %s", name, strings.Join(measureNames(), ", "))
		}
	}
	for _, name := range f.peers {
		if !slices.ContainsFunc(peers, func(p peer) bool { return p.name == name }) {
			return nil, fmt.Errorf("--peers: no library %q", name)
		}
	}
	hm, err := f.home()
	if err != nil {
		return nil, err
	}
	deadline := time.Now().Add(f.limit)
	all, err := installPeers(ctx, hm, f.peers, os.Stderr)
	if err != nil || f.installOnly {
		return nil, err
	}
	r := &report{Machine: bench.ThisMachine(), Date: time.Now().Format(time.DateOnly), Peers: all}
	var earlier *report
	if f.add {
		if earlier, err = readReport(f.out); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
	}
	err = f.measure(ctx, hm, r, least, most, deadline)
	if len(r.Bursts) == 0 && len(r.Allocs) == 0 {
		return nil, err
	}
	if earlier != nil {
		r.join(earlier)
	}
	return r, err
}

func (f *flags) home() (*home, error) {
	dir, err1 := filepath.Abs(f.dir)
	venv, err2 := filepath.Abs(f.venv)
	drivers, err3 := filepath.Abs("cmd/internal/bench/compare/drivers")
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, err
	}
	if _, err := os.Stat(drivers); err != nil {
		return nil, fmt.Errorf("run it in the root of the repository: %w", err)
	}
	return &home{dir: dir, drivers: drivers, torch: venv}, nil
}

func (f *flags) measure(ctx context.Context, hm *home, r *report, least, most int, deadline time.Time) error {
	scratch, err := os.MkdirTemp("", "chorus-compare-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	gd, err := startGuard()
	if err != nil {
		return err
	}
	defer gd.close()
	h := &harness{home: hm, scratch: scratch, found: r.Peers, rounds: f.rounds, budget: f.budget, min: least, max: most,
		log: os.Stderr, guard: gd,
		groups: map[string]*group{}, failures: map[string]string{}, each: map[string]float64{}, allocs: map[string]float64{}}
	defer h.end()
	start := time.Now()
	defer func() {
		r.Seconds, r.Bursts, r.Failures, r.Allocs = time.Since(start).Seconds(), h.bursts, h.failures, h.allocs
	}()
	limited, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	var asked []*measure
	for i := range measures {
		if slices.Contains(f.only, measures[i].name) {
			asked = append(asked, &measures[i])
		}
	}
	// Two rounds are run whatever they take, so that a part of the time is kept for what that adds up to, and for
	// placements that were missed.
	h.ration.deadline = deadline.Add(-time.Until(deadline) / 6)
	h.weigh(asked)
	for _, m := range asked {
		if err := h.run(limited, m); err != nil {
			if ctx.Err() == nil && limited.Err() != nil {
				fmt.Fprintf(os.Stderr, "stopped in %s after %v (--limit)\n", m.name, f.limit)
				return nil
			}
			return fmt.Errorf("%s: %w", m.name, err)
		}
	}
	if err := h.topUp(limited, asked); err != nil && (ctx.Err() != nil || limited.Err() == nil) {
		return err
	}
	return nil
}
