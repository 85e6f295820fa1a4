// Command gen writes what tables in Go and the header of the C ABI decide: regions of chorus.h, for Python _abi.py,
// and for C++ the structs of kernels and the list of functions. It's run from the module's root.
//
//	go run ./capi/gen
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	files, err := generate(".")
	for name, text := range files {
		if err == nil {
			err = os.WriteFile(filepath.FromSlash(name), []byte(text), 0o644)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// generate returns the files, by their paths in the module, whose root is a directory.
func generate(root string) (map[string]string, error) {
	text, err := os.ReadFile(filepath.Join(root, "capi/chorus.h"))
	if err != nil {
		return nil, err
	}
	h, err := header(string(text))
	if err != nil {
		return nil, err
	}
	d, err := parse(h)
	if err != nil {
		return nil, err
	}
	py, err := python(d)
	if err != nil {
		return nil, err
	}
	c, err := forwards(root, h)
	if err != nil {
		return nil, err
	}
	called, err := functions(root, d)
	declared, defined := structs()
	return map[string]string{"capi/chorus.h": h, "capi/forwards.h": c, "python/chorus/_abi.py": py, csrc + "/runtime/functions.h": called,
		csrc + "/native/kernels.h": declared, csrc + "/native/kernels.cpp": defined,
		csrc + "/native/element_rules.h": typing()}, err
}
