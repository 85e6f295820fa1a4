package rng

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/internal/testutil"
)

// torchScript evaluates expressions, one a line, and writes the bytes of each tensor after their number.
const torchScript = `
import sys, torch
out = sys.stdout.buffer
for line in sys.stdin:
    if line.startswith("!"):
        exec(line[1:])
        continue
    b = eval(line).contiguous().view(-1).view(torch.uint8).numpy().tobytes()
    out.write(len(b).to_bytes(8, "little") + b)
`

// torchEval returns what PyTorch's expressions are, as bytes. Lines that start with "!" are statements.
func torchEval(t *testing.T, env []string, lines []string) [][]byte {
	t.Helper()
	cmd := testutil.PythonCommand(t, torchScript)
	cmd.Env = append(cmd.Env, env...)
	cmd.Stdin = strings.NewReader(strings.Join(lines, "\n") + "\n")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var all [][]byte
	for r := bytes.NewReader(out); r.Len() > 0; {
		var n uint64
		if err := binary.Read(r, binary.LittleEndian, &n); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, n)
		if _, err := io.ReadFull(r, b); err != nil {
			t.Fatal(err)
		}
		all = append(all, b)
	}
	return all
}

func bytesOf[T any](s []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*sizeOf[T]())
}

// step is a call to PyTorch and the same call here. Floating-point numbers may be most units in the last place apart:
// where both compute in float64, with the C library there and with package math here.
type step struct {
	torch string
	fill  func(g Generator) ([]byte, error)
	ulps  func(a, b []byte) (worst uint64)
	most  uint64
}

func ulps[T float32 | float64 | dtype.F16 | dtype.BF16](a, b []byte) (worst uint64) {
	x := unsafe.Slice((*T)(unsafe.Pointer(&a[0])), len(a)/sizeOf[T]())
	y := unsafe.Slice((*T)(unsafe.Pointer(&b[0])), len(b)/sizeOf[T]())
	order := func(v T) int64 {
		switch v := any(v).(type) {
		case float32:
			if i := int64(math.Float32bits(v)); i < 1<<31 {
				return i
			} else {
				return 1<<31 - i
			}
		case float64:
			i := int64(math.Float64bits(v))
			if i < 0 {
				return math.MinInt64 - i
			}
			return i
		case dtype.F16:
			return int64(v)
		case dtype.BF16:
			return int64(v)
		}
		return 0
	}
	for i := range x {
		d := order(x[i]) - order(y[i])
		worst = max(worst, uint64(max(d, -d)))
	}
	return worst
}

func torchName[T any]() string {
	switch any(*new(T)).(type) {
	case bool:
		return "torch.bool"
	case dtype.F16:
		return "torch.float16"
	case dtype.BF16:
		return "torch.bfloat16"
	}
	return fmt.Sprintf("torch.%T", *new(T))
}

func within(s step, most uint64) step { s.most = most; return s }

func floatStep[T Float](call string, n int, fill func(g Generator, dst []T) error) step {
	return step{
		torch: fmt.Sprintf("torch.empty(%d, dtype=%s).%s", n, torchName[T](), call),
		fill: func(g Generator) ([]byte, error) {
			dst := make([]T, n)
			err := fill(g, dst)
			return bytesOf(dst), err
		},
		ulps: ulps[T],
	}
}

func numberStep[T Number](call string, n int, fill func(g Generator, dst []T) error) step {
	return step{
		torch: fmt.Sprintf("torch.empty(%d, dtype=%s).%s", n, torchName[T](), call),
		fill: func(g Generator) ([]byte, error) {
			dst := make([]T, n)
			err := fill(g, dst)
			return bytesOf(dst), err
		},
	}
}

func floatSteps[T Float]() []step {
	double := uint64(0)
	if isFloat64[T]() {
		double = 4
	}
	var s []step
	for _, n := range []int{1, 5, 15, 16, 17, 31, 32, 700, 20_001} {
		s = append(s,
			floatStep("uniform_()", n, func(g Generator, d []T) error { return Uniform(g, d, 0, 1) }),
			floatStep("uniform_(-3.3, 7.7)", n, func(g Generator, d []T) error { return Uniform(g, d, -3.3, 7.7) }),
			within(floatStep("normal_()", n, func(g Generator, d []T) error { return Normal(g, d, 0, 1) }), double),
			within(floatStep("normal_(1.5, 0.3)", n, func(g Generator, d []T) error { return Normal(g, d, 1.5, 0.3) }),
				1000*double),
			within(floatStep("exponential_(1.7)", n, func(g Generator, d []T) error { return Exponential(g, d, 1.7) }), double),
			within(floatStep("cauchy_(0.5, 2)", n, func(g Generator, d []T) error { return Cauchy(g, d, 0.5, 2) }),
				1<<20*double),
			within(floatStep("log_normal_(0.5, 0.25)", n, func(g Generator, d []T) error { return LogNormal(g, d, 0.5, 0.25) }),
				double),
		)
	}
	return s
}

func numberSteps[T Number]() []step {
	var s []step
	for _, n := range []int{1, 10, 1000, 9_999} {
		s = append(s,
			numberStep("bernoulli_(0.3)", n, func(g Generator, d []T) error { return Bernoulli(g, d, 0.3) }),
			numberStep("random_()", n, func(g Generator, d []T) error { return Random(g, d) }),
			numberStep("random_(1, 2)", n, func(g Generator, d []T) error { return Integers(g, d, 1, 2) }),
		)
		if torchName[T]() != "torch.bool" {
			s = append(s, numberStep("random_(3, 100)", n, func(g Generator, d []T) error { return Integers(g, d, 3, 100) }),
				numberStep("geometric_(0.2)", n, func(g Generator, d []T) error { return Geometric(g, d, 0.2) }))
		}
		s = append(s, step{
			torch: fmt.Sprintf("torch.empty(%d, dtype=%s).bernoulli_(torch.linspace(0, 1, %[1]d, dtype=torch.float64))", n,
				torchName[T]()),
			fill: func(g Generator) ([]byte, error) {
				dst := make([]T, n)
				err := BernoulliEach(g, dst, linspace(n))
				return bytesOf(dst), err
			},
		})
	}
	return s
}

// linspace is torch.linspace(0, 1, n) in float64: counted from both ends.
func linspace(n int) []float64 {
	p := make([]float64, n)
	h := 1 / float64(max(1, n-1))
	for i := range p {
		if i < n/2 {
			p[i] = h * float64(i)
		} else {
			p[i] = 1 - h*float64(n-i-1)
		}
	}
	if n == 1 {
		p[0] = 0
	}
	return p
}

// TestTorchCPU draws one long sequence, which mixes all distributions, with PyTorch and with a CPU generator, for each
// build that PyTorch can be made to act as here.
func TestTorchCPU(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("the builds that are compared are those of x86")
	}
	var steps []step
	steps = append(steps, floatSteps[float32]()...)
	steps = append(steps, floatSteps[dtype.F16]()...)
	steps = append(steps, floatSteps[float64]()...)
	steps = append(steps, floatSteps[dtype.BF16]()...)
	steps = append(steps, numberSteps[bool]()...)
	steps = append(steps, numberSteps[uint8]()...)
	steps = append(steps, numberSteps[int8]()...)
	steps = append(steps, numberSteps[int16]()...)
	steps = append(steps, numberSteps[int32]()...)
	steps = append(steps, numberSteps[int64]()...)
	steps = append(steps, numberSteps[float32]()...)
	steps = append(steps, numberSteps[float64]()...)
	steps = append(steps, numberSteps[dtype.F16]()...)
	steps = append(steps, numberSteps[dtype.BF16]()...)
	for _, span := range []int64{1<<28 - 1, 1 << 28, 1<<40 + 12345, 1<<63 - 1} {
		steps = append(steps, numberStep(fmt.Sprintf("random_(-5, %d)", span-5), 1000,
			func(g Generator, d []int64) error { return Integers(g, d, -5, span-5) }))
	}
	steps = append(steps, numberStep("random_(-1 << 63, None)", 1000,
		func(g Generator, d []int64) error { return Between(g, d, math.MinInt64, math.MaxInt64) }))
	steps = append(steps, numberStep("random_(5, None)", 1000,
		func(g Generator, d []int64) error { return Between(g, d, 5, math.MaxInt64) }))
	for _, n := range []int{0, 1, 2, 10, 30_000} {
		steps = append(steps, step{torch: fmt.Sprintf("torch.randperm(%d)", n), fill: func(g Generator) ([]byte, error) {
			dst := make([]int64, n)
			err := Permutation(g.(*CPU), dst)
			return bytesOf(dst), err
		}})
	}
	for _, n := range []int{3, 40} { // not contiguous: one by one
		steps = append(steps, step{torch: fmt.Sprintf("torch.empty(%d, 2)[:, 0].normal_()", n),
			fill: func(g Generator) ([]byte, error) {
				dst := make([]float32, n)
				for i := range dst {
					if err := Normal(g, dst[i:i+1], 0, 1); err != nil {
						return nil, err
					}
				}
				return bytesOf(dst), nil
			}})
	}
	for _, n := range []int{10, 1000} {
		steps = append(steps, step{torch: fmt.Sprintf("torch.bernoulli(torch.linspace(0, 1, %d).half().float())", n),
			fill: func(g Generator) ([]byte, error) {
				dst, p := make([]float32, n), make([]dtype.F16, n)
				for i := range p {
					p[i] = dtype.F16FromFloat64(float64(i) / float64(n-1))
				}
				err := BernoulliEach(g, dst, p)
				return bytesOf(dst), err
			}})
	}
	for _, test := range []struct {
		capability string // empty: the best of this processor
		build      Build
	}{{"", AVX2}, {"avx2", AVX2}, {"default", Baseline}} {
		t.Run("capability "+test.capability, func(t *testing.T) {
			var env []string
			if test.capability != "" {
				env = []string{"ATEN_CPU_CAPABILITY=" + test.capability}
			}
			compareTorch(t, env, test.build, steps)
		})
	}
}

func compareTorch(t *testing.T, env []string, b Build, steps []step) {
	seeds := []uint64{0, 42, DefaultSeed, math.MaxUint64}
	var lines []string
	for _, seed := range seeds {
		lines = append(lines, fmt.Sprintf("!torch.manual_seed(%d)", seed))
		for _, s := range steps {
			lines = append(lines, s.torch, "torch.get_rng_state()")
		}
	}
	results := torchEval(t, env, lines)
	if len(results) != 2*len(steps)*len(seeds) {
		t.Fatalf("%d results of %d steps", len(results), len(steps))
	}
	for k, seed := range seeds {
		g := NewCPUFor(seed, b)
		for i, s := range steps {
			at := 2 * (k*len(steps) + i)
			compareStep(t, g, s, results[at], results[at+1])
		}
	}
}

func compareStep(t *testing.T, g *CPU, s step, want, wantState []byte) {
	t.Helper()
	got, err := s.fill(g)
	if err != nil {
		t.Fatalf("%s: %v", s.torch, err)
	}
	if !bytes.Equal(got, want) {
		if s.ulps == nil || len(got) != len(want) {
			t.Errorf("%s differs", s.torch)
		} else if worst := s.ulps(got, want); worst > s.most {
			t.Errorf("%s: up to %d units in the last place apart, want %d", s.torch, worst, s.most)
		}
	}
	state, err := g.State()
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Equal(state, wantState) {
		return
	}
	// The cached normal is a float64, whose last bits may differ; everything else is exact.
	if d := ulps[float64](state[stateY:stateY+8], wantState[stateY:stateY+8]); d > 4 {
		t.Fatalf("after %s the cached normals are %d units in the last place apart", s.torch, d)
	}
	copy(state[stateY:stateY+8], wantState[stateY:])
	if !bytes.Equal(state, wantState) {
		t.Fatalf("after %s the states differ", s.torch)
	}
}

// TestTorchState restores a state of ours in PyTorch, and one of PyTorch's here.
func TestTorchState(t *testing.T) {
	g := NewCPU(7)
	x := make([]float32, 1003)
	for _, n := range []int{1003, 5, 700} {
		if err := Normal(g, x[:n], 0, 1); err != nil {
			t.Fatal(err)
		}
	}
	state, _ := g.State()
	results := torchEval(t, nil, []string{
		fmt.Sprintf("!torch.set_rng_state(torch.tensor(list(bytes.fromhex('%x')), dtype=torch.uint8))", state),
		"torch.get_rng_state()", "torch.randn(3, dtype=torch.float32)", "torch.get_rng_state()", "torch.rand(2000)"})
	if !bytes.Equal(results[0], state) {
		t.Error("PyTorch gives another state back")
	}
	if err := Normal(g, x[:3], 0, 1); err != nil || !bytes.Equal(bytesOf(x[:3]), results[1]) {
		t.Errorf("%v: %v differs", err, x[:3])
	}
	h := NewCPU(0)
	if err := h.SetState(results[2]); err != nil {
		t.Fatal(err)
	}
	y := make([]float32, 2000)
	if err := Uniform(h, y, 0, 1); err != nil || !bytes.Equal(bytesOf(y), results[3]) {
		t.Errorf("%v: after SetState other numbers", err)
	}
}
