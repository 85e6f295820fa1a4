package rng

import (
	"bytes"
	"errors"
	"math"
	"math/big"
	"slices"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/chorus-comms/chorus/dtype"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func bits32(x []float32) []uint32 {
	b := make([]uint32, len(x))
	for i := range x {
		b[i] = math.Float32bits(x[i])
	}
	return b
}

// close4 says whether numbers agree with a list that was rounded to four digits after the point.
func close4(got []float32, want ...float64) bool {
	return slices.EqualFunc(got, want, func(g float32, w float64) bool { return math.Abs(float64(g)-w) <= 0.5001e-4 })
}

// TestGoldenCPU has PyTorch's well-known first numbers of the seeds 0 and 42.
func TestGoldenCPU(t *testing.T) {
	fill := func(seed uint64, n int, f func(g Generator, d []float32) error) []float32 {
		t.Helper()
		d := make([]float32, n)
		must(t, f(NewCPU(seed), d))
		return d
	}
	rand := func(g Generator, d []float32) error { return Uniform(g, d, 0, 1) }
	randn := func(g Generator, d []float32) error { return Normal(g, d, 0, 1) }
	if got := bits32(fill(0, 4, rand)); !slices.Equal(got, []uint32{0x3efe1558, 0x3f44aa2f, 0x3db533a8, 0x3e073300}) {
		t.Errorf("rand, seed 0: %x", got)
	}
	if got := bits32(fill(42, 4, rand)); !slices.Equal(got, []uint32{0x3f61dc66, 0x3f6a3db3, 0x3ec406b8, 0x3f75950e}) {
		t.Errorf("rand, seed 42: %x", got)
	}
	if got := fill(0, 5, randn); !close4(got, 1.5410, -.2934, -2.1788, .5684, -1.0845) {
		t.Errorf("randn(5), seed 0: %v", got)
	}
	if got := fill(42, 5, randn); !close4(got, .3367, .1288, .2345, .2303, -1.1229) {
		t.Errorf("randn(5), seed 42: %v", got)
	}
	if got := fill(0, 16, randn); !close4(got, -1.1258, -1.1524, -.2506, -.4339, .8487, .6920, -.3160, -2.1152, .3223,
		-1.2633, .3500, .3081, .1198, 1.2377, 1.1168, -.2473) {
		t.Errorf("randn(16), seed 0: %v", got)
	}
	if got := fill(42, 16, randn)[:4]; !close4(got, 1.9269, 1.4873, .9007, -2.1055) {
		t.Errorf("randn(16), seed 42: %v", got)
	}
	g := NewCPU(0)
	for _, want := range []uint32{0x8c7f0aac, 0x97c4aa2f, 0xb716a675, 0xd821ccc0} {
		if got := g.Uint32(); got != want {
			t.Errorf("word %x, want %x", got, want)
		}
	}
	ints := make([]int64, 6)
	must(t, Integers(NewCPU(0), ints, 0, 10))
	if !slices.Equal(ints, []int64{4, 9, 3, 0, 3, 9}) {
		t.Errorf("randint(10), seed 0: %v", ints)
	}
	for seed, want := range map[uint64][]int64{0: {4, 1, 7, 5, 3, 9, 0, 8, 6, 2}, 42: {2, 6, 1, 8, 4, 5, 0, 9, 3, 7}} {
		p := make([]int64, 10)
		must(t, Permutation(NewCPU(seed), p))
		if !slices.Equal(p, want) {
			t.Errorf("randperm(10), seed %d: %v", seed, p)
		}
	}
}

func TestGoldenCUDA(t *testing.T) {
	for _, c := range []struct {
		seed        uint64
		rand, randn []float64
	}{
		{0, []float64{.3990, .5167, .0249, .9401, .9459}, []float64{-.9247, -.4253, -2.6438, .1452, -.1209}},
		{42, []float64{.6130, .0101, .3984, .0403, .1563}, []float64{.1940, 2.1614, -.1721, .8491, -1.9244}},
	} {
		d := make([]float32, 5)
		must(t, Uniform(NewCUDA(c.seed, A100), d, 0, 1))
		if !close4(d, c.rand...) {
			t.Errorf("rand, seed %d: %v", c.seed, d)
		}
		if got := bits32(d[:3]); c.seed == 0 && !slices.Equal(got, []uint32{0x3ecc4fd2, 0x3f044516, 0x3ccc3acf}) {
			t.Errorf("rand, seed 0: %x", got)
		}
		must(t, Normal(NewCUDA(c.seed, A100), d, 0, 1))
		if !close4(d, c.randn...) {
			t.Errorf("randn, seed %d: %v", c.seed, d)
		}
	}
}

// TestPhilox has the known answers of the authors' Random123 (kat_vectors).
func TestPhilox(t *testing.T) {
	for _, c := range []struct {
		counter [4]uint32
		key     uint64
		want    [4]uint32
	}{
		{[4]uint32{}, 0, [4]uint32{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
		{[4]uint32{math.MaxUint32, math.MaxUint32, math.MaxUint32, math.MaxUint32}, math.MaxUint64, [4]uint32{0x408f276d,
			0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
		{[4]uint32{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0x299f31d0a4093822, [4]uint32{0xd16cfe09, 0x94fdcceb,
			0x5001e420, 0x24126ea1}},
	} {
		if got := philox(c.counter, c.key); got != c.want {
			t.Errorf("philox(%x, %x) = %x, want %x", c.counter, c.key, got, c.want)
		}
	}
	if got, want := philoxAt(1, 7, math.MaxUint64, 1), philox([4]uint32{0, 0, 8, 0}, 1); got != want {
		t.Errorf("the count of blocks carries over to %x, want %x", got, want)
	}
}

// TestFMA32 compares with exact arithmetic, above all where rounding twice would go wrong.
func TestFMA32(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := rapid.Float32Range(-4, 4).Draw(t, "a")
		b := rapid.Float32Range(-4, 4).Draw(t, "b")
		c := rapid.OneOf(rapid.Float32Range(-4, 4), rapid.Float32Range(-1e-30, 1e-30), rapid.Float32Range(-1e9, 1e9)).Draw(t,
			"c")
		if rapid.Bool().Draw(t, "tie") { // a product on the middle between two float32, and a little more
			a, b = 1+float32(rapid.IntRange(0, 4095).Draw(t, "p"))*0x1p-12, 1+float32(rapid.IntRange(0, 4095).Draw(t,
				"q"))*0x1p-12
		}
		f := func(x float32) *big.Float { return new(big.Float).SetPrec(400).SetFloat64(float64(x)) }
		exact := f(a)
		exact.Mul(exact, f(b)).Add(exact, f(c))
		want, _ := exact.Float32()
		if got := fma32(a, b, c); got != want {
			t.Fatalf("fma32(%x, %x, %x) = %x, want %x", a, b, c, got, want)
		}
	})
}

func TestErrors(t *testing.T) {
	x, y, n := make([]float32, 3), make([]float64, 3), make([]uint8, 3)
	for _, g := range []Generator{NewCPU(1), NewCUDA(1, A100)} {
		before, err := g.State()
		must(t, err)
		for name, err := range map[string]error{
			"bounds":            Uniform(g, x, 1, 0),
			"NaN":               Uniform(g, x, 0, math.NaN()),
			"range":             Uniform(g, y, -math.MaxFloat64, math.MaxFloat64),
			"range in float32":  Uniform(g, x, -math.MaxFloat32, math.MaxFloat32),
			"std":               Normal(g, x, 0, -1),
			"lognormal":         LogNormal(g, x, 0, 0),
			"rate":              Exponential(g, x, 0),
			"sigma":             Cauchy(g, x, 0, -1),
			"p":                 Bernoulli(g, x, 1.1),
			"p of 1":            Geometric(g, n, 1),
			"lengths":           BernoulliEach(g, x, y[:2]),
			"one p":             BernoulliEach(g, x, []float64{0, 1, math.NaN()}),
			"empty":             Integers(g, n, 5, 5),
			"out of type":       Integers(g, n, 0, 257),
			"below type":        Integers(g, n, -1, 3),
			"inexact":           Integers(g, x, 0, 1<<24+2),
			"short state":       g.SetState(make([]byte, 100)),
			"zeros for a state": g.SetState(make([]byte, map[bool]int{true: stateSize, false: 17}[len(before) > 100])),
		} {
			if !errors.Is(err, ErrInvalidArgument) {
				t.Errorf("%T, %s: %v", g, name, err)
			}
		}
		after, err := g.State()
		must(t, err)
		if !bytes.Equal(before, after) {
			t.Errorf("%T: errors drew numbers", g)
		}
	}
	for name, err := range map[string]error{
		"no generator": Uniform(nil, x, 0, 1),
		"offset":       NewCUDA(1, A100).SetOffset(6),
		"state":        NewCUDA(1, A100).SetState([]byte{15: 0, 8: 2}),
	} {
		if !errors.Is(err, ErrInvalidArgument) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestStates goes back and forth between states, with every state's numbers the same as before.
func TestStates(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var g Generator = NewCPU(rapid.Uint64().Draw(t, "seed"))
		if rapid.Bool().Draw(t, "cuda") {
			g = NewCUDA(g.InitialSeed(), H100)
		}
		x := make([]float64, 700)
		for range rapid.IntRange(0, 5).Draw(t, "draws") {
			if err := Normal(g, x[:rapid.IntRange(0, 700).Draw(t, "n")], 0, 1); err != nil {
				t.Fatal(err)
			}
		}
		restore, err := Fork(g)
		if err != nil {
			t.Fatal(err)
		}
		a, b := make([]float64, 21), make([]float64, 21)
		first := Normal(g, a, 0, 1)
		if err := errors.Join(first, restore(), Normal(g, b, 0, 1)); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(a, b) {
			t.Fatal("after the fork other numbers")
		}
	})
}

func TestSkip(t *testing.T) {
	for _, n := range []int{0, 1, 623, 624, 625, 5000} {
		g, h := NewCPU(3), NewCPU(3)
		for range n {
			g.Uint32()
		}
		h.Skip(uint64(n))
		if a, b := g.Uint64(), h.Uint64(); a != b {
			t.Errorf("after %d words: %x, skipped %x", n, a, b)
		}
	}
}

func TestSeedRandomly(t *testing.T) {
	g := NewCUDA(1, GPU{})
	seed, err := SeedRandomly(g)
	if err != nil || g.InitialSeed() != seed || seed>>53 != 0 {
		t.Error(seed, g.InitialSeed(), err)
	}
}

// TestOffsets checks the offset rules: multiples of 4, one step for each time a thread draws.
func TestOffsets(t *testing.T) {
	full := H100.Threads(math.MaxInt32)
	if full != 1056*256 {
		t.Errorf("an H100 runs %d threads", full)
	}
	g := NewCUDA(1, H100)
	var want uint64
	check := func(name string, err error, more uint64) {
		t.Helper()
		must(t, err)
		want += more
		if got, _ := g.Offset(); got != want {
			t.Fatalf("%s: offset %d, want %d", name, got, want)
		}
	}
	check("one", Uniform(g, make([]float32, 1), 0, 1), 4)
	check("none", Uniform(g, []float32{}, 0, 1), 0)
	check("a full round", Uniform(g, make([]float32, 4*full), 0, 1), 4)
	check("one more", Uniform(g, make([]dtype.F16, 4*full+1), 0, 1), 8)
	check("two doubles", Uniform(g, make([]float64, 2*full+1), 0, 1), 8)
	check("bytes", Integers(g, make([]int64, 4*full), 0, 1<<28-1), 4)
	check("words", Integers(g, make([]int32, 2*full+1), 0, 1<<28), 8)
	check("each", BernoulliEach(g, make([]bool, 1000), make([]float32, 1000)), 12)
	check("skip", g.SetOffset(want+40), 40)
	if n := 3 << 29; H100.Increment(n, 4, false) <= H100.LaunchIncrement(n, false) {
		t.Error("a tensor of 6 GiB is not drawn in parts")
	}
	var parts []int
	H100.launches(5<<28, 8, true, func(first, n int, _ uint64) { parts = append(parts, first>>24, n>>24) })
	if want := []int{0, 0, 0, 10, 10, 10, 20, 10, 30, 10, 40, 10, 50, 10, 60, 10, 70, 10}; !slices.Equal(parts, want) {
		t.Errorf("parts %v, want %v", parts, want)
	}
}

// TestGrid checks that the grid of the GPU decides once there are more elements than threads, and not before.
func TestGrid(t *testing.T) {
	draw := func(gpu GPU, n int) []float32 {
		d := make([]float32, n)
		must(t, Uniform(NewCUDA(9, gpu), d, 0, 1))
		return d
	}
	if !slices.Equal(draw(A100, 864*256), draw(GPU{}, 864*256)) {
		t.Error("a launch that fits is not as without a limit")
	}
	if slices.Equal(draw(A100, 864*256+1)[864*256:], draw(H100, 864*256+1)[864*256:]) {
		t.Error("A100 and H100 agree beyond the grid of an A100")
	}
}

// TestCapture replays a graph with one kernel and compares with the same draws outside.
func TestCapture(t *testing.T) {
	g, twin := NewCUDA(5, H100), NewCUDA(5, H100)
	x, y := make([]float32, 1000), make([]float32, 1000)
	must(t, g.BeginCapture())
	for name, err := range map[string]error{
		"twice": g.BeginCapture(), "seed": g.Seed(1), "offset": g.SetOffset(4), "state": g.SetState(make([]byte, 16)),
		"fill": Uniform(g, x, 0, 1), "each": BernoulliEach(g, x, y),
	} {
		if !errors.Is(err, ErrInvalidArgument) {
			t.Errorf("%s while capturing: %v", name, err)
		}
	}
	if _, err := g.State(); err == nil {
		t.Error("State while capturing")
	}
	words := H100.Increment(len(x), 4, false)
	first, second := g.Reserve(words), g.Reserve(words)
	c, err := g.EndCapture()
	must(t, err)
	if _, err := g.EndCapture(); err == nil {
		t.Error("EndCapture twice")
	}
	if c.Words() != 2*words {
		t.Errorf("%d words, want %d", c.Words(), 2*words)
	}
	for range 3 {
		must(t, c.Replay())
		for _, d := range []Draw{first, second} {
			must(t, Uniform(d.Generator(), x, 0, 1))
			must(t, Uniform(twin, y, 0, 1))
			if !slices.Equal(x, y) {
				t.Fatal("a replay draws other numbers")
			}
		}
		d := g.Reserve(words) // between replays, outside of the graph
		must(t, Uniform(d.Generator(), x, 0, 1))
		must(t, Uniform(twin, y, 0, 1))
		if !slices.Equal(x, y) {
			t.Fatal("after a replay other numbers")
		}
	}
	must(t, g.Seed(6))
	must(t, twin.Seed(6))
	must(t, c.Replay())
	must(t, Uniform(first.Generator(), x, 0, 1))
	must(t, Uniform(twin, y, 0, 1))
	if !slices.Equal(x, y) {
		t.Error("a replay does not follow the new seed")
	}
}

// TestConcurrent draws from one generator on many goroutines; together they must get what one gets.
func TestConcurrent(t *testing.T) {
	for _, g := range []func() Generator{
		func() Generator { return NewCPU(1) }, func() Generator { return NewCUDA(1, A100) }} {
		const workers, draws, n = 8, 50, 40
		var want, got [][]float32
		one, many := g(), g()
		for range workers * draws {
			d := make([]float32, n)
			must(t, Normal(one, d, 0, 1))
			want = append(want, d)
		}
		var mu sync.Mutex
		var all sync.WaitGroup
		for range workers {
			all.Go(func() {
				for range draws {
					d := make([]float32, n)
					if err := Normal(many, d, 0, 1); err != nil {
						t.Error(err)
					}
					mu.Lock()
					got = append(got, d)
					mu.Unlock()
				}
			})
		}
		all.Wait()
		slices.SortFunc(want, slices.Compare[[]float32])
		slices.SortFunc(got, slices.Compare[[]float32])
		if !slices.EqualFunc(want, got, slices.Equal[[]float32]) {
			t.Errorf("%T: numbers were lost, doubled or torn", one)
		}
	}
}

func TestAllocs(t *testing.T) {
	x, y, h, n := make([]float32, 100), make([]float64, 100), make([]dtype.BF16, 100), make([]int64, 100)
	cpu := NewCPU(1)
	for _, g := range []Generator{cpu, NewCUDA(1, A100)} {
		for name, f := range map[string]func() error{
			"uniform":     func() error { return errors.Join(Uniform(g, x, 1, 2), Uniform(g, y, 1, 2), Uniform(g, h, 1, 2)) },
			"normal":      func() error { return errors.Join(Normal(g, x, 1, 2), Normal(g, y, 1, 2), Normal(g, h, 1, 2)) },
			"short":       func() error { return Normal(g, x[:5], 1, 2) },
			"exponential": func() error { return errors.Join(Exponential(g, x, 1), Exponential(g, h, 1)) },
			"bernoulli":   func() error { return errors.Join(Bernoulli(g, n, 0.5), BernoulliEach(g, n, y[:100])) },
			"integers":    func() error { return errors.Join(Integers(g, n, 0, 5), Random(g, n)) },
			"permutation": func() error { return Permutation(cpu, n) },
		} {
			clear(y)
			if got := testing.AllocsPerRun(20, func() {
				if name == "bernoulli" {
					clear(y)
				}
				if err := f(); err != nil {
					t.Fatal(err)
				}
			}); got != 0 {
				t.Errorf("%T, %s: %v allocations", g, name, got)
			}
		}
	}
}

func BenchmarkFill(b *testing.B) {
	const n = 1 << 16
	x, i := make([]float32, n), make([]int64, n)
	for _, c := range []struct {
		name string
		g    Generator
	}{{"cpu", NewCPU(1)}, {"cuda", NewCUDA(1, H100)}} {
		for _, d := range []struct {
			name string
			fill func() error
		}{
			{"uniform", func() error { return Uniform(c.g, x, 0, 1) }},
			{"normal", func() error { return Normal(c.g, x, 0, 1) }},
			{"exponential", func() error { return Exponential(c.g, x, 1) }},
			{"bernoulli", func() error { return Bernoulli(c.g, x, 0.5) }},
			{"integers", func() error { return Integers(c.g, i, 0, 1000) }},
		} {
			b.Run(c.name+"/"+d.name, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if err := d.fill(); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/number")
			})
		}
	}
}
