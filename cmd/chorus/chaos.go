package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/chorus-comms/chorus/cmd/internal/chaos"
	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/internal/sys"
)

// chaosFlags are the flags of chorus chaos.
type chaosFlags struct {
	campaign      chaos.Campaign
	virtual, real bool
	seed          uint64
	faults        []string
	json, docs    string
	timeout       time.Duration
	worker        bool
}

// maxLoad bounds --load: each is a process.
const maxLoad = 1000

func newChaosCmd() *cobra.Command {
	var f chaosFlags
	var kinds []string
	for _, k := range chaos.FaultKinds {
		kinds = append(kinds, string(k))
	}
	cmd := &cobra.Command{
		Use:   "chaos",
		Short: "Run random programs, break them on purpose, and check who is blamed",
		Long: `Run random programs on random worlds, each with a fault, and check that every rank that survives returns, that its error
names the rank at fault, and that no result is wrong. All of a round is drawn from its seed; a round that finds something
is printed with the command that runs it again.

With --virtual the ranks are goroutines and time is virtual, so that waiting costs nothing; with --real they are
processes of this host, on shared memory, TCP and both. Faults are signals, limits, and a fabric that breaks on purpose, and launchers
that fall silent, die or meet at a name that resolves late. --load N has N processes beside them that only compute, as on a host that is
busy: errors must name the rank at fault there, too.

Faults: ` + strings.Join(kinds, ", ") + `.

The exit status is 1 if anything was found, or not all rounds were run: an interrupt, SIGTERM, the time that --timeout gives, or an error
ends a campaign with the result of those that were done.`,
		Example: `  chorus chaos --virtual --rounds 100000 --seed 1
  chorus chaos --real --rounds 1000 --json -
  chorus chaos --real --rounds 1000 --load 20
  chorus chaos --real --faults kill,stop --fabrics shm --rounds 100`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.worker {
				return chaos.Work(cmd.InOrStdin(), cmd.OutOrStdout())
			}
			return f.run(cmd)
		},
	}
	fs := cmd.Flags()
	fs.BoolVar(&f.virtual, "virtual", false, "ranks are goroutines, in virtual time (the default)")
	fs.BoolVar(&f.real, "real", false, "ranks are processes")
	fs.IntVar(&f.campaign.Rounds, "rounds", 1000, "how many rounds to run")
	fs.Uint64Var(&f.seed, "seed", 0, "seed of the first round, the next ones following; 0: a fresh one")
	fs.BoolVar(&f.campaign.Repeat, "repeat", false,
		"give all rounds the same seed: real ones differ in what the scheduler does")
	fs.StringSliceVar(&f.faults, "faults", nil, "faults to draw from; empty: all")
	fs.StringSliceVar(&f.campaign.Fabrics, "fabrics", nil,
		"with --real, fabrics to draw from, of "+strings.Join(append(chaos.Fabrics, chaos.Named...), ", ")+
			"; empty: all but ucx")
	fs.IntVar(&f.campaign.Jobs, "jobs", runtime.NumCPU(), "rounds to run at a time")
	fs.IntVar(&f.campaign.Load, "load", 0,
		"with --real, run so many processes beside the rounds that keep a core busy each")
	fs.DurationVar(&f.timeout, "timeout", 0, "end after this time, with the result of the rounds that were done; 0: never")
	fs.StringVar(&f.json, "json", "", "write a JSON document to a file, or - for standard output instead of the table")
	fs.StringVar(&f.docs, "docs", "", "put the table into this page, between its markers")
	fs.BoolVar(&f.worker, "worker", false, "carry out what the standard input says")
	fs.MarkHidden("worker")
	cmd.MarkFlagsMutuallyExclusive("virtual", "real")
	return cmd
}

func (f *chaosFlags) run(cmd *cobra.Command) error {
	c := f.campaign
	c.Mode, c.Seed = chaos.Virtual, f.seed
	if f.real {
		c.Mode = chaos.Real
	}
	if c.Seed == 0 {
		c.Seed = rand.Uint64() >> 16 // short enough to be typed, and for numbers in JSON
	}
	for _, name := range f.faults {
		if !slices.Contains(chaos.FaultKinds, chaos.FaultKind(name)) {
			return usagef("--faults %s: there is no such fault", name)
		}
		if k := chaos.FaultKind(name); c.Mode == chaos.Virtual && k.RealOnly() {
			return usagef("--faults %s: that takes processes, with --real", name)
		}
		c.Faults = append(c.Faults, chaos.FaultKind(name))
	}
	for _, name := range c.Fabrics {
		if !slices.Contains(append(chaos.Named, chaos.Fabrics...), name) {
			return usagef("--fabrics %s: there are %s", name, strings.Join(append(chaos.Fabrics, chaos.Named...), ", "))
		}
		if _, err := fabric.Lookup(name); err != nil {
			return usagef("--fabrics %s: this command was built without it; go build -tags %s has it", name, name)
		}
	}
	if c.Rounds < 1 {
		return usagef("--rounds %d: want at least 1", c.Rounds)
	}
	if f.timeout < 0 {
		return usagef("--timeout %v: want at least 0", f.timeout)
	}
	if c.Jobs < 1 {
		return usagef("--jobs %d: want at least 1", c.Jobs)
	}
	if c.Load < 0 || c.Load > maxLoad {
		return usagef("--load %d: want 0 to %d", c.Load, maxLoad)
	}
	if c.Load > 0 && c.Mode == chaos.Virtual {
		return usagef("--load %d: the time of virtual rounds is their own; with --real", c.Load)
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	c.Command = []string{self, "chaos", "--worker"}
	ctx, stop := context.WithCancelCause(cmd.Context())
	defer stop(nil)
	signals := make(chan os.Signal, 2)
	sys.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		stop(fmt.Errorf("%v signal received", <-signals))
		os.Exit(128 + int((<-signals).(syscall.Signal))) // at once
	}()
	if f.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, f.timeout, fmt.Errorf("the %v of --timeout are over", f.timeout))
		defer cancel()
	}
	c.OnRound = progress(cmd.ErrOrStderr(), c.Rounds)
	res, err := c.Run(ctx)
	if err == nil && res.Rounds < c.Rounds {
		err = context.Cause(ctx)
	}
	return f.report(cmd, res, c.Rounds, err)
}

// report prints what came of a campaign of so many rounds, or of those that were done when it ended with err.
func (f *chaosFlags) report(cmd *cobra.Command, res *chaos.Result, rounds int, err error) error {
	if res == nil {
		return err
	}
	if f.json != "-" {
		if err := res.WriteText(cmd.OutOrStdout()); err != nil {
			return err
		}
	}
	if err := writeTo(f.json, cmd.OutOrStdout(), res.WriteJSON); err != nil {
		return err
	}
	if f.docs != "" && err == nil {
		if err := res.WriteDocs(f.docs); err != nil {
			return err
		}
	}
	switch {
	case err != nil:
		return fmt.Errorf("chaos: %d of %d rounds were run: %w", res.Rounds, rounds, err)
	case !res.Good():
		return errReported
	}
	return nil
}

// progress prints how far a campaign is, every few seconds, and each finding at once.
func progress(w io.Writer, rounds int) func(done int, o *chaos.Outcome) {
	last, found := time.Now(), 0
	return func(done int, o *chaos.Outcome) {
		if o.Bad() {
			found++
			fmt.Fprintf(w, "found something: %s, seed %d\n", o.Program.Fault.Kind, o.Program.Seed)
		}
		if time.Since(last) > 5*time.Second || done == rounds {
			last = time.Now()
			fmt.Fprintf(w, "%d of %d rounds, %d findings\n", done, rounds, found)
		}
	}
}
