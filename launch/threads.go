package launch

import (
	"bufio"
	"debug/elf"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/chorus-comms/chorus/internal/sys"
)

// threadsVariable says how many threads OpenMP uses in a process, and with it PyTorch and OpenBLAS.
const threadsVariable = "OMP_NUM_THREADS"

// threads is the number of threads that a rank of this node is given; 0 if it's given none: the environment says it, or
// it has the node for itself.
func (r *runner) threads(localRank int) int {
	switch set, _ := r.job.lookup(threadsVariable); {
	case set != "":
		return 0
	case r.bound != nil:
		return r.bound[localRank].threads()
	case len(r.places) > 1:
		return 1
	}
	return 0
}

// sayThreads prints that ranks get a setting of one thread each, which their program may ignore.
func (r *runner) sayThreads() {
	if r.bound == nil && r.threads(0) > 0 && usesOpenMP(r.job.Command[0]) {
		r.console.Printf("OMP_NUM_THREADS is set to 1 for each rank, so that the ranks do not crowd the cores; set it yourself for the best speed")
	}
}

// usesOpenMP reports whether a program seems to use OpenMP: it's Python, a script for Python, or linked to a library
// that uses it.
func usesOpenMP(program string) bool {
	path, err := exec.LookPath(program)
	if err != nil {
		return false
	}
	if isPython(path) {
		return true
	}
	f, _, err := sys.OpenRegular(path)
	if err != nil {
		return false
	}
	defer f.Close()
	if line, err := bufio.NewReader(f).ReadSlice('\n'); err == nil && strings.HasPrefix(string(line), "#!") {
		for _, word := range strings.Fields(string(line[2:])) { // env may come first
			if isPython(word) {
				return true
			}
		}
		return false
	}
	binary, err := elf.NewFile(f)
	if err != nil {
		return false
	}
	libraries, _ := binary.ImportedLibraries()
	for _, l := range libraries {
		for _, known := range []string{"libgomp.", "libiomp5.", "libomp.", "libopenblas", "libmkl_", "libtorch"} {
			if strings.HasPrefix(l, known) {
				return true
			}
		}
	}
	return false
}

// isPython reports whether a path is that of an interpreter, such as python3.12 or pypy3.
func isPython(path string) bool {
	name := filepath.Base(path)
	return strings.HasPrefix(name, "python") || strings.HasPrefix(name, "pypy")
}
