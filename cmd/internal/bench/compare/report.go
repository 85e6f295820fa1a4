package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/chorus-comms/chorus/cmd/internal/bench"
	"github.com/chorus-comms/chorus/internal/svg"
)

// report is the JSON document.
type report struct {
	Machine  bench.Machine      `json:"machine"`
	Date     string             `json:"date"`
	Seconds  float64            `json:"seconds"` // of measuring
	Peers    []found            `json:"peers"`
	Failures map[string]string  `json:"failures,omitempty"` // settings that did not start, or did not finish
	Verdicts []verdict          `json:"verdicts"`
	Allocs   map[string]float64 `json:"allocs"`
	Bursts   []burst            `json:"bursts"`
}

// readReport reads the document that a run wrote.
func readReport(path string) (*report, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	r := &report{}
	if err := json.Unmarshal(data, r); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}

func (r *report) write(path string) error {
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(data, '\n'), 0o644)
}

// join adds an earlier run's bursts. Their rounds get numbers of their own, so that no round of one run
// is taken for one of another.
func (r *report) join(earlier *report) {
	last := 0
	for _, b := range earlier.Bursts {
		last = max(last, b.Round+1)
	}
	for i := range r.Bursts {
		r.Bursts[i].Round += last
	}
	r.Bursts = append(earlier.Bursts, r.Bursts...)
	r.Seconds += earlier.Seconds
	allocs, failures := maps.Clone(earlier.Allocs), maps.Clone(earlier.Failures)
	if allocs == nil {
		allocs = map[string]float64{}
	}
	if failures == nil {
		failures = map[string]string{}
	}
	maps.Copy(allocs, r.Allocs)
	maps.Copy(failures, r.Failures)
	r.Allocs, r.Failures = allocs, failures
	for i := range r.Peers { // a slice may have asked for fewer peers
		if j := slices.IndexFunc(earlier.Peers, func(f found) bool { return f.Peer == r.Peers[i].Peer }); j >= 0 &&
			earlier.Peers[j].Skipped == "" {
			r.Peers[i] = earlier.Peers[j]
		}
	}
}

// writeText writes the whole report as Markdown, which is how it's read on a terminal, too.
func (r *report) writeText(w io.Writer) {
	p := poolBursts(r.Bursts)
	r.writeVerdicts(w)
	r.writeTables(w, p)
	r.writeConditions(w)
}

func (r *report) writeVerdicts(w io.Writer) {
	fmt.Fprintf(w, "| measure | cores | must reach | least ratio | verdict |\n|---|---|---|---|---|\n")
	for _, v := range r.Verdicts {
		text := v.Verdict
		if v.Reason != "" {
			text += " (" + v.Reason + ")"
		}
		fmt.Fprintf(w, "| %s | %s | %s | %s | %s |\n", v.Target, v.Where, v.Goal, v.Reached, text)
	}
}

// writeTables writes for each measure, operation and placement one table: the best setting of each
// library at each size, and ours.
func (r *report) writeTables(w io.Writer, p pool) {
	for _, m := range measures {
		for _, op := range m.ops {
			for _, where := range p.placements() {
				sizes := p.sizes(m.name, where, op)
				if len(sizes) == 0 {
					continue
				}
				fmt.Fprintf(w, "\n%s, %s, cores %s, median us:\n\n| |", title(m), strings.ReplaceAll(op, "_", "-"), where)
				for _, n := range sizes {
					fmt.Fprintf(w, " %s |", sizeName(n))
				}
				fmt.Fprintf(w, "\n|---|%s\n", strings.Repeat("---|", len(sizes)))
				for _, line := range tableLines(m) {
					writeLine(w, p, m, op, where, sizes, line)
				}
			}
		}
	}
}

// tableLine is a line of a table: ours by series, the others by library.
type tableLine struct {
	title string
	match func(series string) bool
}

func tableLines(m measure) []tableLine {
	var lines []tableLine
	for _, o := range m.ours {
		lines = append(lines, tableLine{"**" + strings.Replace(o.name, "chorus.", "Chorus, ", 1) + "**",
			func(s string) bool { return s == o.name }})
	}
	for _, q := range peers {
		lines = append(lines, tableLine{q.title, func(s string) bool { return peerOf(s) == q.name }})
	}
	return lines
}

func title(m measure) string {
	switch m.name {
	case "refill":
		return "Buffers written anew before each round"
	case "tcp":
		return "Loopback TCP"
	case "crowd":
		return "8 ranks on 2 cores"
	case "dtypes":
		return "Element types, sizes in bytes"
	}
	return fmt.Sprintf("%d ranks, shared memory", m.ranks)
}

func writeLine(w io.Writer, p pool, m measure, op, where string, sizes []int, line tableLine) {
	var text strings.Builder
	any := false
	for _, n := range sizes {
		_, f, ok := p.best(cell{m.name, where, op, n}, line.match)
		if !ok {
			text.WriteString(" |")
			continue
		}
		any = true
		fmt.Fprintf(&text, " %s |", micros(f.us))
	}
	if any {
		fmt.Fprintf(w, "| %s |%s\n", line.title, text.String())
	}
}

// micros shows a time with three digits.
func micros(us float64) string {
	switch {
	case us < 1:
		return fmt.Sprintf("%.3f", us)
	case us < 10:
		return fmt.Sprintf("%.2f", us)
	case us < 100:
		return fmt.Sprintf("%.1f", us)
	}
	return fmt.Sprintf("%.0f", us)
}

func (r *report) writeConditions(w io.Writer) {
	seen := map[string]int{}
	var probes = map[string][]float64{}
	for i := range r.Bursts {
		b := &r.Bursts[i]
		where := b.Where
		if where == "" {
			where = "moved or disturbed, not counted"
		}
		seen[where]++
		probes[where] = append(probes[where], b.Before, b.After)
	}
	fmt.Fprintf(w, "\nMeasured %s on %s, %d cores, %s, kernels %s; %d bursts in %.0f s.\n\n", r.Date, r.Machine.CPU,
		r.Machine.Cores, r.Machine.Kernel, r.Machine.Kernels, len(r.Bursts), r.Seconds)
	for _, where := range slices.Sorted(maps.Keys(seen)) {
		fmt.Fprintf(w, "- %s: %d bursts, a cache line there and back in %.0f ns (median)\n", where, seen[where],
			median(probes[where]))
	}
	for _, f := range r.Peers {
		if f.Skipped != "" {
			fmt.Fprintf(w, "- %s: SKIPPED (%s)\n", f.Title, firstWords(f.Skipped))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.Failures)) {
		fmt.Fprintf(w, "- %s: out (%s)\n", name, firstWords(r.Failures[name]))
	}
}

// folders are those of an absolute path, which are the machine's own matter.
var folders = regexp.MustCompile(`(^|[\s"'(=])/(?:[^\s/:]+/)+`)

// firstWords keeps a reason to one line, in which files go by their last names.
func firstWords(s string) string {
	s = folders.ReplaceAllString(strings.Join(strings.Fields(s), " "), "$1")
	const most = 200
	if len(s) > most {
		s = s[:most] + "..."
	}
	return s
}

// plot draws how long all-reduces take in a placement.
func (r *report) plot(where string) *svg.Plot {
	p := poolBursts(r.Bursts)
	plot := &svg.Plot{Title: "all-reduce, f32, 2 ranks on 2 cores, " + where, XLabel: "size (bytes)",
		YLabel: "time (us)", LogY: true}
	line := func(name string, of func(map[string]figure, cell) float64) {
		s := svg.Series{Name: name}
		for _, n := range p.sizes("all_reduce", where, "all_reduce") {
			c := cell{"all_reduce", where, "all_reduce", n}
			if us := of(p[c], c); us > 0 {
				s.X, s.Y = append(s.X, float64(n)), append(s.Y, us)
			}
		}
		if len(s.X) > 0 {
			plot.Series = append(plot.Series, s)
		}
	}
	for _, o := range both {
		line(strings.Replace(o.name, "chorus.", "Chorus, ", 1),
			func(f map[string]figure, _ cell) float64 { return f[o.name].us })
	}
	line("best of all others", func(_ map[string]figure, c cell) float64 { _, f, _ := p.best(c, isPeers); return f.us })
	line("one pass, unsynchronized", func(f map[string]figure, _ cell) float64 { return f["chorus.mapped"].limitUS })
	return plot
}
