package demo

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"time"

	"github.com/chorus-comms/chorus/cmd/internal/bench"
	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/tensor"
)

const (
	// Tolerance is how far a parameter may be from that of the one-rank run. They differ
	// because float32 sums depend on their order: one rank adds up a batch image by image,
	// several add up the sums of their shares. That makes some 1e-6 in a run; steps that are
	// wrong by a percent make a thousand times that within three epochs.
	Tolerance = 1e-4
	// LeastAccuracy is what the network must reach on images that it has not seen.
	LeastAccuracy = 0.95

	momentum = 0.9
)

// Config says how to train. Every rank passes the same. The zero value of a field
// means its default.
type Config struct {
	Epochs int     // passes over the data; default 60
	Batch  int     // images of a step, over all ranks; default 64
	Rate   float32 // of learning; default 0.05
	Seed   uint64
	Large  int    // bytes of the second measurement of all-reduce; default 16 MiB
	Fabric string // what the result shall say; Run doesn't choose it

	// Regroup has the ranks that are left go on when one is lost.
	Regroup bool

	OnEpoch func(rank int, e Epoch) // called on each rank, which may be another by then, after each epoch; may be nil
	OnStep  func(step, steps int)   // called on each rank before each step; may be nil
}

func (g *Config) fill() error {
	if g.Epochs == 0 {
		g.Epochs = 60
	}
	if g.Batch == 0 {
		g.Batch = 64
	}
	if g.Rate == 0 {
		g.Rate = 0.05
	}
	if g.Large == 0 {
		g.Large = 16 << 20
	}
	if g.Epochs < 0 || g.Batch < 0 || g.Large < 0 || !(g.Rate > 0) {
		return fmt.Errorf("demo: %d epochs of batches of %d with rate %v", g.Epochs, g.Batch, g.Rate)
	}
	return nil
}

// Result is what came out.
type Result struct {
	Rank       int    `json:"-"` // this one, in the end
	Ranks      int    `json:"ranks"`
	Fabric     string `json:"fabric"`
	Seed       uint64 `json:"seed"`
	Batch      int    `json:"batch"`
	Parameters int    `json:"parameters"`
	Trained    int    `json:"train_images"`
	HeldOut    int    `json:"heldout_images"`

	Epoch
	Seconds float64 `json:"seconds"` // of training

	Gradient bench.Row `json:"gradient_all_reduce"`
	Large    bench.Row `json:"large_all_reduce"`

	Lost     *Lost   `json:"lost,omitempty"`
	SameBits bool    `json:"same_bits_on_all_ranks"`
	OneRank  OneRank `json:"one_rank"`
}

// OneRank compares with rank 0's training alone.
type OneRank struct {
	Accuracy   float64 `json:"accuracy"`
	Difference float64 `json:"largest_difference"` // of a parameter
	Tolerance  float64 `json:"tolerance"`
	Seconds    float64 `json:"seconds"`
}

// Run trains, measures and compares. It's collective: all ranks call it and get the same result. If it has regrouped, c
// is finalized when it returns, and so is the communicator that took its place.
func Run(ctx context.Context, c *comm.Comm, cfg Config) (Result, error) {
	if err := cfg.fill(); err != nil {
		return Result{}, err
	}
	d, err := load()
	if err != nil {
		return Result{}, err
	}
	res := Result{Ranks: c.Size(), Fabric: cfg.Fabric, Seed: cfg.Seed, Batch: cfg.Batch, Parameters: parameters,
		Trained: len(d.train), HeldOut: len(d.test)}
	t, err := newTrainer(ctx, c, cfg, d)
	if err != nil {
		return res, err
	}
	defer t.free()
	start := time.Now()
	res.Epoch, err = t.train()
	if t.c != c {
		c = t.c
		defer c.Finalize(ctx)
	}
	if err != nil {
		return res, err
	}
	res.Rank, res.Lost = c.Rank(), t.lost
	res.Seconds = time.Since(start).Seconds()
	if res.SameBits, err = sameBits(ctx, c, t.params); err != nil {
		return res, err
	}
	if res.Gradient, err = measure(ctx, c, cfg, t.gradT.NBytes()); err != nil {
		return res, err
	}
	if res.Large, err = measure(ctx, c, cfg, cfg.Large); err != nil {
		return res, err
	}
	res.OneRank, err = t.compare()
	return res, err
}

// Err reports what the result should have been and isn't.
func (r *Result) Err() error {
	var errs []error
	if r.Accuracy < LeastAccuracy {
		errs = append(errs, fmt.Errorf("demo: accuracy %.1f %%, want %.0f %%", 100*r.Accuracy, 100*LeastAccuracy))
	}
	if !r.SameBits {
		errs = append(errs, errors.New("demo: the ranks' parameters are not the same bits"))
	}
	if !(r.OneRank.Difference <= r.OneRank.Tolerance) {
		errs = append(errs, fmt.Errorf("demo: a parameter is %.2g from that of the one-rank run, more than %.2g",
			r.OneRank.Difference, r.OneRank.Tolerance))
	}
	if n := r.Gradient.Errors + r.Large.Errors; n > 0 {
		errs = append(errs, fmt.Errorf("demo: %d elements of all-reduces were wrong", n))
	}
	return errors.Join(errs...)
}

// measure times all-reduces of a size.
func measure(ctx context.Context, c *comm.Comm, cfg Config, bytes int) (bench.Row, error) {
	res, err := bench.Run(ctx, c, bench.Config{Operation: "all_reduce", Min: bytes, Max: bytes, Fabric: cfg.Fabric})
	if err != nil {
		return bench.Row{}, err
	}
	return res.Rows[0], nil
}

// sameBits compares a hash of all ranks' parameters.
func sameBits(ctx context.Context, c *comm.Comm, params []float32) (bool, error) {
	h := fnv.New64a()
	for _, p := range params {
		bits := math.Float32bits(p)
		h.Write([]byte{byte(bits), byte(bits >> 8), byte(bits >> 16), byte(bits >> 24)})
	}
	all := make([]uint64, c.Size())
	if err := c.AllGatherSingle(ctx, tensor.Of(all), tensor.Of([]uint64{h.Sum64()})); err != nil {
		return false, err
	}
	for _, x := range all {
		if x != all[0] {
			return false, nil
		}
	}
	return true, nil
}

// compare trains once more on rank 0 alone, on the same batches, while the others wait,
// and tells all ranks how far the parameters are apart.
func (t *trainer) compare() (OneRank, error) {
	out := OneRank{Tolerance: Tolerance}
	v := make([]float64, 3)
	var failed error
	if t.c.Rank() == 0 {
		start := time.Now()
		v[0], v[1], failed = t.alone()
		v[2] = time.Since(start).Seconds()
	}
	err := t.c.Broadcast(t.ctx, tensor.Of(v), 0)
	out.Accuracy, out.Difference, out.Seconds = v[0], v[1], v[2]
	return out, errors.Join(failed, err)
}

// alone returns the accuracy of the one-rank run and the largest difference of a parameter.
func (t *trainer) alone() (accuracy, difference float64, err error) {
	one, err := comm.New(t.ctx, comm.WithRank(0, 1), comm.WithName("alone"))
	if err != nil {
		return 0, 0, err
	}
	defer one.Finalize(t.ctx)
	cfg := t.cfg
	cfg.OnEpoch, cfg.OnStep, cfg.Regroup = nil, nil, false
	u, err := newTrainer(t.ctx, one, cfg, t.d)
	if err != nil {
		return 0, 0, err
	}
	defer u.free()
	last, err := u.train()
	for i, p := range u.params {
		if d := math.Abs(float64(p) - float64(t.params[i])); !(d <= difference) { // keeps a NaN
			difference = d
		}
	}
	return last.Accuracy, difference, err
}
