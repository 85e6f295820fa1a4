package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A step is an instruction of a page: to run the commands of a block of sh, or to save a block as a file, by the
// comment "file: name" above it. Comments say where commands run; "on: a" and "on: b" are two nodes. Blocks for both
// that follow each other run at the same time, and so does a block "on: both". The comments "by: clone" and "by:
// release" mark two ways to install, of which a reader takes one. A block of text after the commands shows their
// output.
type step struct {
	from, file, on, by, text, says string
}

var (
	block = regexp.MustCompile("(?s)((?:<!-- (?:from|file|on|by): \\S+ -->\n)*)```([a-z]*)\n(.*?)```\n")
	mark  = regexp.MustCompile(`<!-- (from|file|on|by): (\S+) -->`)
)

func steps(page string) []step {
	var all []step
	for _, m := range block.FindAllStringSubmatch(page, -1) {
		s := step{text: m[3]}
		for _, k := range mark.FindAllStringSubmatch(m[1], -1) {
			switch k[1] {
			case "from":
				s.from = k[2]
			case "file":
				s.file = k[2]
			case "on":
				s.on = k[2]
			case "by":
				s.by = k[2]
			}
		}
		switch {
		case s.file != "" || m[2] == "sh":
			all = append(all, s)
		case m[2] == "text" && len(all) > 0:
			all[len(all)-1].says += s.text
		}
	}
	return all
}

// TestSteps checks pages that are to be done from top to bottom. Their files are whole files of the repository, where
// tests run them. The shell can parse their commands. Only a page about two nodes names the nodes.
func TestSteps(t *testing.T) {
	for page, want := range map[string]struct {
		files []string
		nodes bool
	}{
		"pytorch-ten-minutes.md": {files: []string{"train.py", "hang.py", "lost.py"}},
		"first-job.md":           {files: []string{"main.go", "main_test.go"}},
		"two-nodes.md":           {files: []string{"sum.py", "main.go"}, nodes: true},
	} {
		var files, nodes []string
		for _, s := range steps(read(t, page)) {
			if s.file != "" {
				files = append(files, s.file)
				if s.from == "" || read(t, filepath.Join("..", s.from)) != s.text {
					t.Errorf("%s: %s isn't the whole of a file of the repository (%q)", page, s.file, s.from)
				}
				continue
			}
			nodes = append(nodes, s.on)
			if out, err := exec.Command("bash", "-n", "-c", s.text).CombinedOutput(); err != nil {
				t.Errorf("%s: %v: %s\n%s", page, err, out, s.text)
			}
		}
		if !slices.Equal(files, want.files) {
			t.Errorf("%s has the files %v, not %v", page, files, want.files)
		}
		if len(nodes) < 3 || (slices.Contains(nodes, "a") && slices.Contains(nodes, "b")) != want.nodes ||
			slices.ContainsFunc(nodes, func(on string) bool {
				return on != "" && on != "a" && on != "b"
			}) {
			t.Errorf("%s has commands for %q", page, nodes)
		}
	}
}

// TestNames demands that what from-mpi4py.md and first-job.md name of package comm is there: functions and values after
// "comm.", methods of a Comm after "c.".
func TestNames(t *testing.T) {
	names := map[string]bool{}
	files, err := filepath.Glob("../comm/*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil {
					names["comm."+d.Name.Name] = true
				} else if s, ok := d.Recv.List[0].Type.(*ast.StarExpr); ok && ast.IsExported(d.Name.Name) {
					if id, ok := s.X.(*ast.Ident); ok && id.Name == "Comm" {
						names["c."+d.Name.Name] = true
					}
				}
			case *ast.GenDecl:
				for _, s := range d.Specs {
					switch s := s.(type) {
					case *ast.TypeSpec:
						names["comm."+s.Name.Name] = true
					case *ast.ValueSpec:
						for _, n := range s.Names {
							names["comm."+n.Name] = true
						}
					}
				}
			}
		}
	}
	named := regexp.MustCompile("`[^`\n]*`")
	name := regexp.MustCompile(`\b(?:c|comm)\.[A-Z]\w*`)
	column := regexp.MustCompile(`(?m)^\|.*\|.*\|(.*)\|$`)
	var text strings.Builder
	for _, m := range column.FindAllStringSubmatch(read(t, "from-mpi4py.md"), -1) {
		text.WriteString(m[1]) // what stands before is mpi4py's
	}
	found := 0
	for _, code := range named.FindAllString(text.String()+read(t, "first-job.md")+read(t, "memory.md"), -1) {
		for _, n := range name.FindAllString(code, -1) {
			if found++; !names[n] {
				t.Errorf("there is no %s", n)
			}
		}
	}
	if found < 40 {
		t.Errorf("found only %d names", found)
	}
}

// TestSaid demands that the messages which faq.md explains are in the program.
func TestSaid(t *testing.T) {
	_, says, _ := strings.Cut(read(t, "faq.md"), "<!-- says -->")
	missing := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^### "(.*)"$`).FindAllStringSubmatch(says, -1) {
		missing[m[1]] = true
	}
	if len(missing) < 5 {
		t.Errorf("found only %d messages", len(missing))
	}
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || strings.HasPrefix(d.Name(), ".") && d.Name() != ".." {
			if d != nil && d.IsDir() {
				return filepath.SkipDir
			}
			return err
		}
		if strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") {
			text := read(t, path)
			for message := range missing {
				if strings.Contains(text, message) {
					delete(missing, message)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for message := range missing {
		t.Errorf("no message of the program has the words %q", message)
	}
}
