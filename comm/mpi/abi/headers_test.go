package abi

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// header returns the C header of MPI for a family, and the folder that it's in: one of this machine, or of those that
// scripts/fetch-mpi.sh has fetched.
func header(t *testing.T, f *Family) (file, folder string) {
	t.Helper()
	patterns := map[*Family][]string{
		OpenMPI:  {"/usr/lib/*-linux-gnu/openmpi/include/mpi.h"},
		MPICH:    {"/usr/include/*-linux-gnu/mpich/mpi.h"},
		Standard: {"/usr/include/*-linux-gnu/mpich/mpi_abi.h"},
	}[f]
	cache := os.Getenv("CHORUS_TEST_MPI")
	if home, err := os.UserCacheDir(); cache == "" && err == nil {
		cache = filepath.Join(home, "chorus-mpi")
	}
	patterns = append(patterns, filepath.Join(cache, "*/include/mpi*.h"))
	marks := map[*Family]string{OpenMPI: "ompi_mpi_comm_world", MPICH: "0x44000000", Standard: "MPI_ABI_Comm"}
	for _, p := range patterns {
		found, _ := filepath.Glob(p)
		for _, path := range found {
			text, err := os.ReadFile(path)
			if base := filepath.Base(path); err == nil && (base == "mpi.h" || base == "mpi_abi.h") &&
				strings.Contains(string(text), marks[f]) {
				return path, filepath.Dir(path)
			}
		}
	}
	t.Skipf("no header of %s on this machine (libopenmpi-dev, libmpich-dev, or scripts/fetch-mpi.sh)", f.Name)
	return "", ""
}

// The values of every family are those of its header, as a C compiler takes them.
func TestHeaders(t *testing.T) {
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("no C compiler")
	}
	for _, f := range []*Family{OpenMPI, MPICH, Standard} {
		t.Run(f.Name, func(t *testing.T) {
			file, folder := header(t, f)
			var b strings.Builder
			fmt.Fprintf(&b, "#include \"%s\"\n#include <stddef.h>\n", file)
			same := func(what string, c string, v int64) {
				fmt.Fprintf(&b, "_Static_assert((%s) == (%d), \"%s\");\n", c, v, what)
			}
			same("MPI_ANY_SOURCE", "MPI_ANY_SOURCE", int64(f.AnySource))
			same("MPI_TAG_UB", "MPI_TAG_UB", int64(f.TagUB))
			same("MPI_SUCCESS", "MPI_SUCCESS", 0)
			same("MPI_SOURCE", "offsetof(MPI_Status, MPI_SOURCE)", int64(f.Source))
			for i, name := range []string{"SINGLE", "FUNNELED", "SERIALIZED", "MULTIPLE"} {
				same(name, "MPI_THREAD_"+name, int64(f.Threads[i]))
			}
			fmt.Fprintf(&b, "_Static_assert(sizeof(MPI_Status) <= %d, \"MPI_Status\");\n", StatusBytes)
			fmt.Fprintf(&b, "int handles(void) { return MPI_IN_PLACE == (void *)%dL", int64(f.InPlace))
			for name, v := range f.Handles {
				fmt.Fprintf(&b, "\n\t&& (long)%s == %dL", name, v)
			}
			b.WriteString(";\n}\n")
			for name, symbol := range f.Symbols { // one that isn't the same is no constant
				fmt.Fprintf(&b, "char same_%s[(void *)%s == (void *)&%s ? 1 : -1];\n", symbol, name, symbol)
			}
			dir := t.TempDir()
			source, program := filepath.Join(dir, "t.c"), filepath.Join(dir, "t")
			if f.Symbols == nil {
				b.WriteString("int main(void) { return !handles(); }\n")
			} else { // each symbol is an address of its own
				b.WriteString("int main(void) { return 0; }\n")
			}
			if err := os.WriteFile(source, []byte(b.String()), 0o600); err != nil {
				t.Fatal(err)
			}
			args := []string{"-w", "-I", folder, "-o", program, source}
			if f.Symbols != nil { // compiled alone: the header has to declare them
				args = append([]string{"-c"}, args...)
			}
			if out, err := exec.Command(cc, args...).CombinedOutput(); err != nil {
				t.Fatalf("%s says something else: %v\n%s", file, err, out)
			}
			if f.Symbols == nil {
				if err := exec.Command(program).Run(); err != nil {
					t.Errorf("%s has other values of handles", file)
				}
			}
		})
	}
}

// Libraries of this machine are of the family that their names say.
func TestFind(t *testing.T) {
	if _, err := os.Stat("/etc/hostname"); err != nil {
		t.Skip(err)
	}
	all := Find("/no/such/libmpi.so", os.Getenv)
	if len(all) == 0 || all[0].Err == nil || all[0].Path != "/no/such/libmpi.so" {
		t.Errorf("%+v", all)
	}
	for _, f := range all[1:] {
		want := MPICH
		switch base := filepath.Base(f.Path); {
		case strings.HasPrefix(base, "libmpi_abi."):
			want = Standard
		case strings.Contains(base, ".so.40"):
			want = OpenMPI
		}
		if f.Err == nil && f.Family != want {
			t.Errorf("%s is of %s", f.Path, f.Family.Name)
		}
	}
}

// The launcher's own library comes first, and the folders of variables before what the dynamic linker finds.
func TestCandidates(t *testing.T) {
	for _, c := range []struct {
		env  string
		want []string // in this order, with others between them
	}{
		{"", []string{"libmpi_abi.so.1", "libmpi.so.12", "libmpi.so.40", "libmpi.so"}},
		{"OMPI_COMM_WORLD_SIZE=2", []string{"libmpi.so.40", "libmpi.so.12", "libmpi_abi.so.1", "libmpi.so"}},
		{"PMI_SIZE=2", []string{"libmpi_abi.so.1", "libmpi.so.12", "libmpi.so.40", "libmpi.so"}},
		{"PMI_SIZE=2 MPI_ROOT=/m", []string{"/m/lib/libmpi_abi.so.1", "/m/lib/libmpi.so.12", "libmpi_abi.so.1",
			"libmpi.so.12", "/m/lib/libmpi.so.40", "libmpi.so.40"}},
		{"OMPI_COMM_WORLD_SIZE=2 MPI_HOME=/m", []string{"/m/lib/libmpi.so.40", "libmpi.so.40", "/m/lib/libmpi.so.12",
			"libmpi.so.12"}},
		{"PMIX_RANK=0 I_MPI_ROOT=/i", []string{"/i/lib/libmpi.so.40", "/i/lib/libmpi.so.12", "libmpi.so.40",
			"libmpi.so.12"}},
	} {
		env := map[string]string{}
		for _, v := range strings.Fields(c.env) {
			name, value, _ := strings.Cut(v, "=")
			env[name] = value
		}
		got := Candidates(func(name string) string { return env[name] })
		left := c.want
		for _, place := range got {
			if len(left) > 0 && place == left[0] {
				left = left[1:]
			}
		}
		if got[0] != c.want[0] || len(left) > 0 {
			t.Errorf("with %q: %v; %v isn't there, or too early", c.env, got, left)
		}
	}
}
