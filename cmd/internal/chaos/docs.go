package chaos

import (
	"fmt"
	"os"
	"strings"
)

// markers returns the comments between which a page holds the table of a mode.
func markers(m Mode) (begin, end string) {
	return fmt.Sprintf("<!-- chaos %s: begin -->\n", m), fmt.Sprintf("<!-- chaos %s: end -->\n", m)
}

// WriteDocs replaces a page's table of the campaign's mode.
func (r *Result) WriteDocs(page string) error {
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	begin, end := markers(r.Mode)
	before, rest, ok := strings.Cut(string(text), begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		return fmt.Errorf("%s lacks the lines %q and %q", page, strings.TrimSpace(begin), strings.TrimSpace(end))
	}
	var b strings.Builder
	b.WriteString(before + begin + "\n")
	fmt.Fprintf(&b, "`chorus chaos%s --seed %d --rounds %d`: %d hangs, %d wrong results, %d misnamed, in %.0f s.",
		r.command, r.Seed, r.Rounds,
		r.Hangs, r.WrongResults, r.Misnamed, r.Seconds)
	if r.Mode == Real {
		fmt.Fprintf(&b, " In %d rounds the surviving ranks made a new world.", r.Regrouped)
	}
	b.WriteString("\n\n")
	b.WriteString("| fault | fabric | rounds | happened | found after, median ms | p99 | worst |\n|---|---|---:|---:|---:|---:|---:|\n")
	for _, x := range r.By {
		fmt.Fprintf(&b, "| %s | %s | %d | %d |", x.Fault, x.Fabric, x.Rounds, x.Faults)
		if x.Samples > 0 {
			fmt.Fprintf(&b, " %.3g | %.3g | %.3g |\n", x.DetectMS.Median, x.DetectMS.P99, x.DetectMS.Max)
		} else {
			b.WriteString(" | | |\n")
		}
	}
	b.WriteString("\n" + end + after)
	return os.WriteFile(page, []byte(b.String()), 0o644)
}
