package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/chorus-comms/chorus/cmd/internal/bench"
	"github.com/chorus-comms/chorus/internal/svg"
)

// record is docs/pytorch.json: what PyTorch programs got from Chorus and from Gloo in one measurement. All figures of
// README.md and pytorch.md are its figures.
type record struct {
	CPU   string      `json:"cpu"`
	Cores int         `json:"cores"`
	Torch string      `json:"torch"`
	Date  string      `json:"date"`
	Runs  int         `json:"runs"` // of which each figure is the median
	Rows  []recordRow `json:"rows"`
}

// recordRow is an operation in a world: microseconds by kind, "gloo", "ordinary" and "shared".
type recordRow struct {
	Ranks int                `json:"ranks"`
	Op    string             `json:"op"`
	Bytes int                `json:"bytes"`
	US    map[string]float64 `json:"us"`
}

const recordPath = "docs/pytorch.json"

var recordWorlds = []int{2, 4, 8}

// newPagesCommand measures what the pages say of PyTorch programs, and writes it into them.
func newPagesCommand() *cobra.Command {
	var venv string
	var runs int
	cmd := &cobra.Command{
		Use: "pages", Short: "Measure what README.md and docs/pytorch.md say, into docs/pytorch.json, the tables and the picture",
		Long: "Measures Chorus beside Gloo with 2, 4 and 8 ranks, in some four minutes, which nothing else should disturb, and\n" +
			"writes docs/pytorch.json. Then, or with --runs 0 at once, it writes the tables, sentences and the picture that come\n" +
			"from there. It runs in the root of the repository.",
		Args: cobra.NoArgs, SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if runs > 0 {
				r, err := measureRecord(cmd.Context(), filepath.Join(venv, "bin/python"), runs)
				if err != nil {
					return err
				}
				data, err := json.MarshalIndent(r, "", "\t")
				if err != nil {
					return err
				}
				if err := os.WriteFile(recordPath, append(data, '\n'), 0o644); err != nil {
					return err
				}
			}
			files, err := pagesOf(".")
			if err != nil {
				return err
			}
			for _, path := range slices.Sorted(maps.Keys(files)) {
				if err := os.WriteFile(path, files[path], 0o644); err != nil {
					return err
				}
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&venv, "venv", ".venv", "a Python environment with the package: make python")
	cmd.Flags().IntVar(&runs, "runs", 3, "how often each world is measured; 0: not at all, docs/pytorch.json stays")
	return cmd
}

// measureRecord runs the benchmark of the Python package in each world.
func measureRecord(ctx context.Context, python string, runs int) (*record, error) {
	dir, err := os.MkdirTemp("", "chorus-pages-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	version, err := exec.CommandContext(ctx, python, "-c",
		"import torch; print(torch.__version__.split('+')[0], end='')").Output()
	if err != nil {
		return nil, fmt.Errorf("%s has no PyTorch (make python installs it): %w", python, err)
	}
	m := bench.ThisMachine()
	r := &record{CPU: m.CPU, Cores: m.Cores, Torch: string(version), Date: time.Now().UTC().Format(time.DateOnly),
		Runs: runs}
	for _, ranks := range recordWorlds {
		var all [][]pythonRow
		for run := range runs {
			out := filepath.Join(dir, fmt.Sprintf("%d-%d.json", ranks, run))
			c := exec.CommandContext(ctx, python, "-m", "chorus.bench", "--only", "collectives", "--ranks", fmt.Sprint(ranks),
				"--ops", "all_reduce", "all_gather", "barrier", "--max-bytes", fmt.Sprint(4*mib), "--json", out)
			c.Stdout, c.Stderr = os.Stdout, os.Stderr
			if err := c.Run(); err != nil {
				return nil, fmt.Errorf("python -m chorus.bench with %d ranks: %w", ranks, err)
			}
			rows, err := readRows(out)
			if err != nil {
				return nil, err
			}
			all = append(all, rows)
		}
		r.Rows = append(r.Rows, medianRows(ranks, all)...)
	}
	return r, nil
}

// medianRows are the rows of the runs in one world, which all have the same.
func medianRows(ranks int, runs [][]pythonRow) []recordRow {
	var rows []recordRow
	for i, first := range runs[0] {
		row := recordRow{Ranks: ranks, Op: first.Op, Bytes: first.Bytes, US: map[string]float64{}}
		for kind := range first.US {
			var all []float64
			for _, run := range runs {
				all = append(all, run[i].US[kind])
			}
			row.US[kind] = digits3(median(all))
		}
		rows = append(rows, row)
	}
	return rows
}

// digits3 keeps three digits of a number, and the whole part.
func digits3(x float64) float64 {
	if x <= 0 {
		return 0
	}
	unit := math.Pow(10, min(0, math.Floor(math.Log10(x))-2))
	return math.Round(math.Round(x/unit)*unit*1e6) / 1e6
}

func readRecord(path string) (*record, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	r := &record{}
	if err := json.Unmarshal(data, r); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}

// us is how long an operation took, or 0.
func (r *record) us(ranks int, op string, bytes int, kind string) float64 {
	for _, row := range r.Rows {
		if row.Ranks == ranks && row.Op == op && row.Bytes == bytes {
			return row.US[kind]
		}
	}
	return 0
}

// pagesOf returns what the pages that show the record, and the picture, must be, by their paths.
func pagesOf(root string) (map[string][]byte, error) {
	r, err := readRecord(filepath.Join(root, recordPath))
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	for page, text := range map[string]string{"README.md": r.front("docs/"), "docs/pytorch.md": r.sentence(),
		"docs/pytorch-internals.md": r.table()} {
		const begin, end = "<!-- pytorch.json: begin -->\n", "<!-- pytorch.json: end -->\n"
		path := filepath.Join(root, page)
		old, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		before, rest, ok := strings.Cut(string(old), begin)
		_, after, closed := strings.Cut(rest, end)
		if !ok || !closed {
			return nil, fmt.Errorf("%s lacks the lines %q and %q", page, strings.TrimSpace(begin), strings.TrimSpace(end))
		}
		files[path] = []byte(before + begin + text + end + after)
	}
	var b bytes.Buffer
	if err := r.picture(&b); err != nil {
		return nil, err
	}
	files[filepath.Join(root, "docs/pytorch.svg")] = b.Bytes()
	return files, nil
}

// conditions says where the record is from.
func (r *record) conditions() string {
	return fmt.Sprintf("Medians of %d runs on %d cores of an %s, PyTorch %s, %s", r.Runs, r.Cores, r.CPU, r.Torch, r.Date)
}

// sentence says what two, four and eight ranks gain.
func (r *record) sentence() string {
	times := func(ranks, bytes int) string {
		x := r.us(ranks, "all_reduce", bytes, "gloo") / r.us(ranks, "all_reduce", bytes, "ordinary")
		return fmt.Sprintf("%.*g", min(3, len(fmt.Sprint(int(x)))), x)
	}
	time := func(kind string) string { return timeText(r.us(2, "all_reduce", 16*kib, kind)) }
	return fmt.Sprintf("Two ranks all-reduce 16 KiB in %s, where Gloo takes %s; 1 MiB %s times as fast as Gloo, four ranks %s\n"+
		"times, and eight %s times.\n", time("ordinary"), time("gloo"), times(2, mib), times(4, mib), times(8, mib))
}

// room says which worlds leave cores free on this machine, and why Chorus is fast.
func (r *record) room() string {
	var free []string
	for _, n := range recordWorlds {
		if n < r.Cores {
			free = append(free, fmt.Sprint(n))
		}
	}
	s := fmt.Sprintf("No column leaves a core free: %d ranks own all %d cores, and more share them.", r.Cores, r.Cores)
	if len(free) > 0 {
		s = fmt.Sprintf("On %d cores some are free in the columns of %s ranks.", r.Cores, strings.Join(free, " and "))
	}
	return s + " Chorus's ranks reduce in memory that they\nshare, on the calling thread: no socket, no other thread, one synchronization.\n"
}

// front is what README.md shows: some rows, and the picture.
func (r *record) front(docs string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n| microseconds |", r.sentence())
	for i, n := range recordWorlds {
		fmt.Fprintf(&b, "%s Gloo | Chorus |", map[bool]string{true: fmt.Sprintf(" %d ranks:", n), false: fmt.Sprintf(" %d:", n)}[i == 0])
	}
	fmt.Fprintf(&b, "\n|---|%s\n", strings.Repeat("---:|", 2*len(recordWorlds)))
	for _, x := range []struct {
		text, op string
		bytes    int
		kind     string
	}{
		{"all_reduce, 16 KiB", "all_reduce", 16 * kib, "ordinary"}, {"all_reduce, 1 MiB", "all_reduce", mib, "ordinary"},
		{"the same, in memory that all ranks map", "all_reduce", mib, "shared"},
		{"all_gather, 4 MiB", "all_gather", 4 * mib, "ordinary"}, {"barrier", "barrier", 0, "ordinary"},
	} {
		fmt.Fprintf(&b, "| %s |", x.text)
		for _, n := range recordWorlds {
			gloo := ""
			if x.kind != "shared" {
				gloo = " " + number(r.us(n, x.op, x.bytes, "gloo"))
			}
			fmt.Fprintf(&b, "%s | %s |", gloo, number(r.us(n, x.op, x.bytes, x.kind)))
		}
		b.WriteString("\n")
	}
	fmt.Fprintf(&b, "\n%s", r.room())
	fmt.Fprintf(&b, "\n![all_reduce from PyTorch: time over size, Gloo and Chorus, 2, 4 and 8 ranks](%spytorch.svg)\n\n", docs)
	fmt.Fprintf(&b, "%s, by\n`go run ./cmd/internal/bench/compare pages`; the figures are in [pytorch.json](%spytorch.json).\n", r.conditions(), docs)
	return b.String()
}

// table is what pytorch-internals.md shows: all rows, and the picture.
func (r *record) table() string {
	var b strings.Builder
	b.WriteString("| |")
	for _, n := range recordWorlds {
		fmt.Fprintf(&b, " %d ranks: Gloo | Chorus | `chorus.empty` |", n)
	}
	fmt.Fprintf(&b, "\n|---|%s\n", strings.Repeat("---:|", 3*len(recordWorlds)))
	for _, row := range r.Rows {
		if row.Ranks != recordWorlds[0] {
			continue
		}
		name := row.Op
		if row.Bytes > 0 {
			name += ", " + sizeName(row.Bytes)
		}
		fmt.Fprintf(&b, "| %s |", name)
		for _, n := range recordWorlds {
			for _, kind := range []string{"gloo", "ordinary", "shared"} {
				text := ""
				if us := r.us(n, row.Op, row.Bytes, kind); us > 0 && row.Bytes > 4 || us > 0 && kind != "shared" {
					text = timeText(us) + " "
				}
				fmt.Fprintf(&b, " %s|", text)
			}
		}
		b.WriteString("\n")
	}
	fmt.Fprintf(&b, "\n%s.\n\n![all_reduce: time over size, Gloo and Chorus, 2, 4 and 8 ranks](pytorch.svg)\n", r.conditions())
	return b.String()
}

// picture draws how long all-reduces take.
func (r *record) picture(w io.Writer) error {
	p := &svg.Plot{Title: fmt.Sprintf("all_reduce from PyTorch %s, on %d cores", r.Torch, r.Cores), XLabel: "size (bytes)",
		YLabel: "time (us)", LogY: true}
	for _, n := range recordWorlds {
		for _, k := range [][2]string{{"ordinary", "Chorus"}, {"gloo", "Gloo"}} {
			s := svg.Series{Name: fmt.Sprintf("%s, %d ranks", k[1], n), Dashed: k[0] == "gloo"}
			for _, row := range r.Rows {
				if row.Ranks == n && row.Op == "all_reduce" {
					s.X, s.Y = append(s.X, float64(row.Bytes)), append(s.Y, row.US[k[0]])
				}
			}
			p.Series = append(p.Series, s)
		}
	}
	return p.Write(w)
}

// number shows microseconds without their unit.
func number(us float64) string {
	if us < 100 {
		return fmt.Sprintf("%.1f", us)
	}
	return fmt.Sprintf("%.0f", us)
}

func timeText(us float64) string {
	if us < 10_000 {
		return number(us) + " us"
	}
	return fmt.Sprintf("%.1f ms", us/1000)
}
