package sys

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// opening are the functions that open a path, by package. Those that write a file anew aren't among them: their path is
// the user's choice of where output goes.
var opening = map[string][]string{
	"os":                           {"Open", "OpenFile", "ReadFile", "DirFS", "OpenRoot", "OpenInRoot"},
	"io/ioutil":                    {"ReadFile"},
	"crypto/tls":                   {"LoadX509KeyPair"},
	"debug/elf":                    {"Open"},
	"debug/macho":                  {"Open"},
	"debug/pe":                     {"Open"},
	"archive/zip":                  {"OpenReader"},
	"net/http":                     {"ServeFile", "FileServer", "Dir"},
	"syscall":                      {"Open", "Openat"},
	"text/template":                {"ParseFiles", "ParseGlob"},
	"html/template":                {"ParseFiles", "ParseGlob"},
	"golang.org/x/sys/unix":        {"Open", "Openat", "Openat2"},
	"github.com/ebitengine/purego": {"Dlopen"},
}

// opened are the functions that may call those, and why. All others call OpenRegular, OpenRegularAs or ReadRegular.
// These wait for no FIFO, and read no device and no more than a limit.
var opened = map[string]string{
	"internal/sys/regular.go OpenRegularAs":               "it's what the others call",
	"internal/sys/sparefd_other.go openSpare":             "the null device",
	"internal/sys/cores.go firstText":                     kernels,
	"internal/sys/cpuinfo.go ReadCPUInfo":                 kernels,
	"internal/sys/migrate_linux.go readSharers":           kernels,
	"internal/sys/grouptime_linux.go GroupTime":           kernels,
	"internal/sys/own_unix.go privateGroup":               "the system's tables of users",
	"internal/sys/own_unix.go (outside of functions)":     kernels,
	"internal/dl/libfile/wheels.go InWheels":              kernels,
	"bootstrap/bootid.go bootID":                          kernels,
	"bootstrap/local.go listeners":                        kernels,
	"bootstrap/local.go launcherProcess":                  kernels,
	"bootstrap/local.go procStat":                         kernels,
	"cmd/chorus/doctor_host.go readText":                  kernels,
	"fabric/ucx/abi/find.go RDMADevices":                  kernels,
	"launch/internal/process/leftovers_linux.go marked":   kernels,
	"launch/internal/process/leftovers_linux.go Identity": kernels,
	"launch/internal/process/leftovers_linux.go stateOf":  kernels,
	"observe/record/rank.go handled":                      kernels,
	"observe/state_linux.go stateOf":                      kernels,
	"launch/secret_linux.go inMemory":                     "a file in memory that it has just made",
	"device/accinte/ipc.go openOf":                        othersMemory,
	"device/opencl/ipc.go open":                           othersMemory,
	"fabric/ucx/descriptors.go openFDs":                   "the root directory",
	"launch/internal/process/scratch.go Flock":            directory,
	"observe/record/shortpath_linux.go WithShortPath":     directory,
	"observe/read.go matching":                            directory,
	"internal/dl/call_unix.go open":                       "Open of dl checks the place before it",
	"internal/dl/call_unix.go loaded":                     "a library that the process has: nothing is opened",
	"cmd/internal/chaos/docs.go WriteDocs":                "a page of this repository",
	"capi/gen/cpp.go functions":                           sources,
	"capi/gen/forwards.go forwards":                       sources,
	"capi/gen/main.go generate":                           sources,
}

const (
	kernels      = "files of the kernel's, below /proc and /sys"
	othersMemory = "a descriptor of another rank, opened for writing too, which waits for nothing; its inode is compared"
	sources      = "sources of this repository"
	directory    = "a directory: a FIFO isn't waited for"
)

// TestOpens finds all that opens a path in another way than by this package.
func TestOpens(t *testing.T) {
	const root = "../.."
	seen := map[string]bool{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		name := d.Name()
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && (strings.HasPrefix(name, ".") || skipped(name)):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		in, _ := filepath.Rel(root, path)
		for _, call := range opens(t, path) {
			place := filepath.ToSlash(in) + " " + call.function
			seen[place] = true
			if opened[place] == "" {
				t.Errorf("%s calls %s: internal/sys opens what may be anything; or a reason goes into this test", place,
					call.name)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for place := range opened {
		if !seen[place] {
			t.Errorf("%s has a reason, and opens nothing", place)
		}
	}
	if len(seen) < 10 {
		t.Errorf("only %d places", len(seen))
	}
}

// skipped says whether a folder has no code that meets other programs' files: tests, examples, and what's built.
func skipped(name string) bool {
	return strings.HasSuffix(name, "test") || slices.Contains([]string{"testutil", "testdata", "examples", "build", "dist",
		"python", "testlines", "goref", "compare"}, name)
}

type openCall struct{ function, name string }

// opens are the calls of a file that open a path.
func opens(t *testing.T, path string) (all []openCall) {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]string{} // packages by their names in the file
	for _, i := range file.Imports {
		from, _ := strconv.Unquote(i.Path.Value)
		if _, of := opening[from]; of {
			names[from[strings.LastIndex(from, "/")+1:]] = from
			if i.Name != nil {
				names[i.Name.Name] = from
			}
		}
	}
	for _, d := range file.Decls {
		function := "(outside of functions)"
		if f, ok := d.(*ast.FuncDecl); ok {
			function = f.Name.Name
		}
		ast.Inspect(d, func(n ast.Node) bool {
			s, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if x, ok := s.X.(*ast.Ident); ok && slices.Contains(opening[names[x.Name]], s.Sel.Name) {
				all = append(all, openCall{function, x.Name + "." + s.Sel.Name})
			}
			return true
		})
	}
	return all
}
