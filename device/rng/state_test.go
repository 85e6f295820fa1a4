package rng

import (
	"bytes"
	"testing"
)

// FuzzState restores generators from anything: what is taken for a state can be drawn from, and is the state that is
// saved again, but for what old forms lack.
func FuzzState(f *testing.F) {
	for _, g := range []Generator{NewCPU(1), NewCUDA(1, H100)} {
		b, err := g.State()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
		f.Add(b[:8])
	}
	f.Add(make([]byte, stateSize))
	f.Add(make([]byte, legacySize))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, g := range []Generator{NewCPU(1), NewCUDA(1, H100)} {
			if g.SetState(b) != nil {
				continue
			}
			first, err := g.State()
			if err != nil {
				t.Fatal(err)
			}
			x := make([]float32, 700)
			if err := Uniform(g, x, 0, 1); err != nil {
				t.Fatal(err)
			}
			for i, v := range x {
				if !(v >= 0 && v < 1) {
					t.Fatalf("number %d is %v", i, v)
				}
			}
			if err := g.SetState(first); err != nil {
				t.Fatal(err)
			}
			if second, err := g.State(); err != nil || !bytes.Equal(first, second) {
				t.Fatalf("a state changes when it's restored: %v", err)
			}
		}
	})
}
