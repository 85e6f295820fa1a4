package gloo_test

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/internal/pytest"
	"github.com/chorus-comms/chorus/store"
	"github.com/chorus-comms/chorus/tensor"
)

//go:embed testdata/peer.py
var peerScript string

// step is one operation that ranks of both kinds run, on inputs that both know.
type step struct {
	Kind  string `json:"kind"`
	Op    string `json:"op"`
	DType string `json:"dtype"`
	Count int    `json:"count"`
	Root  int    `json:"root"`
	Ranks []int  `json:"ranks"`
}

var reductions = map[string]comm.Reduction{"sum": comm.Sum, "product": comm.Product, "min": comm.Min, "max": comm.Max,
	"band": comm.BAnd, "bor": comm.BOr, "bxor": comm.BXor, "avg": comm.Avg}

func parse(name string) dtype.DType {
	for _, dt := range dtype.All() {
		if dt.String() == name {
			return dt
		}
	}
	panic("no dtype " + name)
}

// values are the first elements of a rank's input.
func values(dt dtype.DType, rank, count int) *tensor.Tensor {
	v := make([]float64, count)
	for i := range v {
		k := (i*7919 + rank*104729) % 251
		switch dt {
		case dtype.Float32, dtype.Float64:
			if v[i] = float64(k-125) / 997; i%29 == 5*rank+3 {
				v[i] = math.NaN()
			}
		case dtype.Float16, dtype.BFloat16:
			v[i] = float64((k%120+8)*(1-2*(k%2))) / 16
		case dtype.Bool:
			v[i] = float64(min(1, k%3))
		case dtype.Uint8:
			v[i] = float64(k)
		case dtype.Int64:
			v[i] = float64((k - 125) * 400)
		default:
			v[i] = float64(k - 125)
		}
	}
	t := tensor.Must(tensor.Empty(dt, count))
	if err := t.CopyFrom(tensor.Of(v)); err != nil {
		panic(err)
	}
	return t
}

func split(count, sender, receiver int) int { return count * (sender + 2*receiver + 1) / 16 }

// run carries a step out on a rank in Go, and returns what it got.
func (s step) run(ctx context.Context, c *comm.Comm) (outs []*tensor.Tensor, err error) {
	n, me, root, dt := c.Size(), c.Rank(), s.Root%c.Size(), parse(s.DType)
	red := reductions[s.Op]
	empty := func(k int) *tensor.Tensor {
		outs = append(outs, tensor.Must(tensor.Empty(dt, k)))
		return outs[len(outs)-1]
	}
	list := func() []*tensor.Tensor {
		for range n {
			empty(s.Count)
		}
		return outs
	}
	x := values(dt, me, s.Count)
	cut := func(t *tensor.Tensor) (parts []*tensor.Tensor) {
		for r := range n {
			parts = append(parts, tensor.Must(t.Narrow(0, r*s.Count, s.Count)))
		}
		return parts
	}
	switch s.Kind {
	case "all_reduce":
		return []*tensor.Tensor{x}, c.AllReduce(ctx, x, red)
	case "reduce":
		err = c.Reduce(ctx, x, root, red)
		if me == root {
			outs = []*tensor.Tensor{x}
		}
		return outs, err
	case "broadcast":
		return []*tensor.Tensor{x}, c.Broadcast(ctx, x, root)
	case "all_gather":
		return outs, c.AllGather(ctx, list(), x)
	case "all_gather_single":
		return outs, c.AllGatherSingle(ctx, empty(n*s.Count), x)
	case "reduce_scatter_single":
		return outs, c.ReduceScatterSingle(ctx, empty(s.Count), values(dt, me, n*s.Count), red)
	case "reduce_scatter":
		return outs, c.ReduceScatter(ctx, empty(s.Count), cut(values(dt, me, n*s.Count)), red)
	case "all_to_all_single":
		return outs, c.AllToAllSingle(ctx, empty(n*s.Count), values(dt, me, n*s.Count))
	case "all_to_all":
		return outs, c.AllToAll(ctx, list(), cut(values(dt, me, n*s.Count)))
	case "all_to_all_v_single":
		sent, got, sending, getting := make([]int, n), make([]int, n), 0, 0
		for r := range n {
			sent[r], got[r] = split(s.Count, me, r), split(s.Count, r, me)
			sending, getting = sending+sent[r], getting+got[r]
		}
		return outs, c.AllToAllVSingle(ctx, empty(getting), values(dt, me, sending), got, sent)
	case "gather":
		if me == root {
			list()
		}
		return outs, c.Gather(ctx, outs, x, root)
	case "scatter":
		var in []*tensor.Tensor
		if me == root {
			in = cut(values(dt, me, n*s.Count))
		}
		return outs, c.Scatter(ctx, empty(s.Count), in, root)
	case "barrier":
		return nil, c.Barrier(ctx)
	case "ring":
		var w comm.Work
		if err := c.Send(ctx, x, (me+1)%n, comm.Tag(7), comm.Async(&w)); err != nil {
			return nil, err
		}
		return outs, errors.Join(c.Recv(ctx, empty(s.Count), (me+n-1)%n, comm.Tag(7)), w.Wait(ctx))
	case "any":
		if me != root {
			return nil, c.Send(ctx, x, root, comm.Tag(root))
		}
		from := make([]*tensor.Tensor, n)
		for range n - 1 {
			t, who := tensor.Must(tensor.Empty(dt, s.Count)), -1
			if err := c.Recv(ctx, t, comm.AnySource, comm.Tag(root), comm.From(&who)); err != nil {
				return nil, err
			}
			from[who] = t
		}
		for _, t := range from {
			if t != nil {
				outs = append(outs, t)
			}
		}
		return outs, nil
	}
	return nil, fmt.Errorf("no such kind: %s", s.Kind)
}

// play runs the steps on a rank in Go, and returns the bytes of all that it got.
func play(ctx context.Context, world *comm.Comm, steps []step) (all []byte, err error) {
	group := world
	for _, s := range steps {
		if s.Kind == "new_group" {
			if group != world && group != nil {
				group.Finalize(ctx)
			}
			if group = world; s.Ranks != nil {
				mine := s.Ranks
				if !member(mine, world.Rank()) {
					mine = nil
				}
				if group, err = world.Split(ctx, mine); err != nil {
					return nil, fmt.Errorf("%+v: %w", s, err)
				}
			}
			continue
		}
		if group == nil {
			continue
		}
		outs, err := s.run(ctx, group)
		if err != nil {
			return nil, fmt.Errorf("%+v: %w", s, err)
		}
		for _, t := range outs {
			b, err := t.Bytes()
			if err != nil {
				return nil, err
			}
			all = append(all, b...)
		}
	}
	return all, nil
}

func member(ranks []int, r int) bool {
	for _, m := range ranks {
		if m == r {
			return true
		}
	}
	return false
}

// A job is a job of PyTorch's and Go's ranks: ranks says of each which it is, "p" or "g".
type job struct {
	t     *testing.T
	ranks string
	dir   string
	addr  string
	peers []func() (string, error) // by rank; wait for one of PyTorch's
	kill  []func()
}

// start starts the store of a job, and PyTorch's ranks with a script.
func start(t *testing.T, ranks, script string, steps []step, env ...string) *job {
	t.Helper()
	s, err := store.ListenTCP("127.0.0.1:0", store.ServerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	list, err := json.Marshal(steps)
	if err != nil {
		t.Fatal(err)
	}
	j := &job{t: t, ranks: ranks, dir: t.TempDir(), addr: s.Addr().String(),
		peers: make([]func() (string, error), len(ranks)), kill: make([]func(), len(ranks))}
	if err := os.WriteFile(filepath.Join(j.dir, "cases.json"), list, 0o644); err != nil {
		t.Fatal(err)
	}
	for r, kind := range ranks {
		if kind != 'p' {
			continue
		}
		cmd := pytest.Command(t, script, j.dir)
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		cmd.Env = append(cmd.Env, "TORCHELASTIC_USE_AGENT_STORE=True", "GLOO_SOCKET_IFNAME=lo",
			"MASTER_ADDR=127.0.0.1", fmt.Sprint("MASTER_PORT=", s.Port()),
			fmt.Sprint("RANK=", r), fmt.Sprint("WORLD_SIZE=", len(ranks)))
		cmd.Env = append(cmd.Env, env...)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		j.kill[r] = func() { cmd.Process.Kill() }
		j.peers[r] = sync.OnceValues(func() (string, error) {
			err := cmd.Wait()
			return out.String(), err
		})
		t.Cleanup(func() { cmd.Process.Kill(); j.peers[r]() })
	}
	return j
}

// join makes a rank in Go.
func (j *job) join(ctx context.Context, rank int, opts ...comm.NewOption) (*comm.Comm, error) {
	st, err := store.DialTCP(ctx, j.addr, store.TCPOptions{})
	if err != nil {
		return nil, err
	}
	j.t.Cleanup(func() { st.Close() })
	return comm.New(ctx, append([]comm.NewOption{comm.WithBackend("gloo"), comm.WithRank(rank, len(j.ranks)),
		comm.WithStore(st), comm.WithTimeout(60 * time.Second)}, opts...)...)
}

// end kills PyTorch's ranks.
func (j *job) end() {
	for _, kill := range j.kill {
		if kill != nil {
			kill()
		}
	}
}

// each runs f on all ranks in Go, and returns when all ranks have ended.
func (j *job) each(f func(ctx context.Context, c *comm.Comm) error) {
	j.t.Helper()
	var wg sync.WaitGroup
	for r, kind := range j.ranks {
		wg.Go(func() {
			if kind == 'p' {
				if out, err := j.peers[r](); err != nil {
					j.t.Errorf("PyTorch's rank %d: %v\n%s", r, err, out)
					j.end()
				}
				return
			}
			ctx, cancel := context.WithTimeout(context.Background(), 120*time.Second)
			defer cancel()
			c, err := j.join(ctx, r)
			if err == nil {
				err = errors.Join(f(ctx, c), c.Finalize(ctx))
			}
			if err != nil {
				j.t.Errorf("rank %d in Go: %v", r, err)
				j.end()
			}
		})
	}
	wg.Wait()
}

// results runs the steps on all ranks, and returns what each got.
func results(t *testing.T, ranks string, steps []step) [][]byte {
	t.Helper()
	j := start(t, ranks, peerScript, steps)
	all := make([][]byte, len(ranks))
	j.each(func(ctx context.Context, c *comm.Comm) (err error) {
		all[c.Rank()], err = play(ctx, c, steps)
		return err
	})
	for r, kind := range ranks {
		if kind == 'p' {
			all[r], _ = os.ReadFile(filepath.Join(j.dir, fmt.Sprint(r)))
		}
	}
	return all
}

// splits are all ways in which ranks are PyTorch's or Go's, both among them.
func splits(n int) (all []string) {
	for bits := 1; bits < 1<<n-1; bits++ {
		var b strings.Builder
		for r := range n {
			b.WriteByte("pg"[bits>>r&1])
		}
		all = append(all, b.String())
	}
	return all
}
