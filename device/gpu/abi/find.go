package abi

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/chorus-comms/chorus/internal/dl/libfile"
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
	for _, p := range libfile.Find(f.Candidates()...) {
		all = append(all, f.Inspect(p))
	}
	return all
}

// Inspect reads what a library's file says of itself.
func (f *Family) Inspect(path string) Found {
	found := Found{Path: path}
	file, err := libfile.Open(path)
	if err != nil {
		found.Err = err
		return found
	}
	defer file.Close()
	there, err := file.Defined()
	if err != nil {
		found.Err = err
		return found
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
