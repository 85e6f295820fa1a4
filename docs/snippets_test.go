package docs

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/chorus-comms/chorus/internal/testutil"
)

const chorus = "github.com/chorus-comms/chorus/"

// Lines of Go on a page are of a file that tests compile, or TestSnippets compiles them. They may use these packages
// and, on all pages or on one, variables of these types.
var (
	snippetPackages = map[string]string{
		"context": "context", "errors": "errors", "io": "io",
		"abi": chorus + "accl/abi", "accl": chorus + "accl", "cache": chorus + "device/cache", "card": chorus + "accl/card",
		"comm": chorus + "comm", "config": chorus + "config", "device": chorus + "device", "dtype": chorus + "dtype",
		"engine": chorus + "accl/engine", "kernel": chorus + "kernel",
		"loader": chorus + "kernel/loader", "store": chorus + "store", "tensor": chorus + "tensor",
	}
	snippetVariables = map[string]map[string]string{
		"": {"c": "*comm.Comm", "d, dev": "*device.Device", "s, other, stream": "*device.Stream", "x, y": "*tensor.Tensor",
			"err": "error", "n, rank, size, steps": "int"},
		"accl.md":                      {"e": "*engine.Engine", "ranks": "[]abi.Rank"},
		"devices-and-communication.md": {"kernel": "func(*device.Stream, *tensor.Tensor) error"},
		"devices.md":                   {"p, q": "device.Ptr", "data": "[]byte", "rt": "*device.Runtime", "file": "io.Writer"},
		"gpu.md":                       {"image": "[]byte", "p": "device.Ptr", "n": "int32"},
		"kernels.md":                   {"cfg": "*config.Config", "out, x, y, total": "kernel.Operand"},
		"memory-allocator.md":          {"driver": "cache.Driver", "cfg": "*config.Config", "stream, other": "cache.Stream"},
		"recovery.md":                  {"handles": "[]string"},
	}
	importing = regexp.MustCompile(`(?ms)^import (?:\(.*?^\)|[^\n]*)\n`)
	declaring = regexp.MustCompile(`(?m)^(\w+(?:, \w+)*) := `)
	selecting = regexp.MustCompile(`\b(\w+)\.[A-Z]`)
)

// TestSnippets compiles the lines of Go on all pages that aren't of a file.
func TestSnippets(t *testing.T) {
	testutil.SkipIfShort(t)
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	overlay, dirs, found := map[string]string{}, map[string]bool{}, 0
	for page, text := range withCommands(t) {
		for _, at := range block.FindAllStringSubmatchIndex(text, -1) {
			m := block.FindStringSubmatch(text[at[0]:at[1]])
			if m[2] != "go" || strings.Contains(m[1], "from:") {
				continue
			}
			found++
			dir := "docs/snippets/" + strings.NewReplacer("../", "", "/", "_", ".", "_").Replace(page)
			dirs["./"+dir] = true
			line := 1 + strings.Count(text[:at[6]], "\n")
			name := fmt.Sprintf("%d.go", line)
			written := filepath.Join(t.TempDir(), name)
			if err := os.WriteFile(written, []byte(compilable(filepath.Base(page), line, m[3])), 0o666); err != nil {
				t.Fatal(err)
			}
			overlay[filepath.Join(root, dir, name)] = written
		}
	}
	if found < 20 {
		t.Errorf("found only %d pieces of Go", found)
	}
	replaced := filepath.Join(t.TempDir(), "overlay.json")
	text, err := json.Marshal(map[string]any{"Replace": overlay})
	if err == nil {
		err = os.WriteFile(replaced, text, 0o666)
	}
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", append([]string{"build", "-gcflags=-e", "-overlay", replaced}, slices.Sorted(maps.Keys(dirs))...)...)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// compilable makes a file of the block at a line of a page: a function with its lines, behind the variables.
func compilable(page string, line int, text string) string {
	imports := strings.Join(importing.FindAllString(text, -1), "")
	lines := importing.ReplaceAllString(text, "")
	line += strings.Count(text, "\n") - strings.Count(lines, "\n")
	var variables, uses strings.Builder
	typeOf := map[string]string{"ctx": "context.Context"}
	for _, of := range []map[string]string{snippetVariables[""], snippetVariables[page]} {
		for names, kind := range of {
			for name := range strings.SplitSeq(names, ", ") {
				typeOf[name] = kind
			}
		}
	}
	for name, kind := range typeOf {
		if regexp.MustCompile(`\b` + name + `\b`).MatchString(lines) {
			fmt.Fprintf(&variables, "\tvar %s %s\n\t_ = %[1]s\n", name, kind)
		}
	}
	for _, m := range declaring.FindAllStringSubmatch(lines, -1) {
		for name := range strings.SplitSeq(m[1], ", ") {
			fmt.Fprintf(&uses, "\t_ = %s\n", name)
		}
	}
	body := fmt.Sprintf("func _() {\n%s{\n//line %s:%d\n%s%s}\n}\n", &variables, page, line, lines, &uses)
	used := map[string]bool{}
	for _, m := range selecting.FindAllStringSubmatch(body, -1) {
		used[m[1]] = true
	}
	for name := range used {
		path := snippetPackages[name]
		if path != "" && !regexp.MustCompile(`(?m)^\t"`+path+`"$`).MatchString(imports) {
			imports += fmt.Sprintf("import %q\n", path)
		}
	}
	return "package snippets\n\n" + imports + "\n" + body
}
