package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"
)

// pythonRow is a row of python -m chorus.bench: medians in microseconds by kind.
type pythonRow struct {
	Measure string             `json:"measure"`
	Op      string             `json:"op"`
	Bytes   int                `json:"bytes"`
	US      map[string]float64 `json:"us"`
}

// pythonTarget is a promise about what Python programs see. The ratios' geometric mean must reach mean,
// and the least of them least; ratio gives 0 for rows that it isn't about.
type pythonTarget struct {
	text        string
	mean, least float64
	ratio       func(r *pythonRow) float64
}

// faster says how many times as long the fastest of others takes as ours.
func faster(measure string, ops []string, least, most int, ours string, others ...string) func(*pythonRow) float64 {
	return func(r *pythonRow) float64 {
		if r.Measure != measure || !slices.Contains(ops, r.Op) || r.Bytes < least || r.Bytes > most {
			return 0
		}
		best := math.Inf(1)
		for _, o := range others {
			if us, ok := r.US[o]; ok {
				best = min(best, us)
			}
		}
		if r.US[ours] == 0 || math.IsInf(best, 1) {
			return 0
		}
		return best / r.US[ours]
	}
}

// shareOfStep says how many times Gloo's share of a training step ours is smaller.
func shareOfStep(r *pythonRow) float64 {
	if r.Measure != "ddp" {
		return 0
	}
	share := func(kind string) float64 { return r.US[kind] / (r.US["compute"] + r.US[kind]) }
	return share("gloo") / max(share("ordinary"), 1e-3) // less than a thousandth of the step is noise
}

var pythonTargets = []pythonTarget{
	{"all_reduce, `chorus.empty`, 256 KiB to 64 MiB, by Gloo", 20, 8, faster("collectives", []string{"all_reduce"},
		256*kib, 64*mib, "shared", "gloo")},
	{"all_reduce, 256 KiB to 64 MiB, by Gloo", 8, 4, faster("collectives", []string{"all_reduce"}, 256*kib, 64*mib,
		"ordinary", "gloo")},
	{"all_reduce and broadcast of 4 B, barrier, by Gloo", 0, 20, faster("collectives", []string{"all_reduce", "broadcast",
		"barrier"}, 0, 4, "ordinary", "gloo")},
	{"all_gather, reduce_scatter, all_to_all, 1 to 64 MiB, by Gloo", 0, 4, faster("collectives", []string{"all_gather",
		"reduce_scatter", "all_to_all"}, mib, 64*mib, "ordinary", "gloo")},
	{"all_reduce, 16 KiB to 16 MiB, by vLLM and DeepSpeed", 0, 1, faster("peers", []string{"all_reduce"}, 16*kib, 16*mib,
		"ordinary", "vllm", "deepspeed")},
	{"all_reduce, `chorus.empty`, 16 KiB to 16 MiB, by vLLM and DeepSpeed", 0, 2, faster("peers", []string{"all_reduce"},
		16*kib, 16*mib, "shared", "vllm", "deepspeed")},
	{"the same by `TorchComm`, by vLLM and DeepSpeed", 0, 1, faster("peers", []string{"all_reduce"}, 16*kib, 16*mib,
		"direct", "vllm", "deepspeed")},
	{"the same by `TorchComm`, `chorus.empty`, by vLLM and DeepSpeed", 0, 2, faster("peers", []string{"all_reduce"},
		16*kib, 16*mib, "direct_shared", "vllm", "deepspeed")},
	{"communication's share of a DDP step, by Gloo's", 0, 5, shareOfStep},
	{"all_reduce in a tensor-parallel step, 16 to 256 KiB, by Gloo", 0, 10, faster("inference", []string{"step"}, 16*kib,
		256*kib, "ordinary", "gloo")},
	{"the same, `chorus.empty`, by Gloo", 0, 10, faster("inference", []string{"step"}, 16*kib, 256*kib, "shared", "gloo")},
	{"10 us by the way from a call to the library", 0, 1, func(r *pythonRow) float64 {
		if r.Measure != "layer" {
			return 0
		}
		return 10 / r.US["first byte"]
	}},
}

func (t *pythonTarget) judge(rows []pythonRow) verdict {
	v := verdict{Target: t.text, Goal: (&target{mean: t.mean, least: t.least}).goal(), Verdict: skipped,
		Reason: "not measured"}
	var ratios []float64
	worst := math.Inf(1)
	for i := range rows {
		r := &rows[i]
		x := t.ratio(r)
		if x == 0 {
			continue
		}
		ratios = append(ratios, x)
		if x < worst {
			worst = x
			v.Reached = fmt.Sprintf("%.2f at %s of %s", x, r.Op, sizeName(r.Bytes))
		}
	}
	if len(ratios) == 0 {
		return v
	}
	v.Verdict, v.Reason = pass, ""
	if mean := geomean(ratios); len(ratios) > 1 {
		v.Reached += fmt.Sprintf(", mean %.2f", mean)
		if mean < t.mean {
			v.Verdict = fail
		}
	}
	if worst < t.least {
		v.Verdict = fail
	}
	return v
}

// newPythonCommand measures what Python programs see, by the package chorus in the environment --venv.
func newPythonCommand() *cobra.Command {
	var dir, venv, out string
	cmd := &cobra.Command{
		Use: "python", Short: "Measure the package for PyTorch beside Gloo, vLLM and DeepSpeed, and judge its targets",
		Args: cobra.NoArgs, SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			rows, err := measurePython(cmd.Context(), venv, dir, out)
			if err != nil {
				return err
			}
			writePythonVerdicts(os.Stdout, rows)
			return nil
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&dir, "dir", ".peers", "the folder that vLLM and DeepSpeed are installed into")
	fs.StringVar(&venv, "venv", ".venv", "a Python environment with the package: make python")
	fs.StringVar(&out, "out", "out/python.json",
		"the document to write; if it's there already, it's judged and nothing is measured")
	return cmd
}

func measurePython(ctx context.Context, venv, dir, out string) ([]pythonRow, error) {
	if _, err := os.Stat(out); err != nil {
		if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
			return nil, err
		}
		c := exec.CommandContext(ctx, filepath.Join(venv, "bin/python"), "-m", "chorus.bench", "--peers", dir, "--json", out)
		c.Stdout, c.Stderr = os.Stdout, os.Stderr
		if err := c.Run(); err != nil {
			return nil, fmt.Errorf("python -m chorus.bench in %s (make python installs it): %w", venv, err)
		}
	}
	return readRows(out)
}

// readRows reads what python -m chorus.bench --json wrote.
func readRows(path string) ([]pythonRow, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var rows []pythonRow
	if err := json.Unmarshal(data, &rows); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return rows, nil
}

func writePythonVerdicts(w io.Writer, rows []pythonRow) {
	fmt.Fprintf(w, "| from Python, 2 ranks | must reach | least ratio | verdict |\n|---|---|---|---|\n")
	for i := range pythonTargets {
		v := pythonTargets[i].judge(rows)
		text := v.Verdict
		if v.Reason != "" {
			text += " (" + v.Reason + ")"
		}
		fmt.Fprintf(w, "| %s | %s | %s | %s |\n", v.Target, v.Goal, v.Reached, text)
	}
}
