package abi

import (
	"debug/elf"
	"errors"
	"path/filepath"
	"slices"
	"strings"

	"github.com/chorus-comms/chorus/internal/dl/libfile"
)

// names are those of the shared libraries, as the dynamic linker looks for them.
var names = map[*Family][]string{
	OpenMPI:  {"libmpi.so.40"},
	MPICH:    {"libmpi.so.12", "libmpich.so.12", "libmpi_intel.so.12", "libmpi_cray.so.12"},
	Standard: {"libmpi_abi.so.1", "libmpi_abi.so"},
}

// Candidates are where a library may be, in the order in which they're tried: the family of the launcher first. getenv
// is os.Getenv outside of tests.
func Candidates(getenv func(string) string) (all []string) {
	order := []*Family{Standard, MPICH, OpenMPI}
	if getenv("OMPI_COMM_WORLD_SIZE") != "" || getenv("PMI_SIZE") == "" && getenv("PMIX_RANK") != "" {
		order = []*Family{OpenMPI, MPICH, Standard}
	}
	for _, f := range order {
		all = append(all, names[f]...)
	}
	all = append(all, "libmpi.so")
	for _, f := range order {
		for _, name := range names[f] {
			for _, root := range []string{"VIRTUAL_ENV", "CONDA_PREFIX", "MPI_HOME", "MPI_ROOT", "I_MPI_ROOT"} {
				if folder := getenv(root); folder != "" {
					all = append(all, filepath.Join(folder, "lib", name))
				}
			}
		}
	}
	return all
}

// Found is a library's file on this machine.
type Found struct {
	Path   string
	Family *Family
	Err    error // why it can't be used; nil if it seems that it can
}

// Find looks for libraries where the dynamic linker and Candidates would, and reads their symbols. It loads nothing.
// place, if it isn't empty, is the file that a setting names, which comes first.
func Find(place string, getenv func(string) string) (all []Found) {
	places := Candidates(getenv)
	if place != "" {
		if len(libfile.Find(place)) == 0 {
			all = append(all, Found{Path: place, Err: errors.New("no such file")})
		}
		places = append([]string{place}, places...)
	}
	for _, p := range libfile.Find(places...) {
		all = append(all, inspect(p))
	}
	return all
}

func inspect(path string) Found {
	f := Found{Path: path}
	file, err := elf.Open(path)
	if err != nil {
		f.Err = err
		return f
	}
	defer file.Close()
	there, err := libfile.Defined(file)
	if err != nil {
		f.Err = err
		return f
	}
	soname, _ := file.DynString(elf.DT_SONAME) // no library has to have one
	switch {
	case !there["MPI_Init_thread"]:
		f.Err = errors.New("it lacks MPI_Init_thread")
	case there["ompi_mpi_comm_world"]:
		f.Family = OpenMPI
	case slices.ContainsFunc(soname, func(s string) bool { return strings.HasPrefix(s, "libmpi_abi.") }):
		f.Family = Standard
	default:
		f.Family = MPICH
	}
	return f
}
