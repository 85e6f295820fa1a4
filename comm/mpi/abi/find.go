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

// roots are the variables of environments and of MPI's installations, whose folder lib may have a library.
var roots = []string{"VIRTUAL_ENV", "CONDA_PREFIX", "MPI_HOME", "MPI_ROOT", "I_MPI_ROOT"}

// Candidates are where a library may be, in the order in which they're tried: the launcher's own families first, where
// its variables tell them. Of the same families the folders that variables name come before what the dynamic linker
// finds. getenv is os.Getenv outside of tests.
func Candidates(getenv func(string) string) (all []string) {
	groups := [][]*Family{{Standard, MPICH, OpenMPI}}
	switch {
	case getenv("OMPI_COMM_WORLD_SIZE") != "":
		groups = [][]*Family{{OpenMPI}, {MPICH, Standard}}
	case getenv("PMI_SIZE") != "":
		groups = [][]*Family{{Standard, MPICH}, {OpenMPI}}
	case getenv("PMIX_RANK") != "": // which Open MPI takes by itself, and Intel MPI as well
		groups = [][]*Family{{OpenMPI, MPICH, Standard}}
	}
	for _, group := range groups {
		var bare []string
		for _, f := range group {
			for _, name := range names[f] {
				for _, root := range roots {
					if folder := getenv(root); folder != "" {
						all = append(all, filepath.Join(folder, "lib", name))
					}
				}
			}
			bare = append(bare, names[f]...)
		}
		all = append(all, bare...)
	}
	return append(all, "libmpi.so")
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
