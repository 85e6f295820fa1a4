package gloo_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/chorus-comms/chorus/comm/gloo/glootest"
	"github.com/chorus-comms/chorus/internal/testutil"
)

var (
	programs = flag.Int("programs", testutil.Pick(20, 100), "how many random programs TestPrograms runs")
	seed     = flag.Uint64("seed", 1, "from which they are made, and splits between PyTorch and Go chosen")
)

// program makes a random program of a world of n ranks: collectives, of which several may be under way at once,
// messages, and groups.
func program(rng *rand.Rand, n int) (steps []glootest.Operation) {
	// A rank that destroys a group before the others have left new_group would make their new_group
	// fail.
	leave := glootest.Operation{Kind: "barrier", DType: "float32"}
	pick := func(of []string) string { return of[rng.IntN(len(of))] }
	for range 5 + rng.IntN(20) {
		if rng.IntN(8) == 0 {
			steps = append(steps, leave)
			s := glootest.Operation{Kind: "new_group"}
			if ranks := rng.Perm(n)[:rng.IntN(n+1)]; len(ranks) > 1 {
				slices.Sort(ranks)
				s.Ranks = ranks
			}
			steps = append(steps, s)
			continue
		}
		s := glootest.Operation{Kind: pick(glootest.Kinds), DType: pick(glootest.DTypes), Root: rng.IntN(n),
			Count: rng.IntN(1 << rng.IntN(14)), NaN: rng.IntN(2) == 0, Async: rng.IntN(3) == 0}
		if rng.IntN(6) == 0 {
			if s.Kind = pick(glootest.Messages); s.Kind == "any" {
				s.Count++ // PyTorch refuses an empty receive from anyone
				s.Tag = 8 + rng.IntN(1<<30)
			}
		}
		if glootest.Reduces(s.Kind) {
			ops := glootest.Ops(s.DType)
			for s.Op = pick(ops); s.Op == "avg" && s.Kind == "reduce"; {
				s.Op = pick(ops)
			}
		}
		steps = append(steps, s)
	}
	return append(steps, leave, glootest.Operation{Kind: "new_group"})
}

// TestPrograms demands that random programs have the results that they have in PyTorch:
//
//	go test ./comm/gloo -run TestPrograms -args -programs 1000 -seed 7
func TestPrograms(t *testing.T) {
	rng := rand.New(rand.NewPCG(*seed, 0))
	for left, batch := *programs, 0; left > 0; batch++ {
		n := []int{2, 3, 4, 5, 8}[batch%testutil.Pick(4, 5)]
		var steps []glootest.Operation
		for range min(left, testutil.Pick(5, 50)) {
			steps = append(steps, program(rng, n)...)
			left--
		}
		kinds := []byte(strings.Repeat("p", n))
		for !slices.Contains(kinds, 'g') || !slices.Contains(kinds, 'p') {
			for r := range kinds {
				kinds[r] = "pg"[rng.IntN(2)]
			}
		}
		t.Run(fmt.Sprint(batch), func(t *testing.T) { compare(t, n, []string{string(kinds)}, steps) })
	}
}
