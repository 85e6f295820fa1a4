// Command paramserver trains asynchronously: rank 0 holds the parameters, and each other rank, a worker, computes a
// gradient with what it last got, sends it, and gets the parameters as they are then. No worker waits for another.
//
//	chorus run -n 4 go run ./examples/paramserver
//	chorus run -n 4 --may-lose 2 paramserver --die 2    # worker 2 dies; the others go on
//
// The server has a communicator of two with each worker, and a goroutine that serves it. A rank that dies breaks all
// communicators that it's a member of, so that a server that received from any source of the world would lose all
// workers with one. Here it loses the pair with the dead one, whose goroutine ends; the other pairs don't notice. A
// worker that hangs without dying is given up when the pair's timeout is over.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"math"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/tensor"
)

// The model is a line in so many dimensions; the workers know points near it.
const (
	dims  = 16
	batch = 32
	noise = 0.01
)

// Ranks in a pair.
const (
	server = 0
	worker = 1
)

// over is the version that says that training is over.
const over = -1

func main() {
	log.SetFlags(0)
	updates := flag.Int("updates", 600, "gradients that the server takes")
	rate := flag.Float64("rate", 0.05, "learning rate")
	die := flag.Int("die", -1, "worker that dies after its first gradient")
	patience := flag.Duration("patience", 10*time.Second, "how long the server waits for a worker")
	flag.Parse()
	if err := run(context.Background(), *updates, *rate, *die, *patience); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, updates int, rate float64, die int, patience time.Duration) error {
	c, err := comm.New(ctx)
	if err != nil {
		return err
	}
	if c.Size() < 2 {
		return errors.Join(errors.New("a server and a worker are two ranks at least"), c.Finalize(ctx))
	}
	pairs, err := split(ctx, c, patience)
	if err != nil {
		return err
	}
	if c.Rank() == 0 {
		err = serve(ctx, pairs, updates, rate)
	} else {
		err = work(ctx, pairs[0], c.Rank(), c.Rank() == die)
	}
	for _, p := range pairs {
		p.Finalize(ctx) // fails for a pair that is broken, which has been said
	}
	c.Finalize(ctx)
	return err
}

// split makes the pairs. The server gets all of them, by worker; a worker gets its own.
func split(ctx context.Context, c *comm.Comm, patience time.Duration) (pairs []*comm.Comm, err error) {
	for w := 1; w < c.Size(); w++ {
		var members []int
		if c.Rank() == 0 || c.Rank() == w {
			members = []int{0, w}
		}
		// All ranks call Split, also those that aren't members.
		p, err := c.Split(ctx, members, comm.SplitName(fmt.Sprintf("worker-%d", w)), comm.SplitTimeout(patience))
		if err != nil {
			return nil, err
		}
		if p != nil {
			pairs = append(pairs, p)
		}
	}
	return pairs, nil
}

// model is what the server holds.
type model struct {
	mu      sync.Mutex
	params  [dims]float64
	version int // gradients taken
	updates int // gradients wanted
	rate    float64
	stale   int // the sum over all gradients of how many others came between
}

// read fills a message to a worker: the version, or over, and the parameters.
func (m *model) read(message []float64) (done bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	message[0] = float64(m.version)
	if done = m.version == m.updates; done {
		message[0] = over
	}
	copy(message[1:], m.params[:])
	return done
}

// update takes a message of a worker: the version that it began with, and the gradient. The older that version, the
// less it counts; what comes when all were taken doesn't.
func (m *model) update(message []float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.version == m.updates {
		return
	}
	behind := m.version - int(message[0])
	m.version++
	m.stale += behind
	for i, g := range message[1:] {
		m.params[i] -= m.rate / float64(1+behind) * g
	}
}

// serve serves each worker on a goroutine of its own until there were enough gradients, or no worker is left.
func serve(ctx context.Context, pairs []*comm.Comm, updates int, rate float64) error {
	m := &model{updates: updates, rate: rate}
	var all sync.WaitGroup
	for i, p := range pairs {
		all.Go(func() {
			if err := m.serve(ctx, p); err != nil {
				fmt.Printf("goes on without worker %d: %v\n", i+1, err)
			}
		})
	}
	all.Wait()
	if m.version < updates {
		return fmt.Errorf("no worker is left after %d of %d gradients", m.version, updates)
	}
	worst := 0.0
	for i, p := range m.params {
		worst = max(worst, math.Abs(p-truth(i)))
	}
	fmt.Printf("%d gradients, each %.1f versions behind on average; the parameters are right to %.3f\n", m.version,
		float64(m.stale)/float64(m.version), worst)
	if worst > 0.05 {
		return errors.New("the parameters are wrong")
	}
	return nil
}

// serve sends a worker the parameters, and takes its gradient, by turns. It returns when the worker knows that training
// is over.
func (m *model) serve(ctx context.Context, pair *comm.Comm) error {
	message := make([]float64, 1+dims)
	for {
		done := m.read(message)
		if err := pair.Send(ctx, tensor.Of(message), worker); err != nil || done {
			return err
		}
		if err := pair.Recv(ctx, tensor.Of(message), worker); err != nil {
			return err
		}
		m.update(message)
	}
}

// work computes gradients until the server says that it's over.
func work(ctx context.Context, pair *comm.Comm, rank int, mortal bool) error {
	random := rand.New(rand.NewPCG(uint64(rank), 0))
	message := make([]float64, 1+dims)
	for taken := 0; ; taken++ {
		if err := pair.Recv(ctx, tensor.Of(message), server); err != nil {
			return err
		}
		if message[0] == over {
			fmt.Printf("worker %d has sent %d gradients\n", rank, taken)
			return nil
		}
		if mortal && taken == 1 {
			os.Exit(1)
		}
		gradient(random, message[1:]) // in place of the parameters, behind the version that they were
		if err := pair.Send(ctx, tensor.Of(message), server); err != nil {
			return err
		}
	}
}

// truth is what is to be learned.
func truth(i int) float64 { return float64(i%5) - 2 }

// gradient replaces parameters by the gradient of half the mean squared error over a batch of new points.
func gradient(random *rand.Rand, params []float64) {
	var sum, x [dims]float64
	for range batch {
		off := noise * random.NormFloat64()
		for i := range x {
			x[i] = random.NormFloat64()
			off += x[i] * (params[i] - truth(i))
		}
		for i := range sum {
			sum[i] += off * x[i] / batch
		}
	}
	copy(params, sum[:])
}
