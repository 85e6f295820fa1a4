package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/internal/testutil/worldtest"
)

func TestRun(t *testing.T) {
	for _, n := range []int{1, 2, 4} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			results := make([]Result, n)
			epochs := make([]int, n)
			worldtest.Run(t, n, func(ctx context.Context, c *comm.Comm) (err error) {
				results[c.Rank()], err = Run(ctx, c, Config{Epochs: 6, Rate: 0.1, Seed: 3, Large: 64 << 10,
					OnEpoch: func(r int, e Epoch) { epochs[r] = e.Epoch }})
				return err
			})
			for r, res := range results {
				if err := res.Err(); err != nil || epochs[r] != 6 || res.Ranks != n {
					t.Errorf("rank %d: %+v, %d epochs: %v", r, res, epochs[r], err)
				}
				if res.Accuracy != results[0].Accuracy || res.OneRank.Difference != results[0].OneRank.Difference {
					t.Errorf("rank %d has %+v, rank 0 %+v", r, res, results[0])
				}
				if n == 1 && res.OneRank.Difference != 0 {
					t.Errorf("the same run twice differs by %v", res.OneRank.Difference)
				}
				if res.Gradient.Bytes != 4*(parameters+1) || res.Large.Bytes != 64<<10 || res.Large.AlgBW <= 0 {
					t.Errorf("%+v", res)
				}
			}
		})
	}
}

// The ranks that are left when one leaves in mid-training arrive where the one-rank run does, too.
func TestRegroup(t *testing.T) {
	const n, gone = 4, 1
	results := make([]Result, n)
	worldtest.Run(t, n, func(ctx context.Context, c *comm.Comm) (err error) {
		me := c.Rank()
		cfg := Config{Epochs: 6, Rate: 0.1, Seed: 3, Large: 64 << 10, Regroup: true}
		if me == gone {
			cfg.OnStep = func(step, steps int) {
				if step == steps/2 {
					c.Finalize(ctx)
				}
			}
		}
		results[me], err = Run(ctx, c, cfg)
		if me == gone && errors.Is(err, comm.ErrFinalized) {
			return nil
		}
		return err
	})
	for r, res := range results {
		if r == gone {
			continue
		}
		if err := res.Err(); err != nil || res.Lost == nil || res.Lost.Ranks != n-1 || res.Lost.Step < 60 {
			t.Errorf("rank %d: %+v: %v", r, res, err)
		}
		if res.Accuracy != res.OneRank.Accuracy {
			t.Errorf("rank %d: accuracy %v, alone %v", r, res.Accuracy, res.OneRank.Accuracy)
		}
	}
}

// The comparison must notice a step that is wrong by a percent.
func TestComparisonNotices(t *testing.T) {
	worldtest.Run(t, 2, func(ctx context.Context, c *comm.Comm) error {
		d, err := load()
		if err != nil {
			return err
		}
		cfg := Config{Epochs: 3}
		if err := cfg.fill(); err != nil {
			return err
		}
		u, err := newTrainer(ctx, c, cfg, d)
		if err != nil {
			return err
		}
		defer u.free()
		u.cfg.Rate *= 1.01
		if _, err := u.train(); err != nil {
			return err
		}
		u.cfg.Rate = cfg.Rate
		got, err := u.compare()
		if got.Difference < 10*Tolerance {
			t.Errorf("a rate that is off by a percent makes a difference of only %v", got.Difference)
		}
		return err
	})
}

func TestGradient(t *testing.T) {
	d, err := load()
	if err != nil {
		t.Fatal(err)
	}
	var n network[float64]
	r := rand.New(rand.NewPCG(1, 2))
	params, grad := make([]float64, parameters), make([]float64, parameters)
	initialize(params, r)
	for i := range params {
		params[i] += 0.05 * r.NormFloat64() // biases too
	}
	images, weight := []int{0, 1, 2, 3, 4}, 0.2
	loss := func() (sum float64) {
		for _, i := range images {
			n.forward(params, d.set.Image(i))
			sum += weight * n.loss(d.set.Label(i))
		}
		return sum
	}
	for _, i := range images {
		n.forward(params, d.set.Image(i))
		n.backward(params, grad, d.set.Label(i), weight)
	}
	moved := 0
	for i := range params {
		if i < atBias1 && i%37 != 0 {
			continue // a sample of the many
		}
		const h = 1e-5
		was := params[i]
		params[i] = was + h
		up := loss()
		params[i] = was - h
		down := loss()
		params[i] = was
		want := (up - down) / (2 * h)
		if math.Abs(grad[i]-want) > 1e-8+1e-6*math.Abs(want) {
			t.Fatalf("derivative by parameter %d: %v, by differences %v", i, grad[i], want)
		}
		if math.Abs(want) > 1e-6 {
			moved++
		}
	}
	if moved < 500 {
		t.Errorf("only %d derivatives are not 0", moved)
	}
}

func TestSplit(t *testing.T) {
	d, err := load()
	if err != nil {
		t.Fatal(err)
	}
	all := slices.Concat(d.train, d.test)
	slices.Sort(all)
	for i, x := range all {
		if i != x {
			t.Fatalf("image %d is used twice or never", i)
		}
	}
	for _, epoch := range []int{0, 1} {
		order := d.epoch(7, epoch)
		if !slices.Equal(order, d.epoch(7, epoch)) || slices.Equal(order, d.epoch(7, epoch+1)) || slices.Equal(order,
			d.epoch(8, epoch)) {
			t.Error("the order must follow from seed and epoch")
		}
		slices.Sort(order)
		if want := slices.Sorted(slices.Values(d.train)); !slices.Equal(order, want) {
			t.Error("an epoch is not all training images")
		}
	}
}

func TestShare(t *testing.T) {
	list := []int{5, 6, 7, 8, 9, 10, 11}
	for n := 1; n < 10; n++ {
		var all []int
		for r := range n {
			s := share(list, r, n)
			if len(s) < len(list)/n || len(s) > len(list)/n+1 {
				t.Errorf("rank %d of %d has %v", r, n, s)
			}
			all = append(all, s...)
		}
		if !slices.Equal(all, list) {
			t.Errorf("%d ranks have %v", n, all)
		}
	}
}

func TestErr(t *testing.T) {
	good := Result{SameBits: true, Epoch: Epoch{Accuracy: 0.97}, OneRank: OneRank{Difference: 1e-6, Tolerance: Tolerance}}
	if err := good.Err(); err != nil {
		t.Error(err)
	}
	for want, spoil := range map[string]func(*Result){
		"accuracy 94.0": func(r *Result) { r.Accuracy = 0.94 },
		"same bits":     func(r *Result) { r.SameBits = false },
		"one-rank run":  func(r *Result) { r.OneRank.Difference = 1 },
		"NaN":           func(r *Result) { r.OneRank.Difference = math.NaN() },
		"3 elements":    func(r *Result) { r.Large.Errors = 3 },
	} {
		r := good
		spoil(&r)
		if err := r.Err(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	if err := (&Config{Epochs: -1}).fill(); err == nil {
		t.Error("negative epochs")
	}
}

func TestReport(t *testing.T) {
	r := Result{Ranks: 4, Fabric: "shm", Epoch: Epoch{Accuracy: 0.97}, OneRank: OneRank{Difference: 1,
		Tolerance: Tolerance}}
	var b bytes.Buffer
	if err := r.Write(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"97.00 %", "4 ranks over shm", "busbw", "tolerance 0.0001: WRONG"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}

func TestLive(t *testing.T) {
	var b bytes.Buffer
	l := NewLive(&b)
	one, two := Epoch{Epoch: 1, Epochs: 2}.String(), Epoch{Epoch: 2, Epochs: 2}.String()
	fmt.Fprintln(l, "begin")
	fmt.Fprintln(l, one)
	fmt.Fprintf(l, "%s\nend\nreally\n", two)
	want := "begin\n\r\x1b[K" + one + "\r\x1b[K" + two + "\nend\nreally\n"
	if b.String() != want {
		t.Errorf("%q, want %q", b.String(), want)
	}
	if len(Epoch{Epoch: 100, Epochs: 100, Speed: 123456}.String()) >= 80 {
		t.Error("the line does not fit a terminal")
	}
	if !strings.Contains(two, "[============]") {
		t.Errorf("no full bar in %q", two)
	}
}
