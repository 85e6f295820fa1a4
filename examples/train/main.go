// Command train teaches a network to read handwritten digits, data-parallel: every rank has all parameters and a share
// of each batch. Gradients are summed over the ranks in buckets, each on its way while those of the layers before it
// are computed.
//
//	chorus run -n 4 go run ./examples/train
//
// This is what DistributedDataParallel does in PyTorch. Parameters begin alike, by a broadcast, and stay so without
// being sent again, because the result of an all-reduce has the same bits on all ranks.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"math/rand/v2"
	"time"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/internal/digits" // a program of yours has its own data here
	"github.com/chorus-comms/chorus/tensor"
)

const (
	momentum = 0.9
	heldOut  = digits.Count / 5 // images to test with
)

func main() {
	log.SetFlags(0)
	epochs := flag.Int("epochs", 10, "passes over the data")
	batch := flag.Int("batch", 96, "images of a step, of all ranks together")
	rate := flag.Float64("rate", 0.05, "learning rate")
	bucket := flag.Int("bucket", 32<<10, "bytes of gradients that are sent together, at least")
	flag.Parse()
	if err := run(context.Background(), *epochs, *batch, float32(*rate), *bucket); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, epochs, batch int, rate float32, bucket int) error {
	c, err := comm.New(ctx, comm.WithTimeout(time.Minute))
	if err != nil {
		return err
	}
	defer c.Finalize(ctx)
	set, err := digits.Load()
	if err != nil {
		return err
	}
	order := rand.New(rand.NewPCG(1, 0)).Perm(digits.Count) // the same on every rank, as are all draws
	test, train := order[:heldOut], order[heldOut:]

	n, err := newNetwork(c, digits.Pixels, 128, 64, digits.Classes)
	if err != nil {
		return err
	}
	if c.Rank() == 0 {
		n.initialize(rand.New(rand.NewPCG(2, 0)))
	}
	if err := c.Broadcast(ctx, n.paramsT, 0); err != nil {
		return err
	}
	buckets, err := n.buckets(bucket)
	if err != nil {
		return err
	}
	velocity := make([]float32, len(n.params))
	start := time.Now()
	for epoch := range epochs {
		random := rand.New(rand.NewPCG(3, uint64(epoch)))
		random.Shuffle(len(train), func(i, j int) { train[i], train[j] = train[j], train[i] })
		for first := 0; first < len(train); first += batch {
			step := train[first:min(first+batch, len(train))]
			if err := gradients(ctx, c, n, buckets, set, step); err != nil {
				return err
			}
			for i, g := range n.grads {
				velocity[i] = momentum*velocity[i] + g
				n.params[i] -= rate * velocity[i]
			}
		}
	}
	took := time.Since(start)
	accuracy, err := check(ctx, c, n, set, test)
	if err == nil && c.Rank() == 0 {
		fmt.Printf("%d ranks, %d parameters, gradients in %d buckets: %.1f %% of %d new images recognized after %d epochs in %v\n",
			c.Size(), len(n.params), len(buckets), 100*accuracy, len(test), epochs, took.Round(time.Millisecond))
	}
	return err
}

// share is a rank's part of a list: as nearly equal as whole images can be.
func share(all []int, c *comm.Comm) []int {
	return all[len(all)*c.Rank()/c.Size() : len(all)*(c.Rank()+1)/c.Size()]
}

// gradients leaves the mean gradient over the batch in n.grads, on every rank.
func gradients(ctx context.Context, c *comm.Comm, n *network, buckets []bucket, set *digits.Set, batch []int) error {
	mine := share(batch, c)
	out := n.forward(set, mine)
	// Each rank's sum over its share, weighted so that the sum over the ranks is the mean, however the batch is shared.
	d := n.lossGradient(out, set, mine, 1/float32(len(batch)))
	works := make([]comm.Work, len(buckets))
	next := 0
	for i := len(n.layers) - 1; i >= 0; i-- {
		d = n.layers[i].backward(d)
		if b := buckets[next]; b.first == i { // the last of its gradients is there
			if err := c.AllReduce(ctx, b.grads, comm.Sum, comm.Async(&works[next])); err != nil {
				return err
			}
			next++
		}
	}
	for i := range works {
		if err := works[i].Wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

// check tests what was learned, each rank on a share of the images, and that all ranks have the same parameters.
func check(ctx context.Context, c *comm.Comm, n *network, set *digits.Set, test []int) (accuracy float64, err error) {
	mine := share(test, c)
	right := []int64{0}
	for i, best := range n.classes(n.forward(set, mine), len(mine)) {
		if best == set.Label(mine[i]) {
			right[0]++
		}
	}
	if err := c.AllReduce(ctx, tensor.Of(right), comm.Sum); err != nil {
		return 0, err
	}
	low, high := make([]float32, len(n.params)), make([]float32, len(n.params))
	if err := c.AllReduce(ctx, n.paramsT, comm.Min, comm.Into(tensor.Of(low))); err != nil {
		return 0, err
	}
	if err := c.AllReduce(ctx, n.paramsT, comm.Max, comm.Into(tensor.Of(high))); err != nil {
		return 0, err
	}
	for i := range low {
		if low[i] != high[i] {
			return 0, fmt.Errorf("parameter %d is %v on one rank and %v on another", i, low[i], high[i])
		}
	}
	return float64(right[0]) / float64(len(test)), nil
}
