package observe

import (
	"strings"
	"testing"
)

// TestWhereCulpritIs shows the place of a rank that is in no operation, which is the one that others wait for.
func TestWhereCulpritIs(t *testing.T) {
	top := &Top{Rows: []TopRow{{}}, Where: []Party{{Ranks: []int{0}, Does: "its program", At: "train.py:12 (step)"}}}
	row, _, _ := strings.Cut(top.String()[strings.Index(top.String(), "\n"):], "its program")
	if !strings.Contains(row, "train.py:12 (step)") {
		t.Errorf("no place in the row:\n%s", top)
	}
}

// TestReportWithoutName is of a job that has no name.
func TestReportWithoutName(t *testing.T) {
	if got := (&Report{Size: 2}).String(); !strings.HasPrefix(got, "dumps of 2 of 2 ranks\n") {
		t.Errorf("%q", got)
	}
}
