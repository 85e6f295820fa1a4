// Command goref writes the reference of the module's packages as pages of Markdown: one for each package that programs
// can import, and an index. It's the site's counterpart of `go doc`.
//
//	go run ./site/goref out/site-pages
//
// The folder gets go/index.md and go/PACKAGE.md. Links among packages lead to their pages, those to other modules to
// pkg.go.dev.
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: go run ./site/goref FOLDER, in the root of the module")
		os.Exit(2)
	}
	if err := run(".", os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "goref:", err)
		os.Exit(1)
	}
}

// run writes the pages of the module in root into a folder, which loses those of packages that are no more.
func run(root, into string) error {
	m, err := load(root)
	if err != nil {
		return err
	}
	into = filepath.Join(into, "go")
	if err := os.RemoveAll(into); err != nil {
		return err
	}
	for name, text := range m.pages() {
		path := filepath.Join(into, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}
