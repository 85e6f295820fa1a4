package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var fileName = regexp.MustCompile("`([\\w./]+\\.\\w+)`")

// TestFilesPerOperation finds the files that architecture.md names for an operation, of which at most five are written
// by hand and neither tests nor pages.
func TestFilesPerOperation(t *testing.T) {
	tables := strings.Split(read(t, "architecture.md"), "touched these files")
	if len(tables) != 3 {
		t.Fatalf("architecture.md has %d operations", len(tables)-1)
	}
	for _, text := range tables[1:] {
		table, _, _ := strings.Cut(strings.TrimLeft(text, ":\n"), "\n\n")
		written := 0
		for row := range strings.SplitSeq(table, "\n") {
			dir := ""
			for _, m := range fileName.FindAllStringSubmatch(strings.Split(row+"||", "|")[1], -1) {
				name := m[1]
				if strings.HasSuffix(name, ".md") {
					continue
				}
				if d := filepath.Dir(name); d != "." {
					dir = d
				} else if dir != "" {
					name = filepath.Join(dir, name)
				}
				if _, err := os.Stat(filepath.Join("..", name)); err != nil {
					t.Errorf("architecture.md: %v", err)
				}
				if !strings.Contains(row, "written by") && !strings.Contains(name, "test") {
					written++
				}
			}
		}
		if device := strings.Contains(table, "capi/kernels"); device && (written == 0 || written > 5) {
			t.Errorf("a device's operation has %d files", written)
		}
	}
}
