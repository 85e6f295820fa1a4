package commtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/internal/testutil"
	"github.com/chorus-comms/chorus/tensor"
)

// A stream program is a random sequence of work on several streams, the same on every rank. Events order what touches
// the same tensor, and nothing else, so that whatever runs beside it the tensors end as if the steps had been done one
// by one.
const (
	programStreams = 3
	programTensors = 5
	programSize    = 700
)

type stepKind uint8

const (
	stepFill      stepKind = iota
	stepCopy               // a = b
	stepUpload             // a = pinned memory
	stepAdd                // a += b
	stepAllReduce          // a = sum of all ranks' a
	stepBroadcast          // a = a of a rank
	stepShift              // a = b of the rank before
	stepKinds
)

type step struct {
	kind   stepKind
	a, b   int
	stream int
	async  bool
	value  int64 // a fill's byte, an upload's number, a root
}

// phase is steps that are run as they are, or as a graph.
type phase struct {
	steps   []step
	replays int // 0: no graph
}

func streamProgram(seed uint64, n int) []phase {
	rng := rand.New(rand.NewPCG(seed, 2))
	var p []phase
	for range 2 + rng.IntN(4) {
		ph := phase{}
		if rng.IntN(2) == 0 {
			ph.replays = 1 + rng.IntN(3)
		}
		for range 3 + rng.IntN(10) {
			s := step{kind: stepKind(rng.IntN(int(stepKinds))), a: rng.IntN(programTensors), stream: rng.IntN(programStreams),
				async: rng.IntN(2) == 0}
			s.b = (s.a + 1 + rng.IntN(programTensors-1)) % programTensors
			s.value = int64(rng.IntN(100))
			if s.kind == stepBroadcast {
				s.value = int64(rng.IntN(n))
			}
			ph.steps = append(ph.steps, s)
		}
		p = append(p, ph)
	}
	return p
}

// meaning is what a program does to the tensors of all ranks, step by step.
func meaning(p []phase, n int) [][][]int64 {
	state := make([][][]int64, n)
	for r := range state {
		state[r] = make([][]int64, programTensors)
		for t := range state[r] {
			state[r][t] = make([]int64, programSize)
			for i := range state[r][t] {
				state[r][t][i] = initial(r, t, i)
			}
		}
	}
	for _, ph := range p {
		for range max(ph.replays, 1) {
			for _, s := range ph.steps {
				apply(s, state)
			}
		}
	}
	return state
}

func initial(rank, t, i int) int64 { return int64(1000*rank + 100*t + i) }

func apply(s step, state [][][]int64) {
	n := len(state)
	before := make([][]int64, n) // every rank's b
	sum := make([]int64, programSize)
	for r := range n {
		before[r] = slices.Clone(state[r][s.b])
		for i, v := range state[r][s.a] {
			sum[i] += v
		}
	}
	root := slices.Clone(state[int(s.value)%n][s.a])
	for r := range n {
		a := state[r][s.a]
		for i := range a {
			switch s.kind {
			case stepFill:
				a[i] = s.value * 0x0101010101010101
			case stepCopy:
				a[i] = before[r][i]
			case stepUpload:
				a[i] = s.value + int64(r)
			case stepAdd:
				a[i] += before[r][i]
			case stepAllReduce:
				a[i] = sum[i]
			case stepBroadcast:
				a[i] = root[i]
			case stepShift:
				a[i] = before[(r+n-1)%n][i]
			}
		}
	}
}

// player runs a program on one rank.
type player struct {
	c       *comm.Comm
	ctx     context.Context
	streams [programStreams]*device.Stream
	tensors [programTensors]*tensor.Tensor
	events  [programTensors]*device.Event // behind the last step that touched the tensor
	pinned  []*tensor.Tensor
}

func (p *player) on(stream int) context.Context { return device.WithStream(p.ctx, p.streams[stream]) }

// play enqueues a step behind those that touch its tensors.
func (p *player) play(s step) error {
	ctx, st := p.on(s.stream), p.streams[s.stream]
	for _, t := range []int{s.a, s.b} {
		if p.events[t] != nil {
			if err := st.Wait(p.events[t]); err != nil {
				return err
			}
		}
	}
	a, b := p.tensors[s.a], p.tensors[s.b]
	var w comm.Work
	var opts []comm.Option
	if s.async {
		opts = append(opts, comm.Async(&w))
	}
	communicates := true
	var err error
	switch s.kind {
	case stepAllReduce:
		err = p.c.AllReduce(ctx, a, comm.Sum, opts...)
	case stepBroadcast:
		err = p.c.Broadcast(ctx, a, int(s.value), opts...)
	case stepShift:
		n, me := p.c.Size(), p.c.Rank()
		batch := p.c.Batch()
		batch.Send(b, (me+1)%n)
		batch.Recv(a, (me+n-1)%n)
		err = batch.Issue(ctx, opts...)
	default:
		communicates = false
		err = p.compute(ctx, st, s, a, b)
	}
	if err == nil && communicates && s.async { // another stream takes over
		s.stream = (s.stream + 1) % programStreams
		st = p.streams[s.stream]
		err = w.Wait(p.on(s.stream))
	}
	if err != nil {
		return fmt.Errorf("%+v: %w", s, err)
	}
	e := new(device.Event)
	p.events[s.a], p.events[s.b] = e, e
	return st.Record(e)
}

func (p *player) compute(ctx context.Context, st *device.Stream, s step, a, b *tensor.Tensor) error {
	switch s.kind {
	case stepFill:
		return tensor.Fill(ctx, a, s.value*0x0101010101010101)
	case stepCopy:
		return tensor.Copy(ctx, a, b)
	case stepUpload:
		host, err := tensor.EmptyPinned(a.On().Runtime(), dtype.Int64, programSize)
		if err == nil {
			err = host.Fill(s.value + int64(p.c.Rank()))
		}
		if err != nil {
			return err
		}
		p.pinned = append(p.pinned, host) // graphs use it again
		return tensor.Copy(ctx, a, host)
	}
	return add(st, a, b)
}

// fork lets all streams come after the first, and join the first after all.
func (p *player) fork() error {
	p.events = [programTensors]*device.Event{}
	return errors.Join(p.streams[1].WaitStream(p.streams[0]), p.streams[2].WaitStream(p.streams[0]))
}

func (p *player) join() error {
	return errors.Join(p.streams[0].WaitStream(p.streams[1]), p.streams[0].WaitStream(p.streams[2]))
}

func (p *player) run(program []phase) (graphs []*device.Graph, err error) {
	for _, ph := range program {
		steps := func() error {
			for _, s := range ph.steps {
				if err := p.play(s); err != nil {
					return err
				}
			}
			return nil
		}
		if ph.replays == 0 {
			if err := steps(); err != nil {
				return graphs, err
			}
			continue
		}
		if err := p.join(); err != nil {
			return graphs, err
		}
		g, err := device.Capture(p.streams[0], func() error { return errors.Join(p.fork(), steps(), p.join()) })
		if err != nil {
			return graphs, err
		}
		graphs = append(graphs, g)
		for range ph.replays {
			if err := g.Replay(p.streams[0]); err != nil {
				return graphs, err
			}
		}
		if err := p.fork(); err != nil {
			return graphs, err
		}
	}
	return graphs, p.join()
}

// StreamPrograms runs random programs of streams, events, copies, kernels, collectives, messages and replays.
func StreamPrograms(t *testing.T, cfg Config) {
	seeds := testutil.Pick(uint64(5), 34) // times two worlds and three fabrics: 204 programs
	if cfg.long() {
		seeds = 500
	}
	for _, n := range []int{2, 3} {
		w := cfg.open(t, n)
		for seed := range seeds {
			program := streamProgram(seed, n)
			want := meaning(program, n)
			w.each(func(ctx context.Context, c *comm.Comm) error {
				if err := playAll(ctx, c, program, want[c.Rank()]); err != nil {
					return fmt.Errorf("seed %d: %w", seed, err)
				}
				return nil
			})
			if t.Failed() {
				return
			}
		}
	}
}

func playAll(ctx context.Context, c *comm.Comm, program []phase, want [][]int64) (err error) {
	p := &player{c: c, ctx: ctx}
	p.streams[0] = current(ctx, c)
	for i := 1; i < programStreams; i++ {
		if p.streams[i], err = c.Stream().Device().NewStream(device.Normal); err != nil {
			return err
		}
		defer p.streams[i].Close()
	}
	for t := range p.tensors {
		host := make([]int64, programSize)
		for i := range host {
			host[i] = initial(c.Rank(), t, i)
		}
		if p.tensors[t], err = tensor.Of(host).To(ctx, c.Stream().Device()); err != nil {
			return err
		}
	}
	if err := p.fork(); err != nil {
		return err
	}
	graphs, err := p.run(program)
	err = errors.Join(err, p.streams[0].Synchronize(ctx))
	for _, g := range graphs {
		err = errors.Join(err, g.Close())
	}
	for t := range p.tensors {
		if err != nil {
			return err
		}
		got := make([]int64, programSize)
		if err = tensor.Copy(ctx, tensor.Of(got), p.tensors[t]); err == nil && !slices.Equal(got, want[t]) {
			err = fmt.Errorf("tensor %d begins with %v, want %v", t, got[:4], want[t][:4])
		}
	}
	return err
}
