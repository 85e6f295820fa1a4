package chorusgomlx_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/gomlx/gomlx/backends/simplego"
	"github.com/gomlx/gomlx/pkg/core/graph"
	"github.com/gomlx/gomlx/pkg/core/tensors"
	mlcontext "github.com/gomlx/gomlx/pkg/ml/context"
	"github.com/gomlx/gomlx/pkg/ml/layers"
	"github.com/gomlx/gomlx/pkg/ml/train"
	"github.com/gomlx/gomlx/pkg/ml/train/losses"
	"github.com/gomlx/gomlx/pkg/ml/train/optimizers"

	chorusgomlx "github.com/chorus-comms/chorus/adapters/gomlx"
	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/internal/testutil"
	"github.com/chorus-comms/chorus/internal/testutil/worldtest"
	"github.com/chorus-comms/chorus/launch"
	"github.com/chorus-comms/chorus/tensor"
)

// rankVar, in the environment, makes this test binary a rank that trains with the optimizer of that name.
const rankVar = "CHORUS_TEST_GOMLX"

func TestMain(m *testing.M) {
	if name := os.Getenv(rankVar); name != "" {
		if err := rank(name); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

const (
	steps    = 12
	examples = 12 // of a step, over all ranks
	features = 5
)

// model is a network of one hidden layer.
func model(ctx *mlcontext.Context, _ any, in []*graph.Node) []*graph.Node {
	x := layers.Dense(ctx.In("hidden"), in[0], true, 8)
	return []*graph.Node{layers.Dense(ctx.In("out"), graph.Tanh(x), true, 1)}
}

// batch is a rank's part of the examples of a step.
func batch(step, rank, ranks int) (in, labels []*tensors.Tensor) {
	n := examples / ranks
	var x, y []float32
	for i := rank * n; i < (rank+1)*n; i++ {
		sum := 0.0
		for j := range features {
			v := math.Sin(float64(1 + step*31 + i*7 + j*3))
			x, sum = append(x, float32(v)), sum+v*float64(j-1)
		}
		y = append(y, float32(sum))
	}
	return []*tensors.Tensor{tensors.FromFlatDataAndDimensions(x, n, features)},
		[]*tensors.Tensor{tensors.FromFlatDataAndDimensions(y, n, 1)}
}

func optimizer(name string) chorusgomlx.Base {
	if name == "adam" {
		return optimizers.Adam().LearningRate(0.01).Done().(chorusgomlx.Base)
	}
	return optimizers.StochasticGradientDescent().WithLearningRate(0.05)
}

// result is what a training has come to.
type result struct {
	Losses []float64 // of the joined batches
	Bits   string    // of the variables
}

// train1 trains by c's ranks; a nil c is GoMLX by itself.
func train1(ctx context.Context, c *comm.Comm, name string, seed int64) (*result, error) {
	backend, err := simplego.New("")
	if err != nil {
		return nil, err
	}
	defer backend.Finalize()
	mlctx := mlcontext.New()
	mlctx.SetParam(mlcontext.ParamInitialSeed, seed)
	rank, ranks := 0, 1
	var opt optimizers.Interface = optimizer(name)
	var ours *chorusgomlx.Optimizer
	if c != nil {
		rank, ranks = c.Rank(), c.Size()
		ours = chorusgomlx.New(c, backend, optimizer(name))
		opt = ours
		if err := chorusgomlx.Sync(ctx, c, mlctx); err != nil {
			return nil, err
		}
	}
	trainer := train.NewTrainer(backend, mlctx, model, losses.MeanSquaredError, opt, nil, nil)
	r := new(result)
	for s := range steps {
		in, labels := batch(s, rank, ranks)
		metrics, err := trainer.TrainStep(nil, in, labels)
		if err != nil {
			return nil, err
		}
		loss := []float64{float64(tensors.ToScalar[float32](metrics[0]))}
		if c != nil {
			if err := ours.Step(ctx); err != nil {
				return nil, err
			}
			if err := c.AllReduce(ctx, tensor.Of(loss), comm.Avg); err != nil {
				return nil, err
			}
		}
		r.Losses = append(r.Losses, loss[0])
	}
	for v := range mlctx.IterVariables() {
		if v.Trainable {
			value, err := v.Value()
			if err != nil {
				return nil, err
			}
			r.Bits += fmt.Sprintf("%s %x\n", v.ScopeAndName(), value.Value())
		}
	}
	return r, nil
}

func rank(name string) error {
	ctx := context.Background()
	c, err := comm.New(ctx)
	if err != nil {
		return err
	}
	r, err := train1(ctx, c, name, int64(7+c.Rank())) // each its own seed, but rank 0's counts
	if err != nil {
		return err
	}
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	fmt.Println(string(text))
	return c.Finalize(ctx)
}

// TestTraining trains by two and by three processes, and compares the losses with those of GoMLX by itself, with the
// joined batches.
func TestTraining(t *testing.T) {
	ran := testutil.Ran(t, "GoMLX")
	version, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Version}}", "github.com/gomlx/gomlx").Output()
	if err != nil {
		t.Fatal(err)
	}
	ran.SetVersion(version)
	for _, name := range []string{"sgd", "adam"} {
		want, err := train1(t.Context(), nil, name, 7)
		if err != nil {
			t.Fatal(err)
		}
		if first, last := want.Losses[0], want.Losses[steps-1]; last > 0.7*first {
			t.Errorf("%s learns nothing: %v", name, want.Losses)
		}
		for _, ranks := range []int{2, 3} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			var out, diagnostics bytes.Buffer
			job := launch.Job{Command: []string{os.Args[0]}, RanksPerNode: ranks, Stdout: &out, Stderr: &diagnostics,
				Env: append(os.Environ(), rankVar+"="+name)}
			if err := job.Run(ctx); err != nil {
				t.Fatalf("%v\n%s", err, &diagnostics)
			}
			var first *result
			n := 0
			for line := range strings.Lines(out.String()) {
				got := new(result)
				if err := json.Unmarshal([]byte(line[strings.Index(line, "{"):]), got); err != nil {
					t.Fatalf("%v in %s", err, line)
				}
				if n++; first == nil {
					first = got
				}
				if got.Bits != first.Bits {
					t.Errorf("%s, %d ranks: they end with other variables", name, ranks)
				}
				for i := range want.Losses {
					if math.Abs(got.Losses[i]-want.Losses[i]) > 1e-4*(1e-2+want.Losses[i]) {
						t.Errorf("%s, %d ranks, step %d: loss %v, want %v", name, ranks, i, got.Losses[i], want.Losses[i])
					}
				}
			}
			if n != ranks {
				t.Errorf("%d results of %d ranks:\n%s", n, ranks, &out)
			}
		}
	}
}

// TestLoop attaches the optimizer to GoMLX's loop.
func TestLoop(t *testing.T) {
	worldtest.Run(t, 2, func(ctx context.Context, c *comm.Comm) error {
		backend, err := simplego.New("")
		if err != nil {
			return err
		}
		defer backend.Finalize()
		mlctx := mlcontext.New()
		if err := chorusgomlx.Sync(ctx, c, mlctx); err != nil {
			return err
		}
		opt := chorusgomlx.New(c, backend, optimizer("sgd"))
		loop := train.NewLoop(train.NewTrainer(backend, mlctx, model, losses.MeanSquaredError, opt, nil, nil))
		opt.Attach(ctx, loop)
		if _, err := loop.RunSteps(&set{c: c}, 5); err != nil {
			return err
		}
		if n := optimizers.GetGlobalStep(mlctx); n != 5 {
			t.Errorf("rank %d: %d steps were applied", c.Rank(), n)
		}
		return opt.Clear(mlctx)
	})
}

// set is a dataset of a rank's batches.
type set struct {
	c    *comm.Comm
	step int
}

func (s *set) Name() string { return "test" }
func (s *set) Reset()       { s.step = 0 }
func (s *set) Yield() (spec any, in, labels []*tensors.Tensor, err error) {
	s.step++
	in, labels = batch(s.step, s.c.Rank(), s.c.Size())
	return nil, in, labels, nil
}

// TestUnequal: ranks that begin with other variables, or with others' names, are told.
func TestUnequal(t *testing.T) {
	worldtest.Run(t, 2, func(ctx context.Context, c *comm.Comm) error {
		backend, err := simplego.New("")
		if err != nil {
			return err
		}
		defer backend.Finalize()
		mlctx := mlcontext.New()
		mlctx.SetParam(mlcontext.ParamInitialSeed, int64(c.Rank())) // and no Sync
		opt := chorusgomlx.New(c, backend, optimizer("sgd"))
		if err := opt.Step(ctx); err == nil {
			t.Error("a step before the first")
		}
		trainer := train.NewTrainer(backend, mlctx, model, losses.MeanSquaredError, opt, nil, nil)
		in, labels := batch(0, c.Rank(), c.Size())
		if _, err := trainer.TrainStep(nil, in, labels); err != nil {
			return err
		}
		if err := opt.Step(ctx); !errors.Is(err, comm.ErrMismatch) || !strings.Contains(err.Error(), "rank 1 doesn't begin") {
			t.Errorf("rank %d: %v", c.Rank(), err)
		}
		if c.Rank() == 1 {
			mlctx.VariableWithValue("more", float32(1))
		}
		err = chorusgomlx.Sync(ctx, c, mlctx)
		if !errors.Is(err, comm.ErrMismatch) || !strings.Contains(err.Error(), "more") {
			t.Errorf("rank %d: %v", c.Rank(), err)
		}
		return nil
	})
}
