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

// tableAfter are the cells of the first table after a heading of architecture.md.
func tableAfter(t *testing.T, heading string) (rows [][]string) {
	t.Helper()
	_, text, found := strings.Cut(read(t, "architecture.md"), "\n### "+heading+"\n")
	_, text, table := strings.Cut(text, "|---|")
	if !found || !table {
		t.Fatalf("architecture.md has no table in %q", heading)
	}
	text, _, _ = strings.Cut(text, "\n\n")
	for row := range strings.SplitSeq(text, "\n|") {
		rows = append(rows, strings.Split(row, "|"))
	}
	return rows[1:]
}

// TestJourneys follows the files that a sum on a device enters, of which there are at most 15. Each defines its
// function, and a file before it has the call. Those of an all-reduce are in comm.
func TestJourneys(t *testing.T) {
	var before strings.Builder
	files := map[string]bool{}
	for _, row := range tableAfter(t, "A kernel of a device") {
		name, function := fileName.FindStringSubmatch(row[0])[1], strings.Trim(row[1], " `")
		text, err := os.ReadFile(filepath.Join("..", name))
		if err != nil {
			t.Fatal(err)
		}
		files[name] = true
		defined := regexp.MustCompile(`(?m)^[\w ].*\b` + function + `\(`)
		if !defined.Match(text) {
			t.Errorf("%s has no function %s", name, function)
		}
		called := regexp.MustCompile(`\b` + strings.TrimPrefix(function, "chorus_") + `[(>]`)
		if before.Len() > 0 && !called.MatchString(before.String()) {
			t.Errorf("%s of %s is called in no file before it", function, name)
		}
		before.Write(text)
	}
	if len(files) < 10 || len(files) > 15 {
		t.Errorf("a sum enters %d files", len(files))
	}
	for _, row := range tableAfter(t, "Calls in comm") {
		for _, m := range fileName.FindAllStringSubmatch(row[0], -1) {
			if _, err := os.Stat(filepath.Join("../comm", m[1])); err != nil {
				t.Error(err)
			}
		}
	}
}
