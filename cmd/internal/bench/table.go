package bench

import (
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"
)

// TableWriter writes rows as they come, in the manner of nccl-tests.
type TableWriter struct{ w io.Writer }

// NewTableWriter writes the head of a table.
func NewTableWriter(w io.Writer) *TableWriter {
	fmt.Fprintf(w, "#%11s %12s %9s %10s %9s %10s %10s %8s %8s %7s %6s  %s\n",
		"size", "count", "type", "redop", "in place", "time", "p99", "algbw", "busbw", "#wrong", "limit", "algorithm")
	fmt.Fprintf(w, "#%11s %12s %9s %10s %9s %10s %10s %8s %8s %7s %6s\n",
		"(B)", "(elements)", "", "", "", "(us)", "(us)", "(GB/s)", "(GB/s)", "", "(%)")
	return &TableWriter{w}
}

// Row writes one line.
func (t *TableWriter) Row(r Row) {
	place, share, wrong := "no", "-", "-"
	if r.InPlace {
		place = "yes"
	}
	if r.Limit > 0 {
		share = fmt.Sprintf("%.0f", r.Share*100)
	}
	if r.Checked > 0 {
		wrong = strconv.Itoa(r.Errors)
	}
	fmt.Fprintf(t.w, "%12d %12d %9s %10s %9s %10s %10s %8.2f %8.2f %7s %6s  %s\n",
		r.Bytes, r.Count, r.DType, r.Reduction, place, micros(r.MedianUS), micros(r.P99US), r.AlgBW, r.BusBW, wrong, share,
		r.Algorithm)
}

// micros shows a time with three digits or more.
func micros(us float64) string {
	switch {
	case us < 1:
		return fmt.Sprintf("%.3f", us)
	case us < 100:
		return fmt.Sprintf("%.2f", us)
	}
	return fmt.Sprintf("%.0f", us)
}

// End writes what the table was measured on.
func (t *TableWriter) End(r *Result) {
	tw := tabwriter.NewWriter(t.w, 0, 0, 1, ' ', 0)
	fmt.Fprintf(tw, "#\tmachine\t%s, %d cores, %s, kernels %s\n", r.Machine.CPU, r.Machine.Cores, r.Machine.Kernel,
		r.Machine.Kernels)
	fmt.Fprintf(tw, "#\tcores\tbefore %v, after %v\n", r.Placement.Before, r.Placement.After)
	if r.Version != "" {
		fmt.Fprintf(tw, "#\tversion\t%s\n", r.Version)
	}
	wrong, checked := 0, 0
	for _, row := range r.Rows {
		wrong, checked = wrong+row.Errors, checked+row.Checked
	}
	if checked > 0 {
		fmt.Fprintf(tw, "#\twrong\t%d elements\n", wrong)
	} else {
		fmt.Fprintf(tw, "#\twrong\tnot checked\n")
	}
	tw.Flush()
}

// WriteTable writes a whole table.
func (r *Result) WriteTable(w io.Writer) {
	t := NewTableWriter(w)
	for _, row := range r.Rows {
		t.Row(row)
	}
	t.End(r)
}
