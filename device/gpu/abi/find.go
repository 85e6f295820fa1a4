package abi

import (
	"debug/elf"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
)

// Found is a library's file on this machine.
type Found struct {
	Path  string
	Has   []string // capabilities, in the table's order
	Lacks []string // with the first release that has them: "graphs (11.4)"
	Err   error    // why it can't be used; nil if it seems that it can
}

// Find looks for the family's libraries where the dynamic linker would, and in its places, and reads what their files
// say. It loads nothing.
func (f *Family) Find() (all []Found) {
	folders := append(filepath.SplitList(os.Getenv("LD_LIBRARY_PATH")), "/lib", "/usr/lib", "/usr/local/lib", "/lib64",
		"/usr/lib64", "/lib/*-linux-gnu", "/usr/lib/*-linux-gnu")
	var paths []string
	for _, place := range f.Places {
		patterns := []string{place}
		if !strings.Contains(place, "/") {
			patterns = nil
			for _, folder := range folders {
				patterns = append(patterns, filepath.Join(folder, place))
			}
		}
		for _, p := range patterns {
			matches, _ := filepath.Glob(p) // a bad pattern is of a folder with odd characters, in which there is nothing
			for _, m := range matches {
				if real, err := filepath.EvalSymlinks(m); err == nil && !slices.Contains(paths, real) {
					paths = append(paths, real)
				}
			}
		}
	}
	for _, p := range paths {
		all = append(all, f.Inspect(p))
	}
	return all
}

// Inspect reads what a library's file says of itself.
func (f *Family) Inspect(path string) Found {
	found := Found{Path: path}
	file, err := elf.Open(path)
	if err != nil {
		found.Err = err
		return found
	}
	defer file.Close()
	symbols, err := file.DynamicSymbols()
	if err != nil {
		found.Err = err
		return found
	}
	there := map[string]bool{}
	for _, s := range symbols {
		there[s.Name] = there[s.Name] || s.Section != elf.SHN_UNDEF
	}
	var missing, order []string
	lacks, since := map[string]bool{}, map[string]string{}
	Symbols(func(field reflect.StructField, names []string) {
		at := slices.IndexFunc(names, func(n string) bool { return strings.HasPrefix(n, f.Prefix) })
		if at < 0 {
			return // the other library's alone
		}
		c := field.Tag.Get("cap")
		if c == "" || c == f.Own {
			if !there[names[at]] {
				missing = append(missing, names[at])
			}
			return
		}
		if !slices.Contains(order, c) {
			order = append(order, c)
		}
		lacks[c] = lacks[c] || !there[names[at]]
		if v := field.Tag.Get("since"); v != "" {
			since[c] = v
		}
	})
	for _, c := range order {
		switch {
		case !lacks[c]:
			found.Has = append(found.Has, c)
		case since[c] != "" && f.Name == "cuda":
			found.Lacks = append(found.Lacks, fmt.Sprintf("%s (%s)", c, since[c]))
		default:
			found.Lacks = append(found.Lacks, c)
		}
	}
	if missing != nil {
		found.Err = fmt.Errorf("it lacks %s", strings.Join(missing, ", "))
	}
	return found
}
