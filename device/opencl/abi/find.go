package abi

import (
	"errors"
	"path/filepath"

	"github.com/chorus-comms/chorus/internal/dl/libfile"
)

// Found is a library's file on this machine.
type Found struct {
	Path   string
	Loader bool     // it's a loader, which knows the drivers of the machine; else a driver
	Has    []string // capabilities of a loader; a driver tells them when it's loaded
	Lacks  []string
	Err    error // why it can't be used; nil if it seems that it can
}

// Find looks for loaders and drivers as package opencl does, and reads what their files say. It loads nothing. files
// are those that are looked at instead, separated as in PATH; empty: what there is.
func Find(files string) (all []Found) {
	places := append(append([]string{}, Names...), libfile.InWheels(Wheels...)...)
	if files != "" {
		places = filepath.SplitList(files)
	}
	for _, p := range libfile.Find(places...) {
		all = append(all, inspect(p))
	}
	return all
}

func inspect(path string) Found {
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
	found.Loader = there["clGetPlatformIDs"]
	if !found.Loader {
		if !there["clGetExtensionFunctionAddress"] {
			found.Err = errors.New("it's neither a loader nor a driver of OpenCL")
		}
		return found
	}
	lacks := map[string]bool{}
	var order []string
	for _, f := range fields() {
		c, name := f.Tag.Get("cap"), f.Tag.Get("dl")
		if c == "" {
			if !there[name] && found.Err == nil {
				found.Err = errors.New("it lacks " + name)
			}
			continue
		}
		if _, seen := lacks[c]; !seen {
			order = append(order, c)
		}
		lacks[c] = lacks[c] || !there[name]
	}
	for _, c := range order {
		if lacks[c] {
			found.Lacks = append(found.Lacks, c+" (2.0)")
		} else {
			found.Has = append(found.Has, c)
		}
	}
	return found
}
