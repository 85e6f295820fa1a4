package chaos

import (
	"os"
	"strconv"
	"testing"
)

func TestScratch(t *testing.T) {
	n, _ := strconv.Atoi(os.Getenv("ROUNDS"))
	first, _ := strconv.ParseUint(os.Getenv("SEED"), 10, 64)
	var kinds []FaultKind
	if k := os.Getenv("FAULT"); k != "" {
		kinds = []FaultKind{FaultKind(k)}
	}
	bad := 0
	fired := 0
	for i := range n {
		p := Make(Virtual, first+uint64(i), kinds, nil)
		o := Virtually(&p)
		o.judge()
		if o.Fired {
			fired++
		}
		if o.Bad() {
			bad++
			t.Logf("seed %d: %+v\nhangs %q\nwrong %q", p.Seed, p.Fault, o.Hangs, o.Wrong)
			for _, m := range o.Misnamed {
				t.Log("  ", m)
			}
			if os.Getenv("STACKS") != "" {
				t.Log(o.Stuck)
				t.Log(p.Comms, p.Steps, p.Hosts, p.Hints)
				for _, r := range o.Reports {
					t.Logf("%+v", r)
				}
			}
		}
	}
	t.Log(n, "rounds", bad, "bad", fired, "fired")
}
