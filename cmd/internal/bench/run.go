package bench

import (
	"cmp"
	"context"
	"fmt"
	"time"
	"unsafe"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/kern"
	"github.com/chorus-comms/chorus/tensor"
)

// Run measures an operation. It's collective: all ranks call it with the same config,
// and nothing else runs on c meanwhile. It returns at the first error.
func Run(ctx context.Context, c *comm.Comm, g Config) (Result, error) {
	r, err := NewRunner(ctx, c, g)
	if err != nil {
		return Result{}, err
	}
	defer r.Free()
	res := Result{Rows: []Row{}, Machine: ThisMachine()}
	if res.Placement.Before, err = r.placement(); err != nil {
		return res, err
	}
	if err := r.rows(&res); err != nil {
		return res, err
	}
	res.Placement.After, err = r.placement()
	return res, err
}

// Runner measures one row at a time, on buffers that stay, for a program that measures something else
// between the rows. Run is for all others. One goroutine uses it.
type Runner struct {
	ctx      context.Context
	c        *comm.Comm
	cfg      Config
	op       *operation
	patterns *patterns
	hints    map[string]string // of the communicator, without ours
	sizes    []int
	a, b     *tensor.Tensor
	blocks   bool // time blocks of rounds as for a device
}

// NewRunner allocates buffers for the config's sizes. All ranks call it with the same config. The runner keeps ctx
// for its rows.
func NewRunner(ctx context.Context, c *comm.Comm, g Config) (*Runner, error) {
	op, err := g.fill(c.Size())
	if err != nil {
		return nil, err
	}
	r := &Runner{ctx: ctx, c: c, cfg: g, op: op, hints: c.Options().Hints}
	r.patterns = newPatterns(values{dt: g.DType, n: c.Size()})
	if op.reduces {
		r.patterns.red = g.Reduction.Kind
	}
	unit := g.DType.Size()
	if op.blocks {
		unit *= c.Size()
	}
	r.sizes = g.sizes(unit)
	if op.empty {
		r.sizes = []int{0}
	}
	count := r.sizes[len(r.sizes)-1] / g.DType.Size()
	if r.a, err = r.allocate(count); err != nil {
		return nil, err
	}
	// In place needs one, but the limit is measured with two.
	if r.b, err = r.allocate(count); err != nil {
		r.a.Free()
		return nil, err
	}
	return r, nil
}

// Free gives the buffers back.
func (r *Runner) Free() {
	r.a.Free()
	r.b.Free()
}

// Row measures one size, of at most the config's Max, in one form. warmup and rounds, if not 0, replace the config's
// Warmup and Iters. It's collective, like Run.
func (r *Runner) Row(bytes int, inPlace bool, warmup, rounds int) (Row, error) {
	if bytes < 0 || bytes > r.sizes[len(r.sizes)-1] {
		return Row{}, fmt.Errorf("bench: a row of %d bytes; the runner is for up to %d", bytes, r.sizes[len(r.sizes)-1])
	}
	if inPlace && !r.op.inPlace || !inPlace && !r.op.outOfPlace {
		return Row{}, fmt.Errorf("bench: %s has no such form (in place %v)", r.op.name, inPlace)
	}
	defer func(warmup, iters int) { r.cfg.Warmup, r.cfg.Iters = warmup, iters }(r.cfg.Warmup, r.cfg.Iters)
	r.cfg.Warmup, r.cfg.Iters = cmp.Or(warmup, r.cfg.Warmup), cmp.Or(rounds, r.cfg.Iters)
	row, err := r.row(bytes, inPlace)
	if err != nil {
		return row, fmt.Errorf("bench: %s of %d bytes: %w", r.op.name, bytes, err)
	}
	return row, nil
}

func (r *Runner) rows(res *Result) error {
	for _, size := range r.sizes {
		for _, form := range []struct{ wanted, inPlace bool }{{r.cfg.OutOfPlace, false}, {r.cfg.InPlace, true}} {
			if !form.wanted {
				continue
			}
			row, err := r.Row(size, form.inPlace, 0, 0)
			if err != nil {
				return err
			}
			res.Rows = append(res.Rows, row)
			if r.cfg.OnRow != nil {
				r.cfg.OnRow(row)
			}
		}
	}
	return nil
}

func (r *Runner) allocate(count int) (*tensor.Tensor, error) {
	if r.cfg.Memory == Mapped || r.c.Stream() != nil {
		return r.c.Zeros(r.cfg.DType, count)
	}
	return tensor.Zeros(r.cfg.DType, count)
}

// row measures one size in one form.
func (r *Runner) row(size int, inPlace bool) (Row, error) {
	s := &setup{ctx: r.ctx, c: r.c, red: r.cfg.Reduction, root: r.cfg.Root, inPlace: inPlace,
		count: size / r.cfg.DType.Size()}
	if err := r.touchable(s); err != nil {
		return Row{}, err
	}
	rd := r.op.prepare(s)
	if err := r.onDevice(&rd, s); err != nil {
		return Row{}, err
	}
	rd.ways = max(rd.ways, 1)
	row := Row{Operation: r.op.name, Bytes: size, Count: s.count, DType: r.cfg.DType.Short(),
		Reduction: reductionName(r.op, r.cfg.Reduction), InPlace: inPlace, Ranks: r.c.Size(), Fabric: r.cfg.Fabric,
		Memory: string(r.cfg.Memory), Device: r.a.Device(), Refill: r.cfg.Refill}

	wrong, err := r.checked(rd, &row)
	if err != nil {
		return row, err
	}
	st, rounds, err := r.measure(rd)
	if err != nil {
		return row, err
	}
	again, err := r.checked(rd, &row)
	if err != nil {
		return row, err
	}
	pass, err := r.limit(rd.pass)
	if err != nil {
		return row, err
	}
	if row.Errors, err = r.total(wrong + again); err != nil {
		return row, err
	}
	row.fill(r.op, st, rounds*rd.ways, pass)
	return row, nil
}

// checked runs the rounds that are to be checked, or one that says which algorithm runs, and counts this rank's wrong
// elements.
func (r *Runner) checked(rd round, row *Row) (wrong int, err error) {
	hook := r.c.RegisterCompletionHook(func(i comm.OpInfo, _ error) { row.Algorithm = i.Algorithm })
	defer hook.Remove()
	if r.cfg.Checks == Unchecked {
		return 0, r.hinted(rd.once)
	}
	for range r.cfg.Checks {
		n, err := r.check(rd)
		if err != nil {
			return 0, err
		}
		wrong += n
		row.Checked++
	}
	return wrong, nil
}

// check runs the operation once on known values and counts this rank's wrong elements.
func (r *Runner) check(rd round) (int, error) {
	if rd.out != nil {
		if err := poison(rd.out); err != nil {
			return 0, err
		}
	}
	if err := r.patterns.fill(rd.in, rd.inSpans); err != nil {
		return 0, err
	}
	if err := r.hinted(rd.once); err != nil {
		return 0, err
	}
	return r.patterns.errors(rd.out, rd.outSpans)
}

// poison sets every byte of an output to something that no check expects.
func poison(t *tensor.Tensor) error {
	mem, err := t.Bytes()
	for i := range mem {
		mem[i] = 0xa5
	}
	return err
}

// hinted calls f with the algorithm that the config asks for. The hint names the operation, so that
// what runs beside it chooses for itself.
func (r *Runner) hinted(f func() error) error {
	hint := r.cfg.algorithmHint()
	if hint == "" {
		return f()
	}
	with := map[string]string{"algorithm": hint}
	for k, v := range r.hints {
		if k != "algorithm" {
			with[k] = v
		}
	}
	if err := r.c.SetHints(with); err != nil {
		return err
	}
	err := f()
	if back := r.c.SetHints(r.hints); err == nil {
		err = back
	}
	return err
}

// measure times a round and returns the slowest rank's statistics, per way.
func (r *Runner) measure(rd round) (st stats, rounds int, err error) {
	// Zeros stay what they are under any reduction, however many rounds run.
	if rd.in != nil {
		rd.in.Zero()
	}
	if rd.out != nil {
		rd.out.Zero()
	}
	if r.cfg.Refill {
		return r.refilled(rd)
	}
	once, err := r.agreed(rd, schedule{1, 2})
	if err != nil {
		return st, 0, err
	}
	warmup := r.cfg.Warmup
	if warmup == 0 {
		warmup = int(min(mostWarmup, max(1, r.cfg.Time.Seconds()/10/once)))
	}
	each, err := r.agreed(rd, schedule{1, warmup})
	if err != nil {
		return st, 0, err
	}
	s := scheduleFor(r.cfg.Time, each, r.cfg.Iters)
	if rd.synchronize != nil || r.blocks {
		s = s.grouped(deviceRounds)
	}
	var samples []float64
	err = r.hinted(func() (err error) { samples, err = s.timed(rd); return err })
	if err != nil {
		return st, 0, err
	}
	st, err = r.slowest(samples, rd.ways)
	return st, s.rounds(), err
}

// agreed returns the slowest rank's seconds of a round.
func (r *Runner) agreed(rd round, s schedule) (float64, error) {
	var samples []float64
	err := r.hinted(func() (err error) { samples, err = s.timed(rd); return err })
	if err != nil {
		return 0, err
	}
	st, err := r.slowest(samples, 1)
	return max(st.median, 1e-9), err
}

// refilled measures rounds whose inputs have just been written.
func (r *Runner) refilled(rd round) (st stats, rounds int, err error) {
	var zero [16]byte // an element of any dtype
	round := func() (float64, error) {
		if rd.in != nil {
			kern.Fill(rd.in.DType(), rd.in.Pointer(), rd.in.NumEl(), unsafe.Pointer(&zero))
		}
		if err := r.barrier(); err != nil {
			return 0, err
		}
		start := time.Now()
		err := rd.once()
		return time.Since(start).Seconds(), err
	}
	run := func(n int) (samples []float64, err error) {
		samples = make([]float64, n)
		err = r.hinted(func() (err error) {
			for i := range samples {
				if samples[i], err = round(); err != nil {
					return err
				}
			}
			return nil
		})
		return samples, err
	}
	warmup := max(r.cfg.Warmup, 2)
	start := time.Now()
	if _, err = run(warmup); err != nil {
		return st, 0, err
	}
	took, err := r.slowest([]float64{time.Since(start).Seconds() / float64(warmup)}, 1)
	if err != nil {
		return st, 0, err
	}
	rounds = r.cfg.Iters
	if rounds == 0 {
		rounds = int(min(mostBlocks, max(fewestBlocks, r.cfg.Time.Seconds()/max(took.median, 1e-9))))
	}
	samples, err := run(rounds)
	if err != nil {
		return st, 0, err
	}
	st, err = r.slowest(samples, rd.ways)
	return st, rounds, err
}

// limit returns the seconds of a pass over this rank's buffers while the other ranks do
// the same; 0 if no rank has anything to do.
func (r *Runner) limit(pass func()) (float64, error) {
	if err := r.barrier(); err != nil {
		return 0, err
	}
	var samples []float64
	if pass != nil {
		f := round{call: func() error { pass(); return nil }}
		first, _ := schedule{1, 2}.timed(f)
		samples, _ = scheduleFor(r.cfg.Time/4, first[0], 0).timed(f)
	}
	st, err := r.slowest(samples, 1)
	return st.median, err
}

// slowest returns the statistics of the slowest rank, divided by ways.
func (r *Runner) slowest(samples []float64, ways int) (stats, error) {
	st := summarize(samples)
	v := []float64{st.median / float64(ways), st.p99 / float64(ways)}
	err := r.c.AllReduce(r.ctx, tensor.Of(v), comm.Max)
	return stats{v[0], v[1]}, err
}

// total adds up a number of all ranks.
func (r *Runner) total(n int) (int, error) {
	v := []int64{int64(n)}
	err := r.c.AllReduce(r.ctx, tensor.Of(v), comm.Sum)
	return int(v[0]), err
}
