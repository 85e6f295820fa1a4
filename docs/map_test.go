package docs

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/chorus-comms/chorus"

// layers returns the rows of the map in architecture.md, the lowest first: the paths of the packages that each names in
// its first column. A path that ends with /... stands for all below it.
func layers(t *testing.T) [][]string {
	t.Helper()
	_, text, found := strings.Cut(read(t, "architecture.md"), "\n## The map\n")
	text, _, ends := strings.Cut(text, "\n## ")
	if !found || !ends {
		t.Fatal("architecture.md has no map")
	}
	var rows [][]string
	for line := range strings.Lines(text) {
		cells := strings.Split(line, "|")
		if len(cells) < 3 || !strings.Contains(cells[1], "`") {
			continue
		}
		var row []string
		for _, m := range regexp.MustCompile("`([^`]*)`").FindAllStringSubmatch(cells[1], -1) {
			row = append(row, m[1])
		}
		rows = append(rows, row)
	}
	return rows
}

// imports returns what each package of the module imports of the module, tests left out, by paths within it.
func imports(t *testing.T) map[string][]string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,GoFiles,CgoFiles,Imports", "./...")
	cmd.Dir = ".."
	cmd.Env = append(os.Environ(), "CGO_ENABLED=1") // capi's files, which need no compiler to be listed
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]string{}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct {
			ImportPath                 string
			GoFiles, CgoFiles, Imports []string
		}
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		path := strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/")
		if path == "" || len(p.GoFiles)+len(p.CgoFiles) == 0 {
			continue // the module's own page, or nothing but tests
		}
		all[path] = nil
		for _, of := range p.Imports {
			if of, ours := strings.CutPrefix(of, module+"/"); ours {
				all[path] = append(all[path], of)
			}
		}
	}
}

// TestMap: the map names every package once, and no other; a package imports none from a lower line.
func TestMap(t *testing.T) {
	rows, all := layers(t), imports(t)
	row := map[string]int{} // of each package
	for i, names := range rows {
		for _, name := range names {
			above, tree := strings.CutSuffix(name, "/...")
			found := 0
			for path := range all {
				if path != name && !(tree && (path == above || strings.HasPrefix(path, above+"/"))) {
					continue
				}
				found++
				if before, twice := row[path]; twice && before != i {
					t.Errorf("%s is in two rows of the map", path)
				}
				row[path] = i
			}
			if info, err := os.Stat(filepath.Join("..", above)); found == 0 && (err != nil || !info.IsDir()) {
				t.Errorf("the map names %s, which there isn't", name)
			}
		}
	}
	var wrong []string
	for path, of := range all {
		at, known := row[path]
		if !known {
			wrong = append(wrong, path+" is not in the map")
			continue
		}
		for _, other := range of {
			if below, known := row[other]; known && below > at {
				wrong = append(wrong, path+" imports "+other+", which stands below it in the map")
			}
		}
	}
	slices.Sort(wrong)
	for _, w := range wrong {
		t.Error(w)
	}
}
