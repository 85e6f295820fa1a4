package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"sync"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/chorus-comms/chorus/cmd/internal/bench"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/plan"
	"github.com/chorus-comms/chorus/plan/calibration"
)

// planFlags are the flags of chorus plan.
type planFlags struct {
	request      plan.Request
	dtype        string
	hosts        int
	memory       string
	algorithm    string
	stage, chunk string

	allRanks, list, prove, json bool
}

func newPlanCmd() *cobra.Command {
	var f planFlags
	cmd := &cobra.Command{
		Use:   "plan [flags] [collective]",
		Short: "Print and prove the steps of a collective",
		Long: `Print the plan of one rank, the steps by which an algorithm carries out a collective, and prove the plans of all ranks
together: that they end without buffering, stay inside the buffers, and compute what the collective defines.

With --list, print the algorithms and what they need. With --prove, prove all algorithms of the collective, or of all, or the
one that --algorithm names, for every world up to --world, all roots, several sizes and several placements of the ranks on hosts.

Collectives: ` + strings.Join(collectiveNames(), ", ") + `. The count is that of the whole vector for all_reduce, reduce and
broadcast, and of one rank's block for the others.`,
		Example: `  chorus plan all_reduce --world 4 --rank 0 --count 1000 --algorithm ring --dtype f32
  chorus plan broadcast --world 8 --hosts 2 --all-ranks
  chorus plan all_gather --world 4 --all-ranks --json
  chorus plan --list
  chorus plan all_reduce --prove --world 16`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: cobra.FixedCompletions(collectiveNames(), cobra.ShellCompDirectiveNoFileComp),
		RunE: func(cmd *cobra.Command, args []string) error {
			collectives, err := parseCollectives(args)
			if err != nil {
				return usage(err)
			}
			switch {
			case f.list:
				return listAlgorithms(cmd.OutOrStdout(), collectives)
			case f.prove:
				return f.proveAll(cmd.OutOrStdout(), collectives)
			case len(collectives) != 1:
				return usagef("plan: which collective? There are %s", strings.Join(collectiveNames(), ", "))
			}
			f.request.Collective = collectives[0]
			return f.show(cmd.OutOrStdout())
		},
	}
	fs := cmd.Flags()
	q := &f.request
	fs.IntVarP(&q.World, "world", "n", 4, "number of ranks")
	fs.IntVar(&q.Rank, "rank", 0, "rank whose plan is printed")
	fs.IntVar(&q.Root, "root", 0, "root of broadcast, reduce, gather and scatter")
	fs.IntVar(&q.Count, "count", 1000, "elements")
	fs.StringVar(&f.dtype, "dtype", "f32", "type of the elements")
	fs.BoolVar(&q.InPlace, "in-place", false, "input and output are the same memory")
	fs.IntVar(&f.hosts, "hosts", 1, "hosts that the ranks are spread over, in blocks")
	fs.StringVar(&f.memory, "memory", string(bench.Mapped),
		"mapped (peers on a host can map it) or ordinary; for the choice of the algorithm")
	fs.StringVar(&f.algorithm, "algorithm", "", "algorithm; empty: the best by the cost model")
	fs.StringVar(&f.stage, "stage", "4MiB", "shared scratch of each rank; 0: none")
	fs.StringVar(&f.chunk, "chunk", "0", "size of a pipeline step; 0: the algorithm's choice")
	fs.BoolVar(&f.allRanks, "all-ranks", false, "print the plans of all ranks")
	fs.BoolVar(&f.list, "list", false, "list the algorithms and what they need")
	fs.BoolVar(&f.prove, "prove", false, "prove many requests instead of one")
	fs.BoolVar(&f.json, "json", false, "print the plan as JSON, once it's proved: docs/algorithms.md says what is in it")
	cmd.MarkFlagsMutuallyExclusive("json", "list", "prove")
	return cmd
}

func collectiveNames() []string {
	var names []string
	for _, c := range plan.Collectives() {
		names = append(names, c.String())
	}
	return names
}

// parseCollectives returns the one that was named, or all.
func parseCollectives(args []string) ([]plan.Collective, error) {
	if len(args) > 0 {
		c, err := plan.ParseCollective(operationName(args[0], plan.Collectives()))
		return []plan.Collective{c}, err
	}
	return plan.Collectives(), nil
}

// show prints one request's plan and proves it.
func (f *planFlags) show(w io.Writer) error {
	if err := f.complete(); err != nil {
		return err
	}
	q := f.request
	m, err := machineFor(q.World)
	if err != nil {
		return err
	}
	a, err := plan.Select(q, m, f.algorithm, func(a plan.Algorithm) bool {
		return f.algorithm != "" || f.memory != string(bench.Ordinary) || !a.Mapped
	})
	if err != nil {
		return usage(err)
	}
	first, last := q.Rank, q.Rank
	if f.allRanks {
		first, last = 0, q.World-1
	}
	var plans []*plan.Plan
	for r := first; r <= last; r++ {
		q.Rank = r
		p, err := a.Plan(q)
		if err != nil {
			return err
		}
		plans = append(plans, p)
	}
	wrong := plan.Prove(a, f.request)
	if wrong != nil {
		wrong = fmt.Errorf("the plans are wrong: %w", wrong)
	}
	seconds := plan.Cost(a, f.request, m)
	if f.json {
		if wrong != nil {
			return wrong
		}
		d := newPlanDocument(f.request, plans, seconds)
		return d.write(w)
	}
	for _, p := range plans {
		if _, err := io.WriteString(w, plan.Format(p)); err != nil {
			return err
		}
	}
	if wrong != nil {
		return wrong
	}
	_, err = fmt.Fprintf(w, "# proved for all %d ranks; estimated time %.3g us\n", q.World, seconds*1e6)
	return err
}

// machineFor returns the costs by which a world of that size would choose: calibrated ones if that's switched on. Like
// a world, it does with the default where they can't be had, and warns.
func machineFor(world int) (plan.Machine, error) {
	path, on, err := calibrationFile()
	if err != nil || !on || world == 1 {
		return plan.DefaultMachine(), err
	}
	e, err := calibration.Lookup(path, world)
	if err != nil {
		fmt.Fprintf(os.Stderr, "chorus: default costs: %v\n", err)
		return plan.DefaultMachine(), nil
	}
	return e.Machine, nil
}

// complete fills in what the flags say in words.
func (f *planFlags) complete() error {
	q := &f.request
	dt, err := dtype.Parse(f.dtype)
	if err != nil {
		return usagef("--dtype: %w", err)
	}
	q.ElemSize = dt.Size()
	if q.StageBytes, err = bench.ParseSize(f.stage); err != nil {
		return usagef("--stage: %w", err)
	}
	if q.ChunkBytes, err = bench.ParseSize(f.chunk); err != nil {
		return usagef("--chunk: %w", err)
	}
	if f.memory != string(bench.Mapped) && f.memory != string(bench.Ordinary) {
		return usagef("--memory %s: want %s or %s", f.memory, bench.Mapped, bench.Ordinary)
	}
	if err := f.bounded(); err != nil {
		return err
	}
	if f.hosts < 1 || q.World < f.hosts {
		return usagef("%d ranks on %d hosts", q.World, f.hosts)
	}
	q.Topo = inBlocks(q.World, f.hosts)
	return q.Validate()
}

// mostPlanned bounds the ranks whose plans are made and proved, which are as many, of as many steps.
const mostPlanned = 1024

func (f *planFlags) bounded() error {
	if f.request.World > mostPlanned {
		return usagef("--world %d: the plans of all ranks are made and proved, of %d at most", f.request.World, mostPlanned)
	}
	return nil
}

// inBlocks puts neighbouring ranks on the same host.
func inBlocks(world, hosts int) *plan.Topology {
	t := &plan.Topology{Host: make([]int, world)}
	for r := range t.Host {
		t.Host[r] = r * hosts / world
	}
	return t
}

func listAlgorithms(w io.Writer, collectives []plan.Collective) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "collective\talgorithm\tneeds\t")
	for _, c := range collectives {
		for _, a := range plan.Algorithms(c) {
			fmt.Fprintf(tw, "%s\t%s\t%s\t%s\n", c, a.Name, needs(a), a.Doc)
		}
	}
	return tw.Flush()
}

// needs says what an algorithm can't do without.
func needs(a plan.Algorithm) string {
	var all []string
	for _, need := range []struct {
		is   bool
		what string
	}{{a.Mapped, "mapped memory"}, {a.OneHost, "one host"}, {a.OneSided, "shared scratch"}} {
		if need.is {
			all = append(all, need.what)
		}
	}
	if all == nil {
		return "messages"
	}
	return strings.Join(all, ", ")
}

// proveAll proves many requests of each algorithm, on all cores.
func (f *planFlags) proveAll(w io.Writer, collectives []plan.Collective) error {
	var algorithms []plan.Algorithm
	for _, c := range collectives {
		for _, a := range plan.Algorithms(c) {
			if f.algorithm == "" || f.algorithm == a.Name {
				algorithms = append(algorithms, a)
			}
		}
	}
	if len(algorithms) == 0 {
		return usagef("plan: no algorithm is called %q; see --list", f.algorithm)
	}
	if f.request.World < 1 {
		return usagef("plan: worlds up to %d ranks", f.request.World)
	}
	if err := f.bounded(); err != nil {
		return err
	}
	var mu sync.Mutex
	var errs []error
	var all sync.WaitGroup
	room := make(chan struct{}, runtime.GOMAXPROCS(0))
	for _, a := range algorithms {
		all.Go(func() {
			room <- struct{}{}
			defer func() { <-room }()
			n, err := proveOne(a, f.request.World)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				errs = append(errs, err)
				return
			}
			fmt.Fprintf(w, "%s %s: proved %d requests\n", a.Collective, a.Name, n)
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// proveOne proves an algorithm for every world up to the given one.
func proveOne(a plan.Algorithm, most int) (proved int, err error) {
	for world := 1; world <= most; world++ {
		roots := 1
		if a.Collective.Rooted() {
			roots = world
		}
		for _, topo := range []*plan.Topology{nil, inBlocks(world, 1), inBlocks(world, min(2, world))} {
			for root := range roots {
				for _, count := range []int{0, 1, world - 1, world, world + 1, 1021} {
					for _, inPlace := range []bool{false, true} {
						// Elements of a cache line, little scratch and short steps make the most of a small count.
						q := plan.Request{Collective: a.Collective, World: world, Root: root, Count: count, ElemSize: 64,
							InPlace: inPlace,
							Topo:    topo, StageBytes: 64 * 64 * world, ChunkBytes: 64 * 64 * world}
						err := a.Check(q)
						if errors.Is(err, plan.ErrUnsupported) {
							continue
						}
						if err == nil {
							err = plan.Prove(a, q)
						}
						if err != nil {
							return proved, fmt.Errorf("%s %s, world %d, root %d, count %d: %w", a.Collective, a.Name, world, root, count,
								err)
						}
						proved++
					}
				}
			}
		}
	}
	return proved, nil
}
