package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/chorus-comms/chorus/plan"
)

// stdoutOf runs a command line in this process.
func stdoutOf(t *testing.T, line string) []byte {
	t.Helper()
	var out bytes.Buffer
	root := newRootCmd()
	root.SetArgs(strings.Fields(line))
	root.SetOut(&out)
	if err := root.Execute(); err != nil {
		t.Fatalf("chorus %s: %v", line, err)
	}
	return out.Bytes()
}

// The JSON form says what the text form says: of each step, its text can be made again.
func TestPlanJSON(t *testing.T) {
	for _, c := range plan.Collectives() {
		for _, a := range plan.Algorithms(c) {
			line := fmt.Sprintf("plan %s --algorithm %s --world 4 --hosts 2 --count 37 --all-ranks --root 1", c, a.Name)
			if a.OneHost {
				line = strings.Replace(line, "--hosts 2 ", "", 1)
			}
			if !c.Rooted() {
				line = strings.TrimSuffix(line, " --root 1")
			}
			var want []string
			for l := range strings.Lines(string(stdoutOf(t, line))) {
				if _, step, ok := strings.Cut(strings.TrimLeft(l, " "), "  "); ok && strings.HasPrefix(l, " ") {
					want = append(want, strings.TrimSpace(step))
				}
			}
			var d map[string]any
			if err := json.Unmarshal(stdoutOf(t, line+" --json"), &d); err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			if d["collective"] != c.String() || d["algorithm"] != a.Name || d["world"] != 4.0 || d["elem_bytes"] != 4.0 ||
				d["mapped"] != a.Mapped ||
				len(d["hosts"].([]any)) != 4 || d["estimated_us"].(float64) <= 0 {
				t.Errorf("%s: %v", line, d)
			}
			var got []string
			for r, x := range d["ranks"].([]any) {
				rank := x.(map[string]any)
				if rank["rank"] != float64(r) {
					t.Errorf("%s: rank %v in the place of %d", line, rank["rank"], r)
				}
				for _, s := range rank["steps"].([]any) {
					got = append(got, textOf(r, s.(map[string]any)))
				}
			}
			if g, w := strings.Join(got, "\n"), strings.Join(want, "\n"); g != w {
				t.Errorf("%s: the JSON form says\n%s\nthe text form\n%s", line, g, w)
			}
		}
	}
}

// textOf writes a step of a rank as plan.StepText does.
func textOf(rank int, s map[string]any) string {
	text := s["do"].(string)
	if peer, ok := s["peer"]; ok {
		if peer == -1.0 {
			peer = "all"
		}
		text += fmt.Sprint(" ", peer)
	}
	if phase, ok := s["phase"]; ok {
		text += fmt.Sprint(" ", phase)
	}
	for i, side := range []string{"src", "dst"} {
		places, _ := s[side].([]any)
		for k, x := range places {
			p := x.(map[string]any)
			switch {
			case k == 0:
				text += []string{" ", " -> "}[i]
			default:
				text += []string{" + ", ", "}[i]
			}
			text += p["buffer"].(string)
			if p["rank"] != float64(rank) {
				text += fmt.Sprint("@", p["rank"])
			}
			from := p["offset"].(float64)
			text += fmt.Sprintf("[%v:%v]", from, from+s["count"].(float64))
		}
	}
	if s["final"] == true {
		text += " final"
	}
	return text
}
