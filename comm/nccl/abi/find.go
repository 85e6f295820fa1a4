package abi

import (
	"os"
	"path/filepath"
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

// Candidates are where the library may be, in the order in which they're tried: what the dynamic linker finds, the Python
// environment (VIRTUAL_ENV, CONDA_PREFIX), places of installation. Some are patterns.
func (f *Family) Candidates() []string {
	all := append([]string{}, f.Names...)
	for _, v := range []string{"VIRTUAL_ENV", "CONDA_PREFIX"} {
		if root := os.Getenv(v); root != "" {
			for _, w := range f.Wheels {
				all = append(all, filepath.Join(root, "lib", "python3*", "site-packages", w))
			}
		}
	}
	return append(all, f.Places...)
}
