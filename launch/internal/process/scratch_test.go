package process

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestSweepLeavesTheLiving and what belongs to no launcher.
func TestSweepLeavesTheLiving(t *testing.T) {
	tmp := t.TempDir()
	alive, l, err := MakeScratch(tmp)
	if err != nil || l == nil {
		t.Fatal(err)
	}
	dead, d, err := MakeScratch(tmp)
	if err != nil {
		t.Fatal(err)
	}
	d.Close()
	if err := os.Symlink(t.TempDir(), filepath.Join(tmp, scratchPrefix+"link")); err != nil {
		t.Fatal(err)
	}
	SweepScratch(tmp)
	if got, _ := filepath.Glob(filepath.Join(tmp, "*")); !slices.Equal(got, slices.Sorted(slices.Values([]string{alive, filepath.Join(tmp,
		scratchPrefix+"link")}))) {
		t.Errorf("left %v; alive %s, dead %s", got, alive, dead)
	}
	l.Close()
}
