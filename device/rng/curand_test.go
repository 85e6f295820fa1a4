package rng

import (
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chorus-comms/chorus/internal/testutil"
)

// curandScript runs cuRAND's host generator, which needs no GPU: library, function, seed, offset, count, bytes of an
// element.
const curandScript = `
import ctypes, sys
lib = ctypes.CDLL(sys.argv[1])
for line in sys.stdin:
    f, seed, offset, n, size = line.split()
    g, out = ctypes.c_void_p(), ctypes.create_string_buffer(int(n) * int(size))
    extra = {"curandGenerateNormal": [ctypes.c_float(0), ctypes.c_float(1)], "curandGenerateNormalDouble": [ctypes.c_double(0), ctypes.c_double(1)]}
    for rc in [lib.curandCreateGeneratorHost(ctypes.byref(g), 161), # CURAND_RNG_PSEUDO_PHILOX4_32_10
               lib.curandSetPseudoRandomGeneratorSeed(g, ctypes.c_ulonglong(int(seed))),
               lib.curandSetGeneratorOffset(g, ctypes.c_ulonglong(int(offset))),
               getattr(lib, f)(g, out, ctypes.c_size_t(int(n)), *extra.get(f, [])),
               lib.curandDestroyGenerator(g)]:
        if rc != 0:
            sys.exit(f"{f}: cuRAND error {rc}")
    sys.stdout.buffer.write(out.raw)
`

// curandSubsequences is how many subsequences cuRAND's host generator goes round, taking a block from each.
const curandSubsequences = 1 << 16

// TestCuRAND compares with cuRAND. A GPU with as many threads as cuRAND's host generator has subsequences draws the
// same numbers, in an order of its own.
func TestCuRAND(t *testing.T) {
	const n = 3*4*curandSubsequences - 1001
	libs, _ := filepath.Glob(filepath.Join(testutil.ModuleRoot(t), ".venv/lib/python3*/site-packages/nvidia/*/lib/libcurand.so*"))
	if testutil.Python(t); len(libs) == 0 {
		t.Skip("left out: PyTorch came without cuRAND")
	}
	gpu := GPU{Multiprocessors: curandSubsequences / 2048, ThreadsPerMultiprocessor: 2048}
	seeds := []uint64{0, 42, 0x123456789abcdef0}
	var in strings.Builder
	for _, seed := range seeds {
		for _, f := range []struct {
			name string
			size int
		}{{"curandGenerateUniform", 4}, {"curandGenerateUniformDouble", 8}, {"curandGenerateNormal", 4},
			{"curandGenerateNormalDouble", 8}} {
			fmt.Fprintln(&in, f.name, seed, 0, 3*4*curandSubsequences, f.size)
		}
	}
	cmd := testutil.PythonCommand(t, curandScript, libs[0])
	cmd.Stdin, cmd.Stderr = strings.NewReader(in.String()), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	next := func(size int) (b []byte) {
		b, out = out[:size*3*4*curandSubsequences], out[size*3*4*curandSubsequences:]
		return b
	}
	for _, seed := range seeds {
		single := make([]float32, n)
		double := make([]float64, n)
		for _, dist := range []struct {
			name         string
			f32, f64     func() error
			tol32, tol64 float64 // the host rounds the angle twice, the device once
		}{
			{"uniform", func() error { return Uniform(NewCUDA(seed, gpu), single, 0, 1) },
				func() error { return Uniform(NewCUDA(seed, gpu), double, 0, 1) }, 0, 0},
			{"normal", func() error { return Normal(NewCUDA(seed, gpu), single, 0, 1) },
				func() error { return Normal(NewCUDA(seed, gpu), double, 0, 1) }, 2e-6, 1e-14},
		} {
			if err := dist.f32(); err != nil {
				t.Fatal(err)
			}
			want := next(4)
			for i, x := range single {
				// cuRAND gives 1 where PyTorch, whose interval is open at 1, turns it to 0.
				w := math.Float32frombits(binary.LittleEndian.Uint32(want[4*curandIndex(i, 4):]))
				if w == 1 && dist.tol32 == 0 {
					w = 0
				}
				if math.Abs(float64(x)-float64(w)) > dist.tol32 {
					t.Fatalf("%s, seed %d: element %d is %v, cuRAND has %v", dist.name, seed, i, x, w)
				}
			}
			if err := dist.f64(); err != nil {
				t.Fatal(err)
			}
			want = next(8)
			for i, x := range double {
				w := math.Float64frombits(binary.LittleEndian.Uint64(want[8*curandIndex(i, 2):]))
				if math.Abs(x-w) > dist.tol64 {
					t.Fatalf("%s in float64, seed %d: element %d is %v, cuRAND has %v", dist.name, seed, i, x, w)
				}
			}
		}
	}
}

// curandIndex returns where cuRAND has the number that a GPU puts into element i, when a block gives unroll numbers.
// That library takes four numbers from a subsequence before it goes to the next: one block, or two blocks of float64.
func curandIndex(i, unroll int) int {
	const threads = curandSubsequences
	k, rest := i/(threads*unroll), i%(threads*unroll)
	perTurn := 4 / unroll
	return (k/perTurn*threads+rest%threads)*4 + k%perTurn*unroll + rest/threads
}
