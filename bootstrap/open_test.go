package bootstrap

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/chorus-comms/chorus/config"
	"github.com/chorus-comms/chorus/internal/testutil"
	"github.com/chorus-comms/chorus/internal/testutil/nettest"
	"github.com/chorus-comms/chorus/secure"
	"github.com/chorus-comms/chorus/store"
)

// rankMain, in the environment, makes this test binary one rank of a job.
const rankMain = "CHORUS_TEST_RANK_MAIN"

func TestMain(m *testing.M) {
	if addr := os.Getenv(otherUserEnv); addr != "" {
		otherUserMain(addr)
		os.Exit(0)
	}
	if os.Getenv(rankMain) != "" {
		if err := rankProgram(); err != nil {
			fmt.Println("FAILED:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// rankProgram is what each rank of a launched job runs.
func rankProgram() error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	info, err := Detect(os.Getenv)
	if err != nil {
		return err
	}
	st, err := Open(ctx, info, Options{})
	if err != nil {
		return err
	}
	mine := fmt.Sprintf("%d/%d-%s", info.Rank, info.Size, os.Getenv(rankMain))
	all, err := Exchange(ctx, store.NewPrefix("test", st), info.Rank, info.Size, []byte(mine))
	if err != nil {
		return err
	}
	fmt.Printf("rank %d (%s, local %d of %d) sees %s\n", info.Rank, info.Launcher, info.LocalRank, info.LocalSize,
		bytes.Join(all, []byte(" ")))
	return st.Close()
}

// launch runs this test binary under a launcher; each rank shows word to the others.
func launch(t *testing.T, word string, env []string, name string, args ...string) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, append(args, self)...)
	cmd.Env = append(env, rankMain+"="+word, testutil.OpenMPIFolder(t))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%s: %v\n%s", cmd, err, out)
	}
	return string(out)
}

// expect checks that each of size ranks saw all of them.
func expect(t *testing.T, out, word, launcher string, size int) {
	t.Helper()
	var all []string
	for r := range size {
		all = append(all, fmt.Sprintf("%d/%d-%s", r, size, word))
	}
	for r := range size {
		line := fmt.Sprintf("rank %d (%s, local %d of %d) sees %s", r, launcher, r, size, strings.Join(all, " "))
		if !strings.Contains(out, line) {
			t.Errorf("no line %q in\n%s", line, out)
		}
	}
}

// mpirun finds Open MPI.
func mpirun(t *testing.T) (string, []string) {
	t.Helper()
	path, err := exec.LookPath("mpirun")
	if err != nil {
		t.Skip("left out: no mpirun (Debian: openmpi-bin)")
	}
	version, _ := exec.Command(path, "--version").CombinedOutput()
	if !bytes.Contains(version, []byte("Open MPI")) {
		t.Skipf("left out: %s is not Open MPI's", path)
	}
	return path, []string{"--allow-run-as-root", "--oversubscribe", "-n", "4"}
}

// TestOpenMPI runs two jobs side by side, with no variable set by hand.
func TestOpenMPI(t *testing.T) {
	path, args := mpirun(t)
	before := sockets(t)
	var jobs sync.WaitGroup
	for _, word := range []string{"left", "right"} {
		jobs.Go(func() { expect(t, launch(t, word, testutil.PythonEnv(), path, args...), word, OpenMPI, 4) })
	}
	jobs.Wait()
	if after := sockets(t); after != before {
		t.Errorf("%d of our sockets before and %d after", before, after)
	}
}

// A shell between the launcher and the program changes nothing.
func TestOpenMPIThroughShell(t *testing.T) {
	path, args := mpirun(t)
	out := launch(t, "sh", testutil.PythonEnv(), path, append(args, "sh", "-c", `"$0"; exit $?`)...)
	expect(t, out, "sh", OpenMPI, 4)
}

// sockets counts the meeting points that exist on this host.
func sockets(t *testing.T) int {
	t.Helper()
	data, err := os.ReadFile("/proc/net/unix")
	if err != nil {
		t.Skip("no /proc/net/unix")
	}
	return bytes.Count(data, []byte("@chorus-store-"))
}

// TestNamelessJob has a launcher that names no job, as Hydra does: the ranks know
// each other by the process that started them.
func TestNamelessJob(t *testing.T) {
	script := `
		for i in 0 1 2; do
			( export PMI_RANK=$i PMI_SIZE=3 MPI_LOCALRANKID=$i MPI_LOCALNRANKS=3
			  if [ $i = 1 ]; then sh -c '"$0"; exit $?' "$0"; else "$0"; fi ) &
		done
		wait`
	var jobs sync.WaitGroup
	for _, word := range []string{"left", "right"} {
		jobs.Go(func() { expect(t, launch(t, word, testutil.PythonEnv(), "sh", "-c", script), word, PMI, 3) })
	}
	jobs.Wait()
}

// TestTorchrun meets at torchrun's own store, and at one that rank 0 serves.
func TestTorchrun(t *testing.T) {
	python := testutil.Python(t)
	args := []string{"-m", "torch.distributed.run", "--nnodes=1", "--nproc-per-node=3", "--no-python"}
	t.Run("AgentStore", func(t *testing.T) {
		out := launch(t, "agent", testutil.PythonEnv(), python, slices.Concat(args, []string{"--standalone"})...)
		expect(t, out, "agent", TorchRun, 3)
	})
	t.Run("OwnStore", func(t *testing.T) {
		testutil.SkipIfShort(t)
		env := testutil.PythonEnv("TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1")
		out := launch(t, "own", env, python, slices.Concat(args, []string{"--standalone"})...)
		expect(t, out, "own", TorchRun, 3)
	})
}

// freePort returns a port on which no process listens.
func freePort(t *testing.T) int {
	t.Helper()
	port, err := nettest.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// world opens the store of every rank.
func world(t *testing.T, info Info, opts Options) []store.Store {
	t.Helper()
	stores := make([]store.Store, info.Size)
	var wg sync.WaitGroup
	for r := range stores {
		wg.Go(func() {
			i := info
			i.Rank = r
			var err error
			if stores[r], err = Open(t.Context(), i, opts); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	t.Cleanup(func() {
		for _, st := range slices.Backward(stores) {
			if st != nil {
				if err := st.Close(); err != nil {
					t.Error(err)
				}
			}
		}
	})
	if t.Failed() {
		t.FailNow()
	}
	return stores
}

func TestOpen(t *testing.T) {
	agent, err := store.ListenTCP("127.0.0.1:0", store.ServerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { agent.Close() })
	for name, info := range map[string]Info{
		"alone":      {Size: 1},
		"master":     {Size: 3, MasterAddr: "127.0.0.1", MasterPort: freePort(t)},
		"localhost":  {Size: 2, MasterAddr: "localhost", MasterPort: freePort(t)},
		"agent":      {Size: 3, MasterAddr: "127.0.0.1", MasterPort: agent.Port(), AgentStore: true, Launcher: TorchRun},
		"restarted":  {Size: 3, MasterAddr: "127.0.0.1", MasterPort: agent.Port(), AgentStore: true, RestartCount: 1},
		"one host":   {Size: 3, LocalSize: 3, RunID: "test " + strconv.Itoa(os.Getpid())},
		"other name": {Size: 3, LocalSize: 3, RunID: "test2 " + strconv.Itoa(os.Getpid())},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var wg sync.WaitGroup
			for r, st := range world(t, info, Options{Timeout: 20 * time.Second}) {
				wg.Go(func() {
					all, err := Exchange(t.Context(), st, r, info.Size, fmt.Append(nil, name, r))
					if err != nil {
						t.Error(err)
					}
					for i, got := range all {
						if want := fmt.Sprint(name, i); string(got) != want {
							t.Errorf("rank %d got %q of rank %d, want %q", r, got, i, want)
						}
					}
				})
			}
			wg.Wait()
		})
	}
}

// TestOpenAddress has two jobs, and two runs of one of them, meet in one store at the same time.
func TestOpenAddress(t *testing.T) {
	address := "file://" + filepath.Join(t.TempDir(), "store")
	var wg sync.WaitGroup
	for name, info := range map[string]Info{
		"first":  {Size: 2, RunID: "a", Launcher: ChorusRun, AgentStore: true, MasterAddr: "192.0.2.1", MasterPort: 1},
		"rerun":  {Size: 2, RunID: "a", Launcher: ChorusRun, AgentStore: true, MasterAddr: "192.0.2.1", MasterPort: 2},
		"second": {Size: 2, RunID: "b", Launcher: OpenMPI},
	} {
		for r, st := range world(t, info, Options{Timeout: 20 * time.Second, Store: address}) {
			wg.Go(func() {
				all, err := Exchange(t.Context(), st, r, info.Size, fmt.Append(nil, name, r))
				if want := name + "0 " + name + "1"; err != nil || string(bytes.Join(all, []byte(" "))) != want {
					t.Errorf("rank %d of %s: %q, %v", r, name, all, err)
				}
			})
		}
	}
	wg.Wait()
	_, err := Open(t.Context(), Info{Size: 2, Launcher: OpenMPI}, Options{Store: "etcd://node0:2379"})
	if err == nil || !strings.Contains(err.Error(), "must be imported") {
		t.Errorf("a scheme that the program doesn't have: %v", err)
	}
}

func TestOpenErrors(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := l.Addr().(*net.TCPAddr).Port
	for name, test := range map[string]struct {
		info Info
		opts Options
		want string
	}{
		"in use": {Info{Size: 2, MasterAddr: "127.0.0.1", MasterPort: port}, Options{}, "another program"},
		"not ours": {Info{Size: 2, MasterAddr: "x", MasterPort: port}, Options{Bind: "192.0.2.77",
			Security: &secure.Policy{Insecure: true}}, "does not have that address"},
		"exposed": {Info{Size: 2, MasterAddr: "192.0.2.77", MasterPort: port}, Options{Security: new(secure.Policy)},
			"CHORUS_SECRET_FILE"},
		"exposed, 1": {Info{Rank: 1, Size: 2, MasterAddr: "192.0.2.77", MasterPort: port},
			Options{Security: new(secure.Policy)}, "CHORUS_SECRET_FILE"},
		"no address": {Info{Size: 2, Launcher: OpenMPI}, Options{}, "MASTER_ADDR"},
		"agent":      {Info{Size: 2, AgentStore: true}, Options{}, "MASTER_ADDR"},
		"rank":       {Info{Rank: 2, Size: 2}, Options{}, "rank 2"},
		"nobody": {Info{Rank: 1, Size: 2, MasterAddr: "127.0.0.1", MasterPort: freePort(t)},
			Options{Timeout: 100 * time.Millisecond}, "can't reach rank 0"},
		"nobody here": {Info{Rank: 1, Size: 2, LocalSize: 2, RunID: "nobody"}, Options{Timeout: 100 * time.Millisecond},
			"can't reach rank 0"},
		"no launcher": {Info{Rank: 1, Size: 2, LocalSize: 2, rankVar: "PATH"}, Options{}, "can't be found"},
	} {
		t.Run(name, func(t *testing.T) {
			st, err := Open(t.Context(), test.info, test.opts)
			if err == nil {
				st.Close()
				t.Fatal("no error")
			}
			if !strings.Contains(err.Error(), test.want) {
				t.Errorf("%q does not mention %q", err, test.want)
			}
		})
	}
}

// TestOpenProtected has ranks meet in every way with a secret, and without one at the name of a host that all of them
// are on.
func TestOpenProtected(t *testing.T) {
	secret, err := secure.Parse(secure.Generate())
	if err != nil {
		t.Fatal(err)
	}
	tls, err := secure.SelfMade()
	if err != nil {
		t.Fatal(err)
	}
	policy := secure.Policy{Secret: secret, TLS: tls}
	agent, err := store.ListenTCP("127.0.0.1:0", store.ServerOptions{Security: policy})
	if err != nil {
		t.Fatal(err)
	}
	defer agent.Close()
	port := agent.Port()
	for name, test := range map[string]struct {
		info   Info
		policy secure.Policy
	}{
		"agent":  {Info{Size: 2, Launcher: ChorusRun, AgentStore: true, MasterAddr: "127.0.0.1", MasterPort: port}, policy},
		"master": {Info{Size: 2, MasterAddr: "127.0.0.1", MasterPort: freePort(t)}, policy},
		"local":  {Info{Size: 2, LocalSize: 2, RunID: "protected " + strconv.Itoa(os.Getpid())}, policy},
		"none":   {Info{Size: 2, LocalSize: 2, MasterAddr: "192.0.2.77", MasterPort: freePort(t)}, secure.Policy{}},
	} {
		t.Run(name, func(t *testing.T) {
			stores := world(t, test.info, Options{Timeout: 20 * time.Second, Security: &test.policy})
			var wg sync.WaitGroup
			for r, st := range stores {
				wg.Go(func() {
					if _, err := Exchange(t.Context(), store.NewPrefix(name, st), r, 2, nil); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
		})
	}
}

// TestRanksSetUpOtherwise learn at once what differs, and so does rank 0, on the ways by which ranks meet without a
// store of the launcher's.
func TestRanksSetUpOtherwise(t *testing.T) {
	text := secure.Generate()
	secret, err := secure.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	other := secret.Derive("other")
	tls, err := secure.SelfMade()
	if err != nil {
		t.Fatal(err)
	}
	with := secure.Policy{Secret: secret, Plain: config.PlainNone}
	for name, c := range map[string]struct {
		policies [2]secure.Policy
		want     error  // of rank 1
		said     string // by rank 0
	}{
		"another secret":   {[2]secure.Policy{with, {Secret: other}}, secure.ErrRefused, "rank 1 of 2 on"},
		"no secret":        {[2]secure.Policy{with, {}}, secure.ErrWantsSecret, "without the secret"},
		"TLS on one":       {[2]secure.Policy{with, {Secret: secret, TLS: tls}}, secure.ErrNoTLS, "it uses TLS"},
		"TLS on the other": {[2]secure.Policy{{Secret: secret, TLS: tls}, with}, secure.ErrWantsTLS, "rank 1 of 2 on"},
	} {
		for way, info := range map[string]Info{
			"master": {Size: 2, MasterAddr: "127.0.0.1", MasterPort: freePort(t)},
			"local":  {Size: 2, LocalSize: 2, RunID: name + strconv.Itoa(os.Getpid())},
		} {
			var log bytes.Buffer
			st, err := Open(t.Context(), info, Options{Security: &c.policies[0], Logger: slog.New(slog.NewTextHandler(&log,
				nil))})
			if err != nil {
				t.Fatal(err)
			}
			info.Rank = 1
			_, err = Open(t.Context(), info, Options{Security: &c.policies[1], Timeout: time.Minute})
			if !errors.Is(err, c.want) || errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s, %s: rank 1: %v, want %v", name, way, err, c.want)
			}
			st.Close() // ends what writes the log
			if !strings.Contains(log.String(), c.said) || strings.Contains(log.String(), text) {
				t.Errorf("%s, %s: rank 0 says %q, want %q", name, way, log.String(), c.said)
			}
		}
	}
}

// Rank 0 serves until the last of the others has left.
func TestCloseWaits(t *testing.T) {
	info := Info{Size: 2, LocalSize: 2, RunID: "close " + strconv.Itoa(os.Getpid())}
	stores := world(t, info, Options{Linger: time.Minute})
	closed := make(chan error, 1)
	go func() { closed <- stores[0].Close() }()
	for range 3 {
		if err := stores[1].Set(t.Context(), "k", nil); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case <-closed:
		t.Fatal("rank 0 left while rank 1 was connected")
	default:
	}
	stores[1].Close()
	if err := <-closed; err != nil {
		t.Fatal(err)
	}
}

func TestExchangeNamesMissingRanks(t *testing.T) {
	file, err := store.OpenFile(t.Context(), filepath.Join(t.TempDir(), "f"), store.FileOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	server, err := store.ListenTCP("127.0.0.1:0", store.ServerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	s0, err := store.DialTCP(t.Context(), server.Addr().String(), store.TCPOptions{Dialect: store.DialectS0})
	if err != nil {
		t.Fatal(err)
	}
	defer s0.Close()
	s1, err := store.DialTCP(t.Context(), server.Addr().String(), store.TCPOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer s1.Close()
	for name, st := range map[string]store.Store{
		"hash": store.NewHash(0), "file": file, "S0": store.NewPrefix("s0", s0), "S1": store.NewPrefix("s1", s1),
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			errs := make(chan error, 2)
			for _, r := range []int{1, 4} {
				go func() {
					_, err := Exchange(ctx, st, r, 8, []byte("x"))
					errs <- err
				}()
			}
			for range 2 {
				err := <-errs
				missing, ok := errors.AsType[*MissingRanksError](err)
				if !ok || !errors.Is(err, context.DeadlineExceeded) {
					t.Fatalf("got %v", err)
				}
				if !slices.Equal(missing.Missing, []int{0, 2, 3, 5, 6, 7}) || missing.Waited <= 0 {
					t.Errorf("got %+v", missing)
				}
				if !strings.Contains(err.Error(), "ranks 0, 2-3, 5-7") {
					t.Errorf("message %q", err)
				}
			}
		})
	}
}

// TestExchangeWithAnotherSecret has each rank name those that have another secret, at once.
func TestExchangeWithAnotherSecret(t *testing.T) {
	ours := secure.Secret{}.Derive("ours")
	for _, theirs := range []secure.Secret{{}, secure.Secret{}.Derive("theirs")} {
		base := store.NewHash(0)
		var ranks sync.WaitGroup
		for r, want := range []string{"rank 2", "rank 2", "ranks 0-1"} {
			ranks.Go(func() {
				secret := ours
				if r == 2 {
					secret = theirs
				}
				_, err := Exchange(t.Context(), store.NewSealed(secret, base), r, 3, []byte("x"))
				if err == nil || !strings.Contains(err.Error(), want+" set up with another secret") {
					t.Errorf("rank %d, %v: %v", r, theirs, err)
				}
			})
		}
		ranks.Wait()
	}
}

func TestExchangeEdges(t *testing.T) {
	st := store.NewHash(0)
	if _, err := Exchange(t.Context(), st, 3, 3, nil); err == nil {
		t.Error("rank 3 of 3 was accepted")
	}
	all, err := Exchange(t.Context(), nil, 0, 1, []byte("me"))
	if err != nil || len(all) != 1 || string(all[0]) != "me" {
		t.Errorf("a world of one got %q, %v", all, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Exchange(ctx, st, 0, 2, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: got %v", err)
	}
	_, err = Exchange(t.Context(), store.NewPrefix("x", st), 0, 1, nil)
	if err != nil {
		t.Error(err)
	}
}

func TestHostID(t *testing.T) {
	t.Setenv(hostIDVar, "")
	id, err := HostID()
	again, _ := HostID()
	if err != nil || id == "" || id != again {
		t.Errorf("%q (%v), then %q", id, err, again)
	}
	t.Setenv(hostIDVar, "other")
	if id, err := HostID(); id != "other" || err != nil {
		t.Errorf("%s does not override: %q, %v", hostIDVar, id, err)
	}
}

// A process in namespaces of its own is on another host, as far as memory goes.
func TestHostIDNamespaces(t *testing.T) {
	out, err := exec.Command("unshare", "--net", "readlink", "/proc/self/ns/net").Output()
	if err != nil {
		t.Skip("left out: no permission for network namespaces")
	}
	t.Setenv(hostIDVar, "")
	id, err := HostID()
	if err != nil || strings.Contains(id, strings.TrimSpace(string(out))) || !strings.Contains(id, "net:[") {
		t.Errorf("%q (%v) does not tell this network namespace from %s", id, err, out)
	}
}

func TestLocalAddrFor(t *testing.T) {
	for _, host := range []string{"127.0.0.1", "localhost"} {
		ip, err := LocalAddrFor(host)
		if err != nil || !ip.IsLoopback() {
			t.Errorf("%s: got %v, %v", host, ip, err)
		}
	}
	if ip, err := LocalAddrFor("no host.invalid"); err == nil {
		t.Errorf("a name that is none gave %v", ip)
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs { // an address of this host is reached from itself
		n, ok := a.(*net.IPNet)
		if !ok || n.IP.IsLinkLocalUnicast() {
			continue
		}
		if ip, err := LocalAddrFor(n.IP.String()); err != nil || !ip.Equal(n.IP) && !ip.IsLoopback() {
			t.Errorf("%v: got %v, %v", n.IP, ip, err)
		}
	}
}
