package kernel

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/internal/testutil"
)

// torchTimer runs statements of lines, and writes how many nanoseconds each took, and how many of the processor's. A
// line that begins with ! isn't timed.
const torchTimer = `
import sys, time, torch
import torch.nn.functional as F
torch.set_num_threads(%d)
names = {"torch": torch, "F": F}
codes = {}
for line in sys.stdin:
    line = line.rstrip("\n")
    if line.startswith("!"):
        exec(line[1:], names)
        print(0, 0, flush=True)
        continue
    if line not in codes: codes[line] = compile(line, line, "exec")
    code = codes[line]
    start, cpu = time.perf_counter_ns(), time.process_time_ns()
    exec(code, names)
    print(time.perf_counter_ns() - start, time.process_time_ns() - cpu, flush=True)
`

// timer is a process of PyTorch that times statements.
type timer struct {
	in  io.WriteCloser
	out *bufio.Reader
}

func newTimer(b *testing.B) *timer {
	cmd := testutil.PythonCommand(b, fmt.Sprintf(torchTimer, runtime.NumCPU()))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	must(b, err)
	out, err := cmd.StdoutPipe()
	must(b, err)
	must(b, cmd.Start())
	b.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	return &timer{in, bufio.NewReader(out)}
}

func (t *timer) run(b *testing.B, line string) (wall, cpu time.Duration) {
	if _, err := fmt.Fprintln(t.in, line); err != nil {
		b.Fatal(err)
	}
	text, err := t.out.ReadString('\n')
	must(b, err)
	if _, err := fmt.Sscan(text, &wall, &cpu); err != nil {
		b.Fatalf("%q: %v", text, err)
	}
	return wall, cpu
}

// used is the processor's time of this process.
func used(b *testing.B) time.Duration {
	var u unix.Rusage
	must(b, unix.Getrusage(unix.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

const fiveOperations = `template <typename T> T chain(T a, T b) { return tanh((a * b + a) * b - a); }`

// BenchmarkTorch runs kernels and PyTorch's on the processor by turns, with as many threads. Its metrics are ratio,
// median-ratio and cpu-ratio: PyTorch's time by the kernel's, of the best run, of the median run, and of the
// processor's time. GB/s are of the memory that must be read and written.
//
//	CHORUS_OPENCL_LIBRARY=... go test -run - -bench Torch -benchtime 30x ./kernel
func BenchmarkTorch(b *testing.B) {
	c := openCL(b)
	timer := newTimer(b)
	ctx := context.Background()
	const most = 1 << 24
	place := map[string]Operand{}
	r := make([]byte, 4*most)
	for k, name := range []string{"a", "b", "c", "o"} {
		at, err := c.dev.Malloc(len(r))
		must(b, err)
		b.Cleanup(func() { must(b, c.dev.Free(at)) })
		for i := range most {
			x := float32((i*(7919+2*k)+k*31)%257-128) / 64
			putFloat(r[4*i:], x)
		}
		must(b, c.stream.CopyIn(ctx, at, r))
		place[name] = Operand{Ptr: at, Type: dtype.Float32}
		timer.run(b, fmt.Sprintf("!%s = ((torch.arange(%d) * %d + %d) %% 257 - 128).float() / 64", name, most, 7919+2*k,
			k*31))
	}
	scratch, err := c.dev.Malloc(1 << 24)
	must(b, err)
	b.Cleanup(func() { must(b, c.dev.Free(scratch)) })
	view := func(name string, sizes ...int) Operand { return viewed(place[name], sizes...) }
	type bench struct {
		name, setup, line string
		bytes             int
		add               func(p *Plan) error
	}
	var all []bench
	for _, n := range []int{1 << 20, 1 << 22, 1 << 24} {
		name := fmt.Sprintf("%dMi", n>>20)
		rows := n >> 10
		setup := fmt.Sprintf("n = %d; x, y, r = a[:n], b[:n], o[:n]; X, Y, R = (t.view(-1, 1024) for t in (x, y, r))", n)
		elementwise := func(op string, ins int, numbers ...*Number) func(p *Plan) error {
			return func(p *Plan) error {
				return p.Elementwise(op, dtype.Float32, []Operand{view("o", n)}, []Operand{view("a", n), view("b", n),
					view("c", n)}[:ins], numbers...)
			}
		}
		reduce := func(op string, dims ...int) func(p *Plan) error {
			return func(p *Plan) error {
				out := view("o", rows, 1)
				switch {
				case len(dims) == 0:
					out = view("o", 1, 1)
				case dims[0] == 0:
					out = view("o", 1, 1024)
				}
				return p.Reduce(op, dtype.Float32, []Operand{out}, view("a", rows, 1024), dims)
			}
		}
		all = append(all,
			bench{"add/" + name, setup, "torch.add(x, y, out=r)", 12 * n, elementwise("add", 2, Int(1))},
			bench{"mul_scalar/" + name, setup, "torch.mul(x, 1.5, out=r)", 8 * n, func(p *Plan) error {
				return p.Elementwise("mul", dtype.Float32, []Operand{view("o", n)},
					[]Operand{view("a", n), {Type: dtype.Float32, Value: Float(1.5)}})
			}},
			bench{"exp/" + name, setup, "torch.exp(x, out=r)", 8 * n, elementwise("exp", 1)},
			bench{"gelu/" + name, setup, "torch._C._nn.gelu(x, out=r)", 8 * n, elementwise("gelu", 1)},
			bench{"add_broadcast/" + name, setup, "torch.add(X, Y[:1], out=R)", 8 * n, func(p *Plan) error {
				return p.Elementwise("add", dtype.Float32, []Operand{view("o", rows, 1024)},
					[]Operand{view("a", rows, 1024), view("b", 1024)}, Int(1))
			}},
			bench{"copy_transposed/" + name, setup, "R.view(1024, -1).copy_(X.T)", 8 * n, func(p *Plan) error {
				in := view("a", 1024, rows)
				in.Strides = []int{1, 1024}
				return p.Copy(view("o", 1024, rows), in)
			}},
			bench{"chain_of_5/" + name, setup, "torch.tanh((x * y + x) * y - x)", 12 * n, elementwise(fiveOperations, 2)},
			bench{"sum/" + name, setup, "x.sum()", 4 * n, reduce("sum")},
			bench{"amax/" + name, setup, "x.amax()", 4 * n, reduce("amax")},
			bench{"sum_rows/" + name, setup, "X.sum(1)", 4 * n, reduce("sum", 1)},
			bench{"sum_columns/" + name, setup, "X.sum(0)", 4 * n, reduce("sum", 0)},
			bench{"var_rows/" + name, setup, "X.var(1)", 4 * n, func(p *Plan) error {
				return p.Reduce("var", dtype.Float32, []Operand{view("o", rows, 1)}, view("a", rows, 1024), []int{1}, Int(1))
			}},
			bench{"sum_rows_of_64/" + name, setup, "x.view(-1, 64).sum(1)", 4 * n, func(p *Plan) error {
				return p.Reduce("sum", dtype.Float32, []Operand{view("o", n/64, 1)}, view("a", n/64, 64), []int{1})
			}},
			bench{"softmax_of_64/" + name, setup, "torch.softmax(x.view(-1, 64), 1)", 8 * n, func(p *Plan) error {
				return p.Softmax("softmax", view("o", n/64, 64), view("a", n/64, 64), 1)
			}},
			bench{"layer_norm_of_64/" + name, setup, "F.layer_norm(x.view(-1, 64), (64,), b[:64], c[:64])", 8 * n,
				func(p *Plan) error {
					return p.Normalize("layer_norm", view("o", n/64, 64), view("a", n/64, 64),
						&Norm{Weight: view("b", 64), Bias: view("c", 64)}, 1e-5)
				}},
			bench{"softmax/" + name, setup, "torch.softmax(X, 1)", 8 * n, func(p *Plan) error {
				return p.Softmax("softmax", view("o", rows, 1024), view("a", rows, 1024), 1)
			}},
			bench{"layer_norm/" + name, setup, "F.layer_norm(X, (1024,), b[:1024], c[:1024])", 8 * n, func(p *Plan) error {
				return p.Normalize("layer_norm", view("o", rows, 1024), view("a", rows, 1024),
					&Norm{Weight: view("b", 1024), Bias: view("c", 1024)}, 1e-5)
			}})
	}
	all = append(all, bench{"matmul/1024", "X, Y, R = (t[:1 << 20].view(1024, 1024) for t in (a, b, o))",
		"torch.mm(X, Y, out=R)", 12 << 20, func(p *Plan) error {
			return p.Matmul(view("o", 1024, 1024), view("a", 1024, 1024), view("b", 1024, 1024), Operand{}, Int(1), Int(1), "")
		}})
	for _, x := range all {
		b.Run(x.name, func(b *testing.B) {
			p := Plan{Scratch: func(n int) (device.Ptr, error) { return scratch, nil }, Cores: c.loader.Cores()}
			must(b, x.add(&p))
			timer.run(b, "!"+x.setup)
			var ours, theirs, ourCPU, theirCPU []time.Duration
			for k := range b.N + 2 {
				start, cpu := time.Now(), used(b)
				must(b, c.loader.Run(c.stream, p.Calls))
				must(b, c.stream.Synchronize(ctx))
				mine, mineCPU := time.Since(start), used(b)-cpu
				other, otherCPU := timer.run(b, x.line)
				if k > 1 { // compiled, and in the caches
					ours, theirs = append(ours, mine), append(theirs, other)
					ourCPU, theirCPU = append(ourCPU, mineCPU), append(theirCPU, otherCPU)
				}
			}
			for _, list := range [][]time.Duration{ours, theirs, ourCPU, theirCPU} {
				slices.Sort(list)
			}
			b.ReportMetric(float64(theirs[0])/float64(ours[0]), "ratio")
			b.ReportMetric(float64(theirs[len(theirs)/2])/float64(ours[len(ours)/2]), "median-ratio")
			b.ReportMetric(float64(theirCPU[0])/float64(ourCPU[0]), "cpu-ratio")
			b.ReportMetric(float64(x.bytes)/float64(ours[0]), "GB/s")
			b.ReportMetric(float64(ours[0])/1e3, "us")
			b.ReportMetric(float64(ourCPU[0])/1e3, "cpu-us")
			b.ReportMetric(0, "ns/op")
		})
	}
}

func putFloat(b []byte, x float32) { binary.NativeEndian.PutUint32(b, math.Float32bits(x)) }
