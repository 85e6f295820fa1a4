package regroup

import (
	"math/rand/v2"
	"sync"
	"testing"
)

// resolving is the state of a member when its leader is lost.
type resolving struct {
	knows bool // the outcome, which it has had from the leader
	voted bool // has voted, at least
	gone  bool // is lost, too
}

// resolveAll has the members that have voted and know nothing resolve, and returns what each has in the end.
func resolveAll(t *testing.T, states []resolving) []string {
	t.Helper()
	n := len(states) + 1
	c := newProcesses(t, n)
	defer func() {
		for _, s := range c.endpoints {
			s.Close()
		}
	}()
	c.endpoints[0].Close()
	all := make([]int, n)
	for i := range n {
		all[i] = i
	}
	members := c.members(all...)
	attempts := make([]*attempt, n)
	for i := 1; i < n; i++ {
		a := &attempt{endpoint: c.endpoints[i], uuid: "x", members: members, me: i}
		a.local = a.prefixed(c.endpoints[i].Local())
		attempts[i] = a
		st := states[i-1]
		set := func(key string, value []byte) {
			if err := a.local.Set(t.Context(), key, value); err != nil {
				t.Fatal(err)
			}
		}
		if st.voted || st.knows {
			set(keyVoted, nil)
		}
		if st.knows {
			set(keyOutcome, []byte(committed))
		}
		if st.gone {
			c.endpoints[i].Close()
		}
	}
	out := make([]string, n-1)
	var resolved sync.WaitGroup
	for i := 1; i < n; i++ {
		st, a := states[i-1], attempts[i]
		switch {
		case st.gone:
			out[i-1] = "gone"
		case st.knows:
			out[i-1] = committed
		default:
			resolved.Go(func() {
				var outcome []byte
				if st.voted {
					outcome = a.resolve()
				} else { // as callOff leaves it
					outcome = a.failure(Lost, "the leader", nil, 0).encode()
				}
				if err := a.local.Set(t.Context(), keyOutcome, outcome); err != nil {
					t.Error(err)
				}
				if out[i-1] = "abort"; a.decode(outcome, 0) == nil {
					out[i-1] = committed
				}
			})
		}
	}
	resolved.Wait()
	return out
}

func TestResolve(t *testing.T) {
	const uncertain, knows, unready, gone = 0, 1, 2, 3
	of := func(kinds ...int) []resolving {
		var states []resolving
		for _, k := range kinds {
			states = append(states, resolving{knows: k == knows, voted: k != unready, gone: k == gone})
		}
		return states
	}
	for _, test := range []struct {
		states []resolving
		want   string // of the members that were uncertain
	}{
		{of(uncertain), "abort"},
		{of(uncertain, uncertain, uncertain), "abort"},
		{of(uncertain, uncertain, knows), committed},
		{of(knows, uncertain, uncertain), committed},
		{of(uncertain, knows, uncertain), committed},
		{of(gone, uncertain, knows), committed},
		{of(gone, gone, uncertain, uncertain), "abort"},
		{of(uncertain, unready, uncertain), "abort"},
		{of(uncertain, gone, uncertain, gone, knows), committed},
	} {
		for i, got := range resolveAll(t, test.states) {
			if s := test.states[i]; s.voted && !s.knows && !s.gone && got != test.want {
				t.Errorf("%+v: member %d has %q, want %q", test.states, i+1, got, test.want)
			}
		}
	}
}

// The survivors agree, whichever members the leader had told an outcome, and whichever die with it.
func TestResolveAtRandom(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	for round := range 200 {
		states := make([]resolving, 1+r.IntN(6))
		decided := r.IntN(2) == 0
		for i := range states {
			states[i] = resolving{voted: decided || r.IntN(3) > 0, gone: r.IntN(4) == 0}
			states[i].knows = decided && r.IntN(3) == 0
		}
		counts := map[string]int{}
		for _, o := range resolveAll(t, states) {
			counts[o]++
		}
		if counts["abort"] > 0 && counts[committed] > 0 {
			t.Fatalf("round %d: %+v: %v", round, states, counts)
		}
	}
}
