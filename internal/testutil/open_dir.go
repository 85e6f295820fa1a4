package testutil

import (
	"os"
	"path/filepath"
	"testing"
)

// OpenDir is a folder of the test's own that other users can come to, but can't change. The argument own is
// sys.OwnFolder, which says so. Where temporary files are in another kind of place the test is left out.
func OpenDir(t testing.TB, own func(path string, create bool) (string, error)) string {
	t.Helper()
	dir := t.TempDir()
	probe := filepath.Join(dir, "probe")
	for path, mode := range map[string]os.FileMode{filepath.Dir(dir): 0o755, dir: 0o755} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := own(dir, false); err != nil {
		t.Skipf("left out: other users can change the place of temporary files: %v", err)
	}
	if err := os.Mkdir(probe, 0o700); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(probe)
	if err := os.Chmod(probe, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := own(probe, false); err == nil {
		t.Skip("left out: other users can't come to the place of temporary files")
	}
	return dir
}
