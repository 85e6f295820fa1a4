// Command gen writes chorus.h, the header of the C ABI, whose text is chorus.h.tmpl and whose constants are those of
// the Go packages, and the same for Python, _abi.py. It's run from the module's root.
//
//	go run ./capi/gen
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	files, err := generate()
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

// generate returns the files, by their paths in the module.
func generate() (map[string]string, error) {
	h, err := header()
	if err != nil {
		return nil, err
	}
	py, err := python(string(h))
	return map[string]string{"capi/chorus.h": string(h), "python/chorus/_abi.py": py}, err
}
