package abi

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/chorus-comms/chorus/internal/dl/libfile"
)

// Family is one of the libraries with this interface, whose backend has its name.
type Family struct {
	Name    string   // "nccl"
	Title   string   // as errors call it, "NCCL"
	Devices []string // types of devices
	Names   []string // of the shared library, as the dynamic linker looks for it
	Wheels  []string // where it is within a folder of Python packages
	Places  []string // where it is installed otherwise
}

// Families are all of them.
var Families = []Family{
	{Name: "nccl", Title: "NCCL", Devices: []string{"cuda"}, Names: []string{"libnccl.so.2", "libnccl.so"},
		Wheels: []string{"nvidia/nccl/lib/libnccl.so.2"}, Places: []string{"/usr/local/cuda/lib64/libnccl.so.2"}},
	{Name: "ncclx", Title: "NCCLX", Devices: []string{"cuda"}, Names: []string{"libncclx.so.2", "libncclx.so"},
		Wheels: []string{"torchcomms/lib/libncclx.so*", "torchcomms/libncclx.so*"}},
	{Name: "rccl", Title: "RCCL", Devices: []string{"hip"}, Names: []string{"librccl.so.1", "librccl.so"},
		Wheels: []string{"torch/lib/librccl.so*", "_rocm_sdk_libraries*/lib/librccl.so.1"},
		Places: []string{"/opt/rocm/lib/librccl.so.1", "/opt/rocm-*/lib/librccl.so.1"}},
}

// FamilyNamed returns the family of a backend; nil if there is none.
func FamilyNamed(name string) *Family {
	for i := range Families {
		if Families[i].Name == name {
			return &Families[i]
		}
	}
	return nil
}

// Candidates are where the library may be, in the order in which they're tried: what the dynamic linker finds, the
// Python's packages (package wheels), places of installation. Some are patterns.
func (f *Family) Candidates() []string {
	all := append([]string{}, f.Names...)
	return append(append(all, libfile.InWheels(f.Wheels...)...), f.Places...)
}

// Found is a library's file on this machine.
type Found struct {
	Path    string
	Version string   // as the file says; empty if it doesn't
	Has     []string // capabilities, sorted
	Lacks   []string // those that it doesn't have, with the first release that has them: "windows (2.27)"
	Err     error    // why it can't be used; nil if it seems that it can
}

// Find looks for a family's libraries where the dynamic linker and Candidates would, and reads what their files say. It
// loads nothing. place, if it isn't empty, is the file that a setting names, which comes first.
func (f *Family) Find(place string) (all []Found) {
	places := f.Candidates()
	if place != "" {
		named := place
		if !strings.Contains(named, "/") {
			named = "./" + named // a file, and not what the dynamic linker calls so
		}
		if len(libfile.Find(named)) == 0 {
			all = append(all, Found{Path: place, Err: errors.New("no such file")})
		}
		places = append([]string{named}, places...)
	}
	for _, p := range libfile.Find(places...) {
		all = append(all, Inspect(p))
	}
	return all
}

// Inspect reads what a library's file says of itself.
func Inspect(path string) Found {
	f := Found{Path: path}
	file, err := libfile.Open(path)
	if err != nil {
		f.Err = err
		return f
	}
	defer file.Close()
	there, err := file.Defined()
	if err != nil {
		f.Err = err
		return f
	}
	f.Version = versionIn(file)
	f.Has, f.Lacks, f.Err = capabilities(func(name string) bool { return there[name] })
	return f
}

// versionMark stands before the version in what libraries print at their start.
const versionMark = "CCL version " // of NCCL, or of RCCL

func versionIn(file *libfile.File) string {
	data := file.Constants()
	for {
		_, rest, ok := bytes.Cut(data, []byte(versionMark))
		if !ok {
			return ""
		}
		if n := bytes.IndexByte(rest, 0); n > 0 && n < 64 && rest[0] >= '0' && rest[0] <= '9' {
			return strings.TrimSpace(string(rest[:n]))
		}
		data = rest
	}
}

// capabilities says what a library with certain symbols has of the table. The error names those that it can't do
// without.
func capabilities(there func(symbol string) bool) (has, lacks []string, err error) {
	found := func(names string) bool { return slices.ContainsFunc(strings.Split(names, "|"), there) }
	for _, c := range Capabilities() {
		switch {
		case !slices.ContainsFunc(c.Symbols, func(s string) bool { return !found(s) }):
			has = append(has, c.Name)
		case c.Since != "":
			lacks = append(lacks, fmt.Sprintf("%s (%s)", c.Name, c.Since))
		default:
			lacks = append(lacks, c.Name)
		}
	}
	slices.Sort(has)
	slices.Sort(lacks)
	var needed []string
	t := reflect.TypeFor[Table]()
	for i := range t.NumField() {
		if tag := t.Field(i).Tag; tag.Get("cap") == "" && !found(tag.Get("dl")) {
			needed = append(needed, tag.Get("dl"))
		}
	}
	if needed != nil {
		err = fmt.Errorf("it lacks %s", strings.Join(needed, ", "))
	}
	return has, lacks, err
}
