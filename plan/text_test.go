package plan_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/chorus-comms/chorus/plan"
)

// TestGolden prints plans as people see them. A command
//
//	plan all_reduce ring world=3 count=6 [ranks=0,2] [any word of a plan's first line]
//
// prints the plans of all ranks or of some, and proves them.
func TestGolden(t *testing.T) {
	datadriven.Walk(t, "testdata/plans", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			var words []string
			ranks := map[string]bool{}
			for _, arg := range d.CmdArgs {
				if arg.Key == "ranks" {
					for _, r := range arg.Vals {
						ranks[r] = true
					}
					continue
				}
				word := arg.Key
				if len(arg.Vals) > 0 {
					word += "=" + strings.Join(arg.Vals, ",")
				}
				words = append(words, word)
			}
			head, err := plan.Parse(strings.Join(words, " "))
			if err != nil {
				d.Fatalf(t, "%v", err)
			}
			a, ok := plan.Lookup(head.Request.Collective, head.Algorithm)
			if !ok {
				d.Fatalf(t, "there is no %s %s", head.Request.Collective, head.Algorithm)
			}
			plans, err := generate(a, head.Request)
			if err != nil {
				return err.Error() + "\n"
			}
			var b strings.Builder
			for r, p := range plans {
				if len(ranks) == 0 || ranks[fmt.Sprint(r)] {
					b.WriteString(p.String())
				}
			}
			if err := plan.ProvePlans(plans); err != nil {
				fmt.Fprintf(&b, "%v\n", err)
			} else {
				b.WriteString("proved\n")
			}
			return b.String()
		})
	})
}

func roundTrip(t *testing.T, p *plan.Plan) {
	t.Helper()
	text := p.String()
	back, err := plan.Parse(text)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if diff := cmp.Diff(p, back, cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("%s\ncomes back otherwise: %s", text, diff)
	}
	if again := back.String(); again != text {
		t.Fatalf("%s\nis printed again as\n%s", text, again)
	}
}

func TestTextRoundTrip(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	for range 500 {
		_, plans := randomPlans(t, rng)
		for _, p := range plans {
			roundTrip(t, p)
		}
	}
}

func FuzzParse(f *testing.F) {
	rng := rand.New(rand.NewPCG(9, 10))
	for range 20 {
		var t testing.T
		_, plans := randomPlans(&t, rng)
		f.Add(plans[0].String())
	}
	f.Add("barrier x world=2 rank=1\n0 await all 3\nawait 0 4294967295\ncopy in[0:1] -> out@7[5:6], tmp[0:1]")
	f.Fuzz(func(t *testing.T, text string) {
		p, err := plan.Parse(text)
		if (err == nil) != (p != nil) {
			t.Fatalf("got %v and %v", p, err)
		}
		if err != nil {
			return
		}
		roundTrip(t, p)
		plan.ProvePlans([]*plan.Plan{p}) // must not panic, whatever it says
		if p.Request.World == 2 && p.Tmp < 1<<20 {
			other := *p
			other.Request.Rank = 1 - p.Request.Rank
			plan.ProvePlans([]*plan.Plan{p, &other})
			plan.ProvePlans([]*plan.Plan{&other, p})
		}
	})
}

func TestParseErrors(t *testing.T) {
	for text, want := range map[string]string{
		"":                                          "empty text",
		"all_reduce":                                "starts with its collective",
		"nothing ring":                              `unknown collective "nothing"`,
		"all_reduce ring world=x":                   `world: bad number "x"`,
		"all_reduce ring world=-1":                  `bad number "-1"`,
		"all_reduce ring colour=1":                  `unknown word "colour=1"`,
		"all_reduce ring counts=1,":                 `counts: bad number ""`,
		"all_reduce ring\njump 3":                   `line 2: unknown step "jump"`,
		"all_reduce ring\n0 send":                   `bad number ""`,
		"all_reduce ring\nsend 1 in[3:2]":           `bad place "in[3:2]"`,
		"all_reduce ring\nsend 1 heap[0:2]":         `bad place "heap[0:2]"`,
		"all_reduce ring\nsend 1":                   "does not have 0 sources",
		"all_reduce ring\nwait in[0:1]":             "does not have 1 sources",
		"all_reduce ring\nsend 1 in[0:1] final":     "cannot be final",
		"all_reduce ring\nnotify 0":                 "phases grow from 1",
		"all_reduce ring\ncopy in[0:1] -> out[0:2]": "has 2 elements, others",
	} {
		if _, err := plan.Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}
