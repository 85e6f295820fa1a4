package mpi

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/comm/commtest"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/internal/testutil"
	"github.com/chorus-comms/chorus/tensor"
)

// inRanks runs f in n ranks of each installation of MPI, which must all succeed. In a rank it runs f and ends MPI.
func inRanks(t *testing.T, n int, f func(t *testing.T, j *job), env ...string) {
	t.Helper()
	if inRank() {
		j := begin(t)
		f(t, j)
		j.end(t)
		return
	}
	all := installations()
	if len(all) == 0 {
		t.Skip("there is no mpirun")
	}
	for _, m := range all {
		if out, err := m.launch(t, n, env...); err != nil {
			t.Errorf("%s, %d ranks: %v\n%s", m.name, n, err, out)
		}
	}
}

// suite is the conformance suite's configuration in a rank.
func (j *job) suite() commtest.Config {
	return commtest.Config{Worlds: []int{j.size}, Ordinary: true, Meet: j.meet,
		Open: func(t testing.TB, size int) []*comm.Comm {
			t.Helper()
			if size != j.size {
				t.Skipf("it's for a world of %d", size)
			}
			j.worlds++
			c, err := j.open(fmt.Sprint("world", j.worlds))
			if err != nil {
				t.Fatal(err)
			}
			return []*comm.Comm{c}
		}}
}

// TestConformance runs the suite in ranks under mpirun.
func TestConformance(t *testing.T) {
	if !inRank() {
		for _, m := range installations() {
			text, err := exec.Command(m.mpirun, "--version").CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, text)
			}
			testutil.Ran(t, "").SetMPI(text, strings.Contains(m.library, "libmpi_abi"))
		}
	}
	if !inRank() && testutil.Short() {
		inRanks(t, 3, nil)
		return
	}
	for _, n := range []int{2, 3, 4} {
		inRanks(t, n, func(t *testing.T, j *job) { commtest.Run(t, j.suite()) })
		if inRank() {
			return
		}
	}
}

// TestProgram has a program that says no more than the name of the backend.
func TestProgram(t *testing.T) {
	if !inRank() {
		inRanks(t, 2, nil)
		return
	}
	ctx := context.Background()
	c, err := comm.New(ctx, comm.WithBackend("mpi"))
	if err != nil {
		t.Fatal(err)
	}
	x := tensor.Of([]float32{1, float32(c.Rank())})
	if err := c.AllReduce(ctx, x, comm.Sum); err != nil || x.At(0) != float64(c.Size()) {
		t.Error(x, err)
	}
	if err := c.Finalize(ctx); err != nil {
		t.Error(err)
	}
	if _, err := comm.New(ctx, comm.WithBackend("mpi"), comm.WithName("again"),
		comm.WithRank(0, 1)); err == nil || !strings.Contains(err.Error(), "can't start again") {
		t.Errorf("after the end of MPI: %v", err)
	}
}

// Another part of the process, such as mpi4py, may have started MPI, and ends it. Communicators can then begin again.
func TestStartedByOthers(t *testing.T) {
	if !inRank() {
		inRanks(t, 2, nil)
		return
	}
	theirs, err := load(os.Getenv("CHORUS_MPI_LIBRARY"))
	if err != nil {
		t.Fatal(err)
	}
	thread, got := newThread(), new(int32)
	thread.do(func() { theirs.InitThread.Call(0, 0, uintptr(theirs.family.Threads[multiple]), addr(got)) })
	j := new(job)
	if err := j.find(); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		c, err := j.open(fmt.Sprint("again", i))
		if err != nil {
			t.Fatal(err)
		}
		x := tensor.Of([]int32{1})
		if err := c.AllReduce(context.Background(), x, comm.Sum); err != nil || x.At(0) != 2 {
			t.Error(x, err)
		}
		if err := c.Finalize(context.Background()); err != nil {
			t.Error(err)
		}
	}
	j.meet(t)
	thread.do(func() { err = theirs.check("MPI_Finalize", theirs.Finalize.Call()) })
	if err != nil {
		t.Error(err)
	}
	theirs.exit()
}

// Fewer threads of MPI, and pieces of messages and reductions, are the same to the program.
func TestVariants(t *testing.T) {
	if !inRank() {
		testutil.SkipIfShort(t)
	}
	variants := map[string][]string{"serialized": {threadsVar + "=serialized"}, "funneled": {threadsVar + "=funneled"},
		"pieces": {piecesVar + "=1000"}}
	for name, env := range variants {
		t.Run(name, func(t *testing.T) {
			inRanks(t, 3, func(t *testing.T, j *job) {
				if level := process.lib.level; os.Getenv(threadsVar) != "" && level > serialized {
					t.Errorf("MPI gives the level %s", levels[level])
				}
				if os.Getenv(piecesVar) != "" {
					pieceBytes, pieceCount = 1000, 1000
				}
				commtest.Collectives(t, j.suite())
				commtest.PointToPoint(t, j.suite())
				commtest.Split(t, j.suite())
				commtest.Windows(t, j.suite())
			}, env...)
		})
	}
}

// Collectives that MPI has are its own, and others plans over its messages.
func TestAlgorithms(t *testing.T) {
	inRanks(t, 2, func(t *testing.T, j *job) {
		ctx := context.Background()
		var by []string
		j.first.RegisterCompletionHook(func(o comm.OpInfo, err error) { by = append(by, o.Algorithm) })
		run := func(dt dtype.DType, r comm.Reduction) {
			if err := j.first.AllReduce(ctx, tensor.Must(tensor.Empty(dt, 10)), r); err != nil {
				t.Error(dt, r, err)
			}
		}
		run(dtype.Float32, comm.Sum)
		run(dtype.Complex64, comm.Avg)
		run(dtype.Int8, comm.Max)
		run(dtype.Float64, comm.PremulSum(2))
		own := len(by)
		run(dtype.Float32, comm.Max)
		run(dtype.BFloat16, comm.Sum)
		run(dtype.Bool, comm.Sum)
		run(dtype.Complex64, comm.Product)
		for i, name := range by {
			if (name == "MPI_Iallreduce") != (i < own) {
				t.Errorf("operation %d was carried out by %s", i, name)
			}
		}
		if err := j.first.Barrier(ctx); err != nil || by[len(by)-1] != "MPI_Ibarrier" {
			t.Errorf("barrier: %v, by %s", err, by[len(by)-1])
		}
	})
}

// A library that can't be had, or that isn't the launcher's, is an error that every rank gets from the same rank.
func TestRefused(t *testing.T) {
	if inRank() {
		_, err := comm.New(context.Background(), comm.WithBackend("mpi"))
		if !errors.Is(err, comm.ErrUnsupported) {
			t.Fatalf("New = %v", err)
		}
		fmt.Println(err)
		return
	}
	refused := func(m mpi, library, text string) {
		t.Helper()
		m.library = library
		out, err := m.launch(t, 2)
		if n := strings.Count(out, text); err != nil || n != 2 {
			t.Errorf("%s, library %s: %v, %d ranks say %q:\n%s", m.name, library, err, n, text, out)
		}
	}
	all := installations()
	if len(all) == 0 {
		t.Skip("left out: there is no MPI")
	}
	for _, m := range all {
		refused(m, "/nowhere/libmpi.so", "new: rank 0: MPI is not on this machine: /nowhere/libmpi.so")
		for _, other := range all {
			if other.library != "" && m.openMPI() != other.openMPI() {
				refused(m, other.library, "isn't that of the launcher")
			}
		}
	}
}

// The library of the launcher's family is found in the folder that a variable names, though another one is where the
// dynamic linker looks.
func TestFoundByRoot(t *testing.T) {
	if inRank() {
		TestProgram(t)
		return
	}
	testutil.SkipIfShort(t)
	n := 0
	for _, folder := range fetched() {
		m := mpi{name: filepath.Base(folder), mpirun: filepath.Join(folder, "bin", "mpiexec"),
			env: []string{"MPI_ROOT=" + folder, "I_MPI_FABRICS=shm"}}
		if m.openMPI() {
			continue // whose name is that of the one in PATH
		}
		n++
		if out, err := m.launch(t, 2); err != nil {
			t.Errorf("%s: %v\n%s", m.name, err, out)
		}
	}
	if n == 0 {
		t.Skip("left out: scripts/fetch-mpi.sh has fetched nothing")
	}
}

// Ranks that no launcher of the library has started are worlds of their own for MPI.
func TestWithoutLauncher(t *testing.T) {
	if len(installations()) == 0 {
		t.Skip("there is no mpirun")
	}
	if inRank() {
		j := &job{}
		if err := j.find(); err != nil {
			t.Fatal(err)
		}
		_, err := j.open("apart")
		var no *backend.UnsupportedError
		if !errors.As(err, &no) || !strings.Contains(err.Error(), "isn't that of the launcher") {
			t.Errorf("rank %d: %v", j.rank, err)
		}
		return
	}
	if err := apart(t, 2); err != nil {
		t.Error(err)
	}
}

// TestKilledRank has a library that survives the death of a rank: the others name it.
func TestKilledRank(t *testing.T) {
	const n = 3
	if inRank() {
		killed(t, n)
		return
	}
	some := false
	for _, m := range installations() {
		if flags := m.survives(); flags != nil {
			some = true
			m.args = flags
			out, _ := m.launch(t, n) // whose status is that of the killed rank
			for r := range n - 1 {
				if !strings.Contains(out, fmt.Sprintf("rank %d knows", r)) {
					t.Errorf("%s: rank %d doesn't know:\n%s", m.name, r, out)
				}
			}
		}
	}
	if !some {
		t.Skip("no MPI whose ranks survive the death of one")
	}
}

// killed is a rank; the last one kills itself when the others are there.
func killed(t *testing.T, n int) {
	j := begin(t)
	ctx := context.Background()
	if err := j.first.Barrier(ctx); err != nil {
		t.Fatal(err)
	}
	j.meet(t)
	if j.rank == n-1 {
		self, _ := os.FindProcess(os.Getpid())
		self.Kill()
		select {}
	}
	start := time.Now()
	err := j.first.AllReduce(ctx, tensor.Of(make([]float32, 100)), comm.Sum)
	if lost := (*comm.PeerLostError)(nil); !errors.As(err, &lost) || lost.Peer != n-1 {
		t.Errorf("not the loss of rank %d: %v", n-1, err)
	} else {
		fmt.Printf("rank %d knows after %v: %v\n", j.rank, time.Since(start), err)
	}
	j.end(t)
}
