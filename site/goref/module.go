package main

import (
	"go/ast"
	"go/build"
	"go/doc"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// module is what is documented: the packages that other modules can import, by their import path.
type module struct {
	path     string
	fset     *token.FileSet
	packages map[string]*doc.Package
}

var modulePath = regexp.MustCompile(`(?m)^module (\S+)$`)

// load reads the packages of the module in root, as they are on Linux without cgo: what most users have, and the same
// on every machine.
func load(root string) (*module, error) {
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		return nil, err
	}
	m := &module{path: string(modulePath.FindSubmatch(mod)[1]), fset: token.NewFileSet(),
		packages: map[string]*doc.Package{}}
	return m, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		if path != root && (strings.HasPrefix(d.Name(), ".") || strings.HasPrefix(d.Name(), "_") || d.Name() == "internal" ||
			d.Name() == "testdata") {
			return filepath.SkipDir
		}
		if _, err := os.Stat(filepath.Join(path, "go.mod")); err == nil && path != root {
			return filepath.SkipDir // a module of its own
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		return m.add(path, strings.TrimSuffix(m.path+"/"+filepath.ToSlash(rel), "/."))
	})
}

// add reads the package of a folder, if it has one that can be imported.
func (m *module) add(dir, importPath string) error {
	target := build.Default
	target.GOOS, target.GOARCH, target.CgoEnabled = "linux", "amd64", false
	found, err := target.ImportDir(dir, 0)
	if _, none := err.(*build.NoGoError); none || err == nil && found.Name == "main" {
		return nil
	} else if err != nil {
		return err
	}
	var files []*ast.File
	for _, name := range slices.Concat(found.GoFiles, found.TestGoFiles, found.XTestGoFiles) {
		f, err := parser.ParseFile(m.fset, filepath.Join(dir, name), nil, parser.ParseComments)
		if err != nil {
			return err
		}
		files = append(files, f)
	}
	if len(found.GoFiles) == 0 {
		return nil // tests alone
	}
	m.packages[importPath], err = doc.NewFromFiles(m.fset, files, importPath)
	return err
}

// short is the name of a package within the module: "comm/backend".
func (m *module) short(importPath string) string {
	if importPath == m.path {
		return filepath.Base(m.path)
	}
	return strings.TrimPrefix(importPath, m.path+"/")
}
