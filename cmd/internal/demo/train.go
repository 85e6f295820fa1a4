package demo

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"
	"unsafe"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/tensor"
)

// Epoch is how training stands after a pass over the data.
type Epoch struct {
	Epoch    int     `json:"epoch"` // from 1
	Epochs   int     `json:"epochs"`
	Loss     float64 `json:"loss"`     // mean over the epoch
	Accuracy float64 `json:"accuracy"` // share of the held-out images that are recognized
	Speed    float64 `json:"images_per_s"`
}

// trainer is one rank's part in training.
type trainer struct {
	ctx context.Context
	c   *comm.Comm
	cfg Config
	d   *data
	net network[float32]

	paramsT, gradT *tensor.Tensor
	params         []float32
	// grad has an element more than there are parameters: the loss travels with the gradient.
	grad     []float32
	momentum []float32

	done int     // steps taken
	sum  float64 // of the losses of this epoch's steps, weighted by images
	last Epoch   // the last that is over
	lost *Lost   // what the run went on without
}

// newTrainer allocates; rank 0's initial parameters become everybody's.
func newTrainer(ctx context.Context, c *comm.Comm, cfg Config, d *data) (*trainer, error) {
	t := &trainer{ctx: ctx, c: c, cfg: cfg, d: d, momentum: make([]float32, parameters)}
	var err error
	if t.paramsT, t.params, err = empty(c, parameters); err != nil {
		return nil, err
	}
	if t.gradT, t.grad, err = empty(c, parameters+1); err != nil {
		t.free()
		return nil, err
	}
	err = t.compute("initialize", func() {
		if c.Rank() == 0 {
			initialize(t.params, rand.New(rand.NewPCG(cfg.Seed, 0)))
		}
	})
	if err == nil {
		err = c.Broadcast(ctx, t.paramsT, 0)
	}
	if err != nil {
		t.free()
		return nil, err
	}
	return t, nil
}

func empty(c *comm.Comm, n int) (*tensor.Tensor, []float32, error) {
	t, err := c.Empty(dtype.Float32, n)
	if err != nil {
		return nil, nil, err
	}
	view, err := t.EngineView() // which only compute's functions touch
	if err != nil {
		return nil, nil, err
	}
	v, err := tensor.Slice[float32](view)
	return t, v, err
}

// compute runs f on the communicator's device: as a kernel in stream order, or at once on the host.
func (t *trainer) compute(name string, f func()) error {
	if t.c.Stream() == nil {
		f()
		return nil
	}
	s, err := t.paramsT.On().CurrentStream(t.ctx)
	if err != nil {
		return err
	}
	var spans []device.Span
	for _, x := range []*tensor.Tensor{t.paramsT, t.gradT} {
		if err := x.UsedBy(s); err != nil {
			return err
		}
		spans = append(spans, device.Span{Ptr: device.Ptr(uintptr(x.Pointer())), Bytes: x.NBytes()})
	}
	return s.Launch(name, spans, func([]unsafe.Pointer) error { f(); return nil })
}

// agree waits for the device.
func (t *trainer) agree() error {
	if t.c.Stream() == nil {
		return nil
	}
	s, err := t.paramsT.On().CurrentStream(t.ctx)
	if err != nil {
		return err
	}
	return s.Synchronize(t.ctx)
}

// free gives the shared memory back; params and grad end with it.
func (t *trainer) free() {
	t.paramsT.Free()
	if t.gradT != nil {
		t.gradT.Free()
	}
}

// perEpoch is the number of steps of an epoch.
func (t *trainer) perEpoch() int { return (len(t.d.train) + t.cfg.Batch - 1) / t.cfg.Batch }

// train runs all epochs and returns the last one's standing.
func (t *trainer) train() (Epoch, error) {
	t.last = Epoch{Epochs: t.cfg.Epochs}
	for t.last.Epoch < t.cfg.Epochs {
		was := t.last.Epoch
		err := t.epoch(was)
		if err != nil {
			err = t.resume(err)
		}
		if err != nil {
			return t.last, fmt.Errorf("demo: epoch %d: %w", was+1, err)
		}
		if t.cfg.OnEpoch != nil && t.last.Epoch > was {
			t.cfg.OnEpoch(t.c.Rank(), t.last)
		}
	}
	return t.last, nil
}

// epoch takes the steps of an epoch that aren't taken yet, and tests.
func (t *trainer) epoch(e int) error {
	start, n := time.Now(), t.perEpoch()
	if t.done == e*n {
		t.sum = 0
	}
	order := t.d.epoch(t.cfg.Seed, e)
	images := 0
	for t.done < (e+1)*n {
		if t.cfg.OnStep != nil {
			t.cfg.OnStep(t.done, t.cfg.Epochs*n)
		}
		lo := (t.done - e*n) * t.cfg.Batch
		batch := order[lo:min(lo+t.cfg.Batch, len(order))]
		loss, err := t.step(batch)
		if err != nil {
			return err
		}
		t.sum += loss * float64(len(batch))
		images += len(batch)
		t.done++
	}
	took := time.Since(start).Seconds()
	right, err := t.accuracy()
	if err != nil {
		return err
	}
	t.last = Epoch{Epoch: e + 1, Epochs: t.cfg.Epochs, Loss: t.sum / float64(len(order)), Accuracy: right,
		Speed: float64(images) / took}
	return nil
}

// step learns from a batch and returns its mean loss.
func (t *trainer) step(batch []int) (float64, error) {
	ranks := t.c.Size()
	// The average over the ranks of these weighted sums is the mean over the batch, even
	// if the shares differ by an image.
	weight := float32(ranks) / float32(len(batch))
	err := t.compute("gradient", func() {
		clear(t.grad)
		for _, i := range share(batch, t.c.Rank(), ranks) {
			label := t.d.set.Label(i)
			t.net.forward(t.params, t.d.set.Image(i))
			t.net.backward(t.params, t.grad, label, weight)
			t.grad[parameters] += t.net.loss(label) * weight
		}
	})
	if err != nil {
		return 0, err
	}
	if err := t.c.AllReduce(t.ctx, t.gradT, comm.Avg); err != nil {
		return 0, err
	}
	loss := 0.0
	err = t.compute("update", func() {
		for i, g := range t.grad[:parameters] {
			t.momentum[i] = momentum*t.momentum[i] + g
			t.params[i] -= t.cfg.Rate * t.momentum[i]
		}
		loss = float64(t.grad[parameters])
	})
	if err == nil {
		err = t.agree()
	}
	return loss, err
}

// accuracy tests each rank's share of the held-out images.
func (t *trainer) accuracy() (float64, error) {
	right := []int64{0}
	err := t.compute("test", func() {
		for _, i := range share(t.d.test, t.c.Rank(), t.c.Size()) {
			t.net.forward(t.params, t.d.set.Image(i))
			if t.net.best() == t.d.set.Label(i) {
				right[0]++
			}
		}
	})
	if err == nil {
		err = t.agree()
	}
	if err != nil {
		return 0, err
	}
	err = t.c.AllReduce(t.ctx, tensor.Of(right), comm.Sum)
	return float64(right[0]) / float64(len(t.d.test)), err
}
