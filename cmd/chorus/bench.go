package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/chorus-comms/chorus/cmd/internal/bench"
	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/dtype"
)

// benchFlags are the flags of chorus bench, as they were typed.
type benchFlags struct {
	ranks       rankFlags
	config      bench.Config
	min, max    string
	every       string // bytes from one size to the next
	check       int
	dtype, op   string
	memory      string
	connections int
	calibration bool
	turns       int

	json, csv, plot string
}

func newBenchCmd() *cobra.Command {
	var f benchFlags
	cmd := &cobra.Command{
		Use:   "bench [flags] [operation]",
		Short: "Measure a collective, ping-pong or barrier, and check its results",
		Long: `Measure an operation over a range of sizes and check every element of its results.

Operations: ` + strings.Join(bench.Operations(), ", ") + `. The default is all_reduce.

The command starts ranks of its own; under chorus run, torchrun or mpirun it uses theirs, and rank 0 prints. Flags, sizes and
bandwidths are those of nccl-tests: -b, -e, -f, -i, -d, -o, -r, -w and -c, also as --minbytes, --maxbytes, --stepfactor,
--stepbytes, --datatype, --op, --root, --warmup_iters and --check, and --iters. But -n is the number of ranks, as -np is.
A size counts all blocks of operations that move one block per rank. send_recv is
a ping-pong whose time is one way. The column limit is the share of the bandwidth of the same traffic without synchronization.
The rows state the slowest rank's median and 99th percentile. Rounds run back to back; those shorter than 20 us are timed
in blocks, whose mean is one sample.

With --calibrate, measure instead the costs by which algorithms are chosen (latencies, bandwidths, copies and sums), for this
number of ranks, and write them to a file of each host, which programs use if CHORUS_CALIBRATION says so.

With --turns, measure a device and the host's memory in turns, each for --time, and print the ratio of their bandwidths:
of the median turn, and the quartiles.

The exit status is 1 if any element was wrong.`,
		Example: `  chorus bench
  chorus bench all_reduce -n 4 -b 8 -e 128M -f 2 --iters 100
  chorus bench all_reduce --ranks 2 --min 8 --max 256MiB --dtype f32 --fabric shm --memory mapped --json -
  chorus bench all_gather --fabric tcp --algorithm ring --plot all_gather.svg
  chorus run -n 2 chorus bench send_recv
  chorus bench --calibrate --ranks 2`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: cobra.FixedCompletions(bench.Operations(), cobra.ShellCompDirectiveNoFileComp),
		RunE:              func(cmd *cobra.Command, args []string) error { return f.run(cmd, args) },
	}
	f.add(cmd)
	return cmd
}

// add declares the flags.
func (f *benchFlags) add(cmd *cobra.Command) {
	f.ranks.add(cmd, "n", 2, "auto")
	fs := cmd.Flags()
	g := &f.config
	fs.StringVarP(&f.min, "min", "b", "8", "smallest size in bytes, such as 8 or 4KiB")
	fs.StringVarP(&f.max, "max", "e", "64MiB", "largest size")
	fs.IntVarP(&g.Step, "step", "f", 4, "factor between sizes")
	fs.StringVarP(&f.every, "step-bytes", "i", "0", "bytes from one size to the next, instead of a factor")
	fs.StringVarP(&f.dtype, "dtype", "d", "f32", "type of the elements")
	fs.StringVarP(&f.op, "op", "o", "sum", "reduction: sum, product, min, max, band, bor, bxor, avg or premul_sum")
	fs.IntVarP(&g.Root, "root", "r", 0, "root of broadcast, reduce, gather and scatter")
	fs.StringVar(&f.memory, "memory", string(bench.Mapped), "mapped (peers on this host can map it) or ordinary")
	fs.BoolVar(&g.InPlace, "in-place", false, "measure the form whose output is its input; the default where it is usual")
	fs.BoolVar(&g.OutOfPlace, "out-of-place", false, "measure the form with two buffers")
	fs.BoolVar(&g.Refill, "refill", false, "write the inputs anew before each round, outside the clock")
	fs.StringVar(&g.Algorithm, "algorithm", "", "algorithm, see chorus plan --list; empty: the best by the cost model")
	fs.DurationVar(&g.Time, "time", 0, "time to measure each row for (default 200ms)")
	fs.IntVarP(&g.Warmup, "warmup", "w", 0, "rounds before the clock starts; 0: a tenth of --time")
	fs.IntVar(&g.Iters, "iters", 0, "rounds to measure; 0: what fits in --time")
	fs.IntVarP(&f.check, "check", "c", 1,
		"rounds whose results are checked, before the measured ones and again after them; 0: none")
	fs.IntVar(&f.connections, "connections", 0, "TCP connections of each pair; 0: as CHORUS_TCP_CONNECTIONS says")
	fs.BoolVar(&f.calibration, "calibrate", false,
		"measure what the choice of algorithms is computed from, in seconds, and keep it: see CHORUS_CALIBRATION")
	fs.IntVar(&f.turns, "turns", 0, "measure --device beside the host, in so many turns of each")
	fs.StringVar(&f.json, "json", "", "write a JSON document to a file, or - for standard output instead of the table")
	fs.StringVar(&f.csv, "csv", "", "write the rows as CSV to a file, or - for standard output instead of the table")
	fs.StringVar(&f.plot, "plot", "", "draw the bandwidths as SVG into a file")
	cmd.MarkFlagsMutuallyExclusive("step", "step-bytes")
}

// run is the command.
func (f *benchFlags) run(cmd *cobra.Command, args []string) error {
	if err := f.parse(args); err != nil {
		return err
	}
	if f.calibration {
		if err := f.checkCalibrate(cmd.Flags().Changed, args); err != nil {
			return err
		}
	}
	rank, err := f.ranks.isRank(cmd)
	if err != nil {
		return err
	}
	if !rank { // one complaint rather than one from each rank
		if err := f.config.Check(f.ranks.ranks); err != nil {
			return usage(err)
		}
	}
	hints := map[string]string{}
	if f.connections > 0 {
		hints["fabric.connections"] = strconv.Itoa(f.connections)
	}
	if f.calibration {
		hints["calibration"] = "off" // it's what is about to be measured
	}
	opts := []comm.NewOption{comm.WithHints(hints)}
	return f.ranks.run(cmd, cmd.OutOrStdout(), opts, func(ctx context.Context, c *comm.Comm) error {
		if f.calibration {
			return f.calibrate(ctx, c, opts, cmd.OutOrStdout())
		}
		if f.turns > 0 {
			return f.beside(ctx, c, opts, cmd.OutOrStdout())
		}
		return f.measure(ctx, c, cmd.OutOrStdout())
	})
}

// parse turns what was typed into a config.
func (f *benchFlags) parse(args []string) (err error) {
	g := &f.config
	if len(args) > 0 {
		g.Operation = operationName(args[0], bench.Operations())
	}
	if g.Min, err = bench.ParseSize(f.min); err != nil {
		return usagef("--min: %w", err)
	}
	if g.Max, err = bench.ParseSize(f.max); err != nil {
		return usagef("--max: %w", err)
	}
	if g.StepBytes, err = bench.ParseSize(f.every); err != nil {
		return usagef("--step-bytes: %w", err)
	}
	if f.check < 0 {
		return usagef("--check %d: want 0 or more", f.check)
	}
	if g.Checks = f.check; f.check == 0 {
		g.Checks = bench.Unchecked
	}
	if g.DType, err = dtype.Parse(f.dtype); err != nil {
		return usagef("--dtype: %w", err)
	}
	if g.Reduction, err = bench.ParseReduction(f.op); err != nil {
		return usagef("--op: %w", err)
	}
	g.Memory, g.Fabric = bench.MemoryKind(f.memory), f.ranks.fabric
	if f.turns != 0 && (f.turns < 0 || f.calibration || f.ranks.device == device.Host || f.json+f.csv+f.plot != "") {
		return usagef("--turns %d: want a positive number, with a --device, and for a table only", f.turns)
	}
	if f.json == "-" && f.csv == "-" {
		return usagef("--json and --csv can't both have standard output")
	}
	return nil
}

// measure runs on each rank; rank 0 reports.
func (f *benchFlags) measure(ctx context.Context, c *comm.Comm, stdout io.Writer) error {
	if c.Rank() != 0 {
		_, err := bench.Run(ctx, c, f.config)
		return err
	}
	g := f.config
	var table *bench.TableWriter
	if f.json != "-" && f.csv != "-" {
		table = bench.NewTableWriter(stdout)
		g.OnRow = table.Row
	}
	res, err := bench.Run(ctx, c, g)
	if err != nil {
		return err
	}
	res.Version, res.Command = readVersion().String(), strings.Join(f.command(), " ")
	if table != nil {
		table.End(&res)
	}
	for _, out := range []struct {
		path  string
		write func(io.Writer) error
	}{{f.json, res.WriteJSON}, {f.csv, res.WriteCSV}, {f.plot, res.WritePlot}} {
		if err := writeTo(out.path, stdout, out.write); err != nil {
			return err
		}
	}
	for _, row := range res.Rows {
		if row.Errors > 0 {
			return fmt.Errorf("bench: %s of %d bytes: %d wrong elements", row.Operation, row.Bytes, row.Errors)
		}
	}
	return nil
}

// beside measures the communicator of a device and one of the host in turns.
func (f *benchFlags) beside(ctx context.Context, c *comm.Comm, opts []comm.NewOption, stdout io.Writer) error {
	if c.Stream() == nil {
		return usagef("--turns: %s is the host's memory", f.ranks.device)
	}
	host, err := comm.New(ctx, append(slices.Clone(opts), comm.WithFabric(f.ranks.fabric),
		comm.WithTimeout(f.ranks.timeout), comm.WithName("host"))...)
	if err != nil {
		return err
	}
	pairs, err := bench.Beside(ctx, host, c, f.config, f.turns)
	if err := errors.Join(err, finalize(ctx, host)); err != nil || c.Rank() != 0 {
		return err
	}
	if err := bench.WritePairs(stdout, pairs); err != nil {
		return err
	}
	for _, p := range pairs {
		if wrong := p.One.Errors + p.Other.Errors; wrong > 0 {
			return fmt.Errorf("bench: %s of %d bytes: %d wrong elements", p.One.Operation, p.One.Bytes, wrong)
		}
	}
	return nil
}

// command is what the user typed.
func (f *benchFlags) command() []string {
	var typed []string
	for _, a := range append([]string{"chorus"}, os.Args[1:]...) {
		if a != "--rank-main" {
			typed = append(typed, a)
		}
	}
	return typed
}

// writeTo writes to a file, to standard output if the path is "-", and not at all if it's empty.
func writeTo(path string, stdout io.Writer, write func(io.Writer) error) error {
	switch path {
	case "":
		return nil
	case "-":
		return write(stdout)
	}
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(write(file), file.Close())
}
