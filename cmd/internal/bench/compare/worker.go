package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chorus-comms/chorus/cmd/internal/bench"
	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/internal/sys"
	"github.com/chorus-comms/chorus/store"
)

// worker is a rank of ours: it speaks drivers/worker.h's protocol, and its command names the memory and
// the dtype, too. The rounds are package bench's.
type worker struct {
	ctx     context.Context
	c       *comm.Comm
	runners map[buffers]*bench.Runner
}

// buffers is what a runner is kept for.
type buffers struct {
	op, memory, dtype string
	bytes             int
	refill            bool
}

const ourTimeout = 30 * time.Second

// serveOurs is the main function of a rank: it returns when the harness closes the socket.
// With bind it's tied to a core, as mpirun ties its ranks.
func serveOurs(ctx context.Context, socket, storeFile string, rank, size int, fabric string, bind bool) error {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return err
	}
	defer conn.Close()
	st, err := store.OpenFile(ctx, storeFile, store.FileOptions{})
	if err != nil {
		return err
	}
	c, err := comm.New(ctx, comm.WithRank(rank, size), comm.WithStore(st), comm.WithFabric(fabric),
		comm.WithTimeout(ourTimeout))
	if err != nil {
		return err
	}
	defer c.Finalize(ctx)
	if bind {
		if err := bindTo(rank); err != nil {
			return err
		}
	}
	w := &worker{ctx: ctx, c: c, runners: map[buffers]*bench.Runner{}}
	return w.serve(conn, rank)
}

// bindTo ties all threads of this process, and those that they'll start, to one of the cores that it may use. It's
// done after the start, so that the process knows how many cores there are.
func bindTo(rank int) error {
	cores, err := sys.AllowedCPUs()
	if err != nil {
		return err
	}
	tasks, err := os.ReadDir("/proc/self/task")
	for _, t := range tasks {
		id, e := strconv.Atoi(t.Name())
		if e == nil {
			e = sys.PinThread(id, sys.CPUSet{cores[rank%len(cores)]})
		}
		if e != nil && !errors.Is(e, unix.ESRCH) { // a thread that has ended
			err = errors.Join(err, e)
		}
	}
	return err
}

func (w *worker) serve(conn io.ReadWriter, rank int) error {
	out := json.NewEncoder(conn)
	if err := out.Encode(greeting{Rank: rank, PID: os.Getpid()}); err != nil {
		return err
	}
	lines := bufio.NewScanner(conn)
	for lines.Scan() {
		a, err := w.obey(lines.Text())
		if err != nil {
			a = answer{Error: err.Error()}
		}
		if err := out.Encode(a); err != nil {
			return err
		}
	}
	w.drop()
	return nil
}

func (w *worker) obey(line string) (answer, error) {
	verb, rest, _ := strings.Cut(line, " ")
	switch verb {
	case "run":
		return w.run(rest)
	case "allocs":
		return w.allocs(rest)
	case "drop":
		w.drop()
		return answer{}, nil
	}
	return answer{}, fmt.Errorf("not a command: %q", line)
}

func (w *worker) drop() {
	for g, r := range w.runners {
		r.Free()
		delete(w.runners, g)
	}
}

func (w *worker) run(args string) (answer, error) {
	var b buffers
	var inPlace, refill, check int
	var s schedule
	if _, err := fmt.Sscan(args, &b.op, &b.bytes, &inPlace, &refill, &s.warmup, &s.blocks, &s.perBlock, &check, &b.memory,
		&b.dtype); err != nil {
		return answer{}, err
	}
	b.refill = refill == 1
	r, err := w.runner(b)
	if err != nil {
		return answer{}, err
	}
	row, err := r.Row(b.bytes, inPlace == 1, s.warmup, s.blocks*s.perBlock)
	if err != nil {
		return answer{}, err
	}
	a := answer{US: []float64{row.MedianUS}, Wrong: row.Errors, Algorithm: row.Algorithm}
	if row.Limit > 0 {
		a.LimitUS = float64(b.bytes) / row.Limit / 1e3
	}
	if w.c.Rank() != 0 {
		a.Wrong = 0 // the row counts all ranks'
	}
	return a, nil
}

// runner returns the runner of a config. Buffers are kept for a size until another is asked for.
func (w *worker) runner(b buffers) (*bench.Runner, error) {
	if r, ok := w.runners[b]; ok {
		return r, nil
	}
	for old := range w.runners {
		if old.bytes != b.bytes {
			w.drop()
			break
		}
	}
	dt, err := dtype.Parse(b.dtype)
	if err != nil {
		return nil, err
	}
	// How many rounds run is said with each row; the time is that of the limit.
	r, err := bench.NewRunner(w.ctx, w.c, bench.Config{Operation: b.op, Min: b.bytes, Max: b.bytes, DType: dt,
		Memory: bench.MemoryKind(b.memory), Refill: b.refill, Time: 8 * time.Millisecond})
	if err == nil {
		w.runners[b] = r
	}
	return r, err
}

// allocs counts the allocations of an operation in the manner of a benchmark's allocs/op.
func (w *worker) allocs(op string) (answer, error) {
	const count, runs = 256, 500
	a, err := w.c.Zeros(dtype.Float32, count)
	if err != nil {
		return answer{}, err
	}
	defer a.Free()
	b, err := w.c.Zeros(dtype.Float32, count/w.c.Size())
	if err != nil {
		return answer{}, err
	}
	defer b.Free()
	d, err := w.c.Zeros(dtype.Float32, count)
	if err != nil {
		return answer{}, err
	}
	defer d.Free()
	var call func() error
	switch op {
	case "all_reduce":
		call = func() error { return w.c.AllReduce(w.ctx, a, comm.Sum) }
	case "broadcast":
		call = func() error { return w.c.Broadcast(w.ctx, a, 0) }
	case "all_gather":
		call = func() error { return w.c.AllGatherSingle(w.ctx, a, b) }
	case "reduce_scatter":
		call = func() error { return w.c.ReduceScatterSingle(w.ctx, b, a, comm.Sum) }
	case "all_to_all":
		call = func() error { return w.c.AllToAllSingle(w.ctx, d, a) }
	case "barrier":
		call = func() error { return w.c.Barrier(w.ctx) }
	default:
		return answer{}, fmt.Errorf("no operation %q", op)
	}
	var failed error
	n := testing.AllocsPerRun(runs, func() {
		if failed == nil {
			failed = call()
		}
	})
	return answer{Allocs: n, US: []float64{0}}, failed
}
