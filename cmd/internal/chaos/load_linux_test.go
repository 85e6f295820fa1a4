package chaos

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// children returns how many processes this one has started that haven't been waited for.
func children(t *testing.T) (n int) {
	t.Helper()
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", os.Getpid()))
	if err != nil || len(lists) == 0 {
		t.Skip("this kernel doesn't tell a process's children")
	}
	for _, list := range lists {
		text, _ := os.ReadFile(list) // a thread may have ended
		n += len(strings.Fields(string(text)))
	}
	return n
}

// TestLoad runs a round beside busy processes, which are there while it runs, and not afterwards.
func TestLoad(t *testing.T) {
	const load, seed = 3, 1
	size := Make(Real, seed, []FaultKind{None}, nil).Size
	before, during := children(t), 0
	c := Campaign{Mode: Real, Rounds: 1, Seed: seed, Faults: []FaultKind{None}, Load: load}
	c.OnRound = func(int, *Outcome) { during = children(t) }
	res := campaign(t, c)
	report(t, res)
	if during != before+size+load || children(t) != before {
		t.Errorf("%d processes beside a round of %d ranks, %d afterwards", during-before, size, children(t)-before)
	}
	if want := " --real --faults none --load 3"; res.command != want {
		t.Errorf("replay with%q, want%q", res.command, want)
	}
}
