package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/chorus-comms/chorus/bootstrap"
	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/device"
	_ "github.com/chorus-comms/chorus/device/accinte" // for --device
	_ "github.com/chorus-comms/chorus/device/accl"    // for --device
	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/launch"
	"github.com/chorus-comms/chorus/store"
)

// rankFlags say where the ranks of a command come from. Under a launcher the command is one of its ranks; else it
// starts ranks of its own: this very command again, as processes, or goroutines for the fabric mem.
type rankFlags struct {
	ranks    int
	fabric   string
	device   string
	per      int // ranks of a process, which are goroutines
	timeout  time.Duration
	rankMain bool
}

// add adds the flags to a command, with the short name for the number of ranks that it has besides -np; "" for none.
func (f *rankFlags) add(cmd *cobra.Command, short string, ranks int, fabric string) {
	fs := cmd.Flags()
	fs.IntVarP(&f.ranks, "ranks", short, ranks, "ranks to start, also -np; under a launcher its own are used")
	fs.StringVar(&f.fabric, "fabric", fabric, "how bytes move: auto, shm, tcp, or mem (ranks are goroutines)")
	fs.StringVar(&f.device, "device", device.Host,
		"where the tensors are: cpu, accinte (emulated) or accl (engines), perhaps with an index")
	fs.IntVar(&f.per, "ranks-per-process", 1,
		"ranks that each process is, each with a device of its own where there are enough")
	fs.DurationVar(&f.timeout, "timeout", time.Minute, "deadline of each operation, and of the ranks' finding each other")
	fs.BoolVar(&f.rankMain, "rank-main", false, "be a rank and start none, whatever the environment says")
	fs.MarkHidden("rank-main")
}

// run calls main on each rank: on this process's, or on those that it starts. A rank that is a process writes to
// the command's own output; of several, only rank 0 should.
func (f *rankFlags) run(cmd *cobra.Command, stdout io.Writer, opts []comm.NewOption,
	main func(context.Context, *comm.Comm) error) error {
	opts = append([]comm.NewOption{comm.WithFabric(f.fabric), comm.WithTimeout(f.timeout)}, opts...)
	rank, err := f.isRank(cmd)
	switch {
	case err != nil:
		return err
	case rank && f.per == 1:
		return asRank(cmd.Context(), append(opts, comm.WithDevice(f.device)), main)
	case rank:
		return f.asSeveral(cmd.Context(), opts, main)
	case f.fabric == "mem":
		st := store.NewHash(f.timeout)
		defer st.Close()
		return f.asGoroutines(cmd.Context(), 0, f.ranks, f.ranks, append(opts, comm.WithStore(st)), main)
	}
	return startRanks(cmd.Context(), f.ranks/f.per, stdout)
}

// isRank reports whether this process is one of a launcher's ranks. Flags that can't be are found before any is
// started.
func (f *rankFlags) isRank(cmd *cobra.Command) (bool, error) {
	if f.ranks < 1 {
		return false, usagef("--ranks %d: want at least 1", f.ranks)
	}
	if f.ranks > launch.MaxRanksPerNode {
		return false, usagef("--ranks %d: want at most %d", f.ranks, launch.MaxRanksPerNode)
	}
	if f.per < 1 || f.ranks%f.per != 0 {
		return false, usagef("--ranks-per-process %d: want a divisor of the %d ranks", f.per, f.ranks)
	}
	if f.timeout <= 0 {
		return false, usagef("--timeout %v: want more than 0", f.timeout)
	}
	if _, err := fabric.Lookup(f.fabric); err != nil {
		return false, usagef("--fabric: %w", err)
	}
	if kind, _, err := device.Parse(f.device); err != nil || !slices.Contains(device.Types(), kind) {
		return false, usagef("--device %s: there are %s", f.device, strings.Join(device.Types(), ", "))
	}
	info, err := bootstrap.Detect(os.Getenv)
	if f.rankMain {
		return true, err
	}
	if errors.Is(err, bootstrap.ErrNoLauncher) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if !cmd.Flags().Changed("ranks") || f.ranks == info.Size*f.per {
		return true, nil
	}
	if info.Size == 1 { // a shell in an allocation, for example
		return false, nil
	}
	return false, usagef("--ranks %d, but %s has started %d", f.ranks, info.Launcher, info.Size*f.per)
}

func asRank(ctx context.Context, opts []comm.NewOption, main func(context.Context, *comm.Comm) error) error {
	c, err := comm.New(ctx, opts...)
	if err != nil {
		return err
	}
	if s := c.Stream(); s != nil { // ranks that are goroutines must not share one
		own, err := s.Device().NewStream(device.Normal)
		if err != nil {
			return errors.Join(err, c.Finalize(ctx))
		}
		on := device.WithStream(ctx, own)
		return errors.Join(main(on, c), own.Synchronize(ctx), finalize(ctx, c), own.Close())
	}
	return errors.Join(main(ctx, c), finalize(ctx, c))
}

// asSeveral makes this process several of the ranks of a job whose processes a launcher has started.
func (f *rankFlags) asSeveral(ctx context.Context, opts []comm.NewOption,
	main func(context.Context, *comm.Comm) error) error {
	info, err := bootstrap.Detect(os.Getenv)
	if err != nil {
		return err
	}
	st, err := bootstrap.Open(ctx, info, bootstrap.Options{Timeout: f.timeout})
	if err != nil {
		return err
	}
	err = f.asGoroutines(ctx, info.Rank*f.per, f.per, info.Size*f.per, append(opts, comm.WithStore(st)), main)
	return errors.Join(err, st.Close())
}

// asGoroutines runs n of a job's ranks, from the first on, in this process. They take the devices in turn.
func (f *rankFlags) asGoroutines(ctx context.Context, first, n, size int, opts []comm.NewOption,
	main func(context.Context, *comm.Comm) error) error {
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		name, err := f.deviceOf(i)
		if err != nil {
			return err
		}
		all.Go(func() {
			own := append(opts[:len(opts):len(opts)], comm.WithRank(first+i, size), comm.WithDevice(name))
			if err := asRank(ctx, own, main); err != nil {
				errs[i] = fmt.Errorf("rank %d: %w", first+i, err)
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// deviceOf is the device of a process's i-th rank: the one that was named, or the next of the type.
func (f *rankFlags) deviceOf(i int) (string, error) {
	kind, index, err := device.Parse(f.device)
	if err != nil || kind == device.Host || index >= 0 {
		return f.device, err
	}
	rt, err := device.Open(kind)
	if err != nil || rt.Count() == 0 {
		return f.device, err
	}
	return fmt.Sprintf("%s:%d", kind, i%rt.Count()), nil
}

// startRanks runs this command again as n ranks on this host. Rank 0's output becomes ours.
func startRanks(ctx context.Context, n int, stdout io.Writer) error {
	job, err := ownRanks(n, stdout)
	if err != nil {
		return err
	}
	return job.Run(ctx)
}

// ownRanks is the job of this command's ranks on this host.
func ownRanks(n int, stdout io.Writer) (*launch.Job, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	j := &launch.Job{
		Command:      append(append([]string{self}, os.Args[1:]...), "--rank-main"),
		RanksPerNode: n,
		Console:      []int{0},
		Env:          ownLauncher(os.Environ()),
		Adopt:        true,
		Guard:        []string{self, "guard"},
	}
	j.Attach(&bareWriter{w: stdout}, os.Stderr)
	return j, nil
}

// ownLauncher takes away what would make the ranks believe another launcher than ours.
func ownLauncher(env []string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return name == "TORCHCOMM_RANK" || name == "TORCHCOMM_SIZE" || name == "TORCHCOMM_BOOTSTRAP_RANKSIZE_QUERY_METHOD"
	})
}

// finalize ends a communicator, unless main has put another into its place, and has ended that.
func finalize(ctx context.Context, c *comm.Comm) error {
	if err := c.Finalize(ctx); !errors.Is(err, comm.ErrFinalized) {
		return err
	}
	return nil
}

// bareWriter takes away what package launch puts before the ranks' lines.
type bareWriter struct{ w io.Writer }

func (b *bareWriter) Write(p []byte) (int, error) {
	var bare []byte
	for line := range bytes.Lines(p) {
		if tag, rest, ok := bytes.Cut(line, []byte("]: ")); ok && len(tag) > 1 && tag[0] == '[' {
			if _, err := strconv.Atoi(string(tag[1:])); err == nil {
				line = rest
			}
		}
		bare = append(bare, line...)
	}
	if _, err := b.w.Write(bare); err != nil {
		return 0, err
	}
	return len(p), nil
}
