package mpi

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/bootstrap"
	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/internal/testutil"
	"github.com/chorus-comms/chorus/store"
)

// Variables of a process that is a rank of a test.
const (
	storeVar   = "CHORUS_TEST_MPI_STORE"
	threadsVar = "CHORUS_TEST_MPI_THREADS"
	piecesVar  = "CHORUS_TEST_MPI_PIECES"
	rankVar    = "CHORUS_TEST_MPI_RANK" // of a process that no launcher has started
	sizeVar    = "CHORUS_TEST_MPI_SIZE"
)

// An mpi is an installation of MPI: its launcher, and the library where the dynamic linker doesn't find it.
type mpi struct {
	name    string
	mpirun  string
	library string
	args    []string
	env     []string
}

// installations are those of this machine: Open MPI in PATH, and unless the test is brief those that
// scripts/fetch-mpi.sh has fetched.
func installations() (all []mpi) {
	open := []string{"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1", "PRTE_ALLOW_RUN_AS_ROOT=1",
		"PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1"}
	if path, err := exec.LookPath("mpirun"); err == nil {
		all = append(all, mpi{name: "path", mpirun: path, env: open})
	}
	for _, folder := range fetched() {
		lib := filepath.Join(folder, "lib")
		found, _ := filepath.Glob(lib + "/libmpi*.so.*[0-9]")
		seen := map[string]bool{}
		for _, l := range found {
			base := filepath.Base(l)
			switch base {
			case "libmpi.so.12", "libmpi.so.40", "libmpi_abi.so.1":
			default:
				continue
			}
			if seen[base] {
				continue
			}
			seen[base] = true
			all = append(all, mpi{name: filepath.Base(folder) + "/" + base, mpirun: filepath.Join(folder, "bin", "mpiexec"),
				library: l, env: append(open, "LD_LIBRARY_PATH="+lib, "I_MPI_FABRICS=shm", "I_MPI_ROOT="+folder)})
		}
	}
	return all
}

// fetched are the folders of scripts/fetch-mpi.sh.
func fetched() []string {
	cache := os.Getenv("CHORUS_TEST_MPI")
	if home, err := os.UserCacheDir(); cache == "" && err == nil {
		cache = filepath.Join(home, "chorus-mpi")
	}
	if cache == "" || testutil.Short() {
		return nil
	}
	folders, _ := filepath.Glob(filepath.Join(cache, "*"))
	return folders
}

// openMPI reports whether the launcher is that of Open MPI, whose ranks may be more than the cores if it's told.
func (m mpi) openMPI() bool {
	text, _ := exec.Command(m.mpirun, "--version").CombinedOutput()
	return strings.Contains(string(text), "Open MPI")
}

// launch runs the test that calls it in n ranks, and returns their output.
func (m mpi) launch(t *testing.T, n int, env ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	args := []string{"-n", strconv.Itoa(n)}
	if m.openMPI() {
		args = append(args, "--oversubscribe")
	}
	args = append(append(args, m.args...), os.Args[0], "-test.timeout=9m",
		"-test.run=^"+strings.ReplaceAll(t.Name(), "/", "$/^")+"$")
	cmd := exec.CommandContext(ctx, m.mpirun, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	cmd.Env = append(append(append(os.Environ(), m.env...), storeVar+"="+filepath.Join(t.TempDir(), "store"),
		testutil.OpenMPIFolder(t)), env...)
	if m.library != "" {
		cmd.Env = append(cmd.Env, "CHORUS_MPI_LIBRARY="+m.library)
	}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// job is this process as a rank of a test.
type job struct {
	rank, size int
	store      store.Store
	first      *comm.Comm // keeps MPI
	worlds     int
	meetings   int
}

// inRank reports whether this process is a rank of a test.
func inRank() bool { return os.Getenv(storeVar) != "" }

// begin makes this process a rank of the job that its launcher describes.
func begin(t testing.TB) *job {
	t.Helper()
	j := new(job)
	err := j.find()
	if err == nil {
		j.first, err = j.open("first")
	}
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// find finds the rank and the store.
func (j *job) find() error {
	if r, err := strconv.Atoi(os.Getenv(rankVar)); err == nil {
		j.rank = r
		j.size, _ = strconv.Atoi(os.Getenv(sizeVar))
	} else {
		info, err := bootstrap.Detect(os.Getenv)
		if err != nil {
			return err
		}
		j.rank, j.size = info.Rank, info.Size
	}
	var err error
	j.store, err = store.OpenFile(context.Background(), os.Getenv(storeVar), store.FileOptions{})
	return err
}

// apart runs the test that calls it in n processes that no launcher of MPI has started.
func apart(t *testing.T, n int) error {
	path := filepath.Join(t.TempDir(), "store")
	cmds, outs := make([]*exec.Cmd, n), make([]strings.Builder, n)
	for r := range n {
		cmds[r] = exec.Command(os.Args[0], "-test.timeout=1m", "-test.run=^"+t.Name()+"$")
		cmds[r].Env = append(os.Environ(), rankVar+"="+strconv.Itoa(r), sizeVar+"="+strconv.Itoa(n), storeVar+"="+path,
			testutil.OpenMPIFolder(t))
		cmds[r].Stdout, cmds[r].Stderr = &outs[r], &outs[r]
		if err := cmds[r].Start(); err != nil {
			return err
		}
	}
	var all error
	for r, c := range cmds {
		if err := c.Wait(); err != nil {
			all = errors.Join(all, fmt.Errorf("rank %d: %w: %s", r, err, outs[r].String()))
		}
	}
	return all
}

// survives returns the flags with which the launcher leaves ranks alone when another one dies; nil if there are none.
// MPICH's -disable-auto-cleanup is left out: its launcher, of 5.0.2, ends with a failed assertion.
func (m mpi) survives() []string {
	if strings.HasSuffix(m.library, "libmpi.so.40") && m.openMPI() {
		text, _ := exec.Command(m.mpirun, "--version").CombinedOutput()
		if strings.Contains(string(text), " 5.") {
			return []string{"--with-ft", "ulfm"}
		}
	}
	return nil
}

func (j *job) open(name string, more ...comm.NewOption) (*comm.Comm, error) {
	hints := map[string]string{}
	if s := os.Getenv(threadsVar); s != "" {
		hints[threadsHint] = s
	}
	opts := append([]comm.NewOption{comm.WithBackend(Name), comm.WithRank(j.rank, j.size), comm.WithStore(j.store),
		comm.WithName(name), comm.WithTimeout(30 * time.Second), comm.WithHints(hints)}, more...)
	return comm.New(context.Background(), opts...)
}

// end ends the job's first communicator, and with it MPI.
func (j *job) end(t testing.TB) {
	if err := errors.Join(j.first.Finalize(context.Background()), j.store.Close()); err != nil {
		t.Error(err)
	}
}

// meet returns when all ranks have called it.
func (j *job) meet(t testing.TB) {
	j.meetings++
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	key := fmt.Sprint("meeting/", j.meetings, "/")
	err := j.store.Set(ctx, key+fmt.Sprint(j.rank), nil)
	for r := range j.size {
		if err == nil {
			_, err = j.store.Get(ctx, key+fmt.Sprint(r))
		}
	}
	if err != nil {
		t.Error(err)
	}
}
