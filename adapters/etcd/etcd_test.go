package etcd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/api/v3/version"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/internal/testutil"
	"github.com/chorus-comms/chorus/launch"
	"github.com/chorus-comms/chorus/secure"
	"github.com/chorus-comms/chorus/store"
	"github.com/chorus-comms/chorus/store/storetest"
	"github.com/chorus-comms/chorus/tensor"
)

// three are the members that the tests share.
var three cluster

func TestMain(m *testing.M) {
	minTTL = time.Second
	var err error
	switch {
	case os.Getenv(memberVar) != "":
		err = serveMember(os.Getenv(memberVar))
	case os.Getenv(launcherVar) != "":
		err = launchNode(os.Getenv(launcherVar), os.Args[1])
	default:
		goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
			three.stop()
			os.Exit(code)
		}))
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

var startThree sync.Once

// shared returns the endpoints of three members.
func shared(t testing.TB) []string {
	t.Helper()
	startThree.Do(func() { three = startCluster(unending{t}, 3, func(*member) {}) })
	return three.endpoints()
}

// unending is a test whose members outlive it, but not the process.
type unending struct{ testing.TB }

func (unending) Cleanup(func()) {}
func (u unending) TempDir() string {
	dir, err := os.MkdirTemp("", "etcd")
	if err != nil {
		u.Fatal(err)
	}
	return dir
}

// open opens a store until the test ends.
func open(t testing.TB, o Options) *Store {
	t.Helper()
	s, err := Open(t.Context(), shared(t), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func TestStore(t *testing.T) {
	var n atomic.Int32
	storetest.Run(t, func(t *testing.T) (a, b store.Store) {
		o := Options{Prefix: fmt.Sprint("/suite/", n.Add(1))}
		return open(t, o), open(t, o)
	}, storetest.Options{})
}

// TestManyKeys sets and gets more keys than a transaction may have, and more bytes.
func TestManyKeys(t *testing.T) {
	s := open(t, Options{Prefix: "/many"})
	var keys []string
	var values [][]byte
	for i := range 250 {
		keys, values = append(keys, fmt.Sprint("k=", i)), append(values, bytes.Repeat([]byte{byte(i)}, 10_000))
	}
	if err := store.MultiSet(t.Context(), s, append(keys, "k=0"), append(values, []byte("last"))); err != nil {
		t.Fatal(err)
	}
	values[0] = []byte("last")
	got, err := store.MultiGet(t.Context(), s, keys...)
	if err != nil {
		t.Fatal(err)
	}
	for i := range got {
		if !bytes.Equal(got[i], values[i]) {
			t.Errorf("%s: %d bytes %.10q", keys[i], len(got[i]), got[i])
		}
	}
	err = s.Set(t.Context(), "huge", make([]byte, 3<<20))
	if err == nil || !strings.Contains(err.Error(), `"huge"`) || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a value that's too large: %v", err)
	}
	if _, err := s.Get(t.Context(), "k=1"); err != nil {
		t.Error(err)
	}
	if err := s.QueuePush(t.Context(), "q", nil); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get(t.Context(), "q"); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("a queue as a value: %v", err)
	}
}

// lossy loses answers of transactions that write: one in three is carried out nevertheless, another one isn't, and a
// third is carried out after a later one.
type lossy struct {
	clientv3.KV
	mu   sync.Mutex
	late []func()
}

type lossyTxn struct {
	clientv3.Txn
	l *lossy
}

func (l *lossy) Txn(context.Context) clientv3.Txn {
	return &lossyTxn{l.KV.Txn(context.Background()), l} // so that late ones work
}

func (x *lossyTxn) If(c ...clientv3.Cmp) clientv3.Txn  { x.Txn = x.Txn.If(c...); return x }
func (x *lossyTxn) Then(o ...clientv3.Op) clientv3.Txn { x.Txn = x.Txn.Then(o...); return x }
func (x *lossyTxn) Else(o ...clientv3.Op) clientv3.Txn { x.Txn = x.Txn.Else(o...); return x }

func (x *lossyTxn) Commit() (*clientv3.TxnResponse, error) {
	x.l.mu.Lock()
	defer x.l.mu.Unlock()
	switch rand.N(6) {
	case 0:
		x.Txn.Commit()
		return nil, rpctypes.ErrLeaderChanged
	case 1:
		return nil, rpctypes.ErrTimeout
	case 2:
		x.l.late = append(x.l.late, func() { x.Txn.Commit() })
		return nil, rpctypes.ErrTimeout
	}
	r, err := x.Txn.Commit()
	for _, f := range x.l.late {
		f()
	}
	x.l.late = nil
	return r, err
}

// TestOnce has every change carried out once, though answers get lost and requests come late. The key is deleted now
// and then, so that what a request expects comes true again.
func TestOnce(t *testing.T) {
	o := Options{Prefix: "/once"}
	sum := make([]int64, 3)
	var wg sync.WaitGroup
	for i := range sum {
		s := open(t, o)
		whole := s.client.KV
		s.client.KV = &lossy{KV: whole}
		wg.Go(func() {
			defer func() { s.client.KV = whole }() // for Close
			for n := range 25 {
				if _, err := s.Add(t.Context(), "n", 1); err != nil {
					t.Error(err)
				}
				if err := s.Append(t.Context(), "log", []byte{byte('a' + i)}); err != nil {
					t.Error(err)
				}
				key := fmt.Sprint("own ", i)
				if err := s.Set(t.Context(), key, fmt.Append(nil, n)); err != nil {
					t.Error(err)
				}
				if existed, err := s.Delete(t.Context(), key); err != nil || !existed {
					t.Errorf("%v, %v", existed, err)
				}
				if got, err := s.CompareSet(t.Context(), key, nil, []byte("new")); err != nil || string(got) != "new" {
					t.Errorf("%q, %v", got, err)
				}
				if err := s.QueuePush(t.Context(), "q", fmt.Append(nil, i)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	s := open(t, o)
	n, err := s.Get(t.Context(), "n")
	if err != nil || string(n) != "75" {
		t.Errorf("the sum is %q, %v", n, err)
	}
	log, err := s.Get(t.Context(), "log")
	for i := range sum {
		if got := bytes.Count(log, []byte{byte('a' + i)}); got != 25 {
			t.Errorf("%d of 25 from %d, %v", got, i, err)
		}
	}
	if n, err := s.QueueLen(t.Context(), "q"); n != 75 || err != nil {
		t.Errorf("%d entries of 75, %v", n, err)
	}
}

// TestMemberKilled kills the member that leads while ranks meet, and while others count.
func TestMemberKilled(t *testing.T) {
	testutil.Ran(t, "etcd").Version = version.Version
	const ranks = 4
	shared(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	counters, o := make([]*Store, 3), Options{Prefix: "/counters"}
	for i := range counters {
		counters[i] = open(t, o)
	}
	stop := make(chan struct{})
	var added atomic.Int64
	var counting sync.WaitGroup
	for _, s := range counters {
		counting.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if _, err := s.Add(ctx, "n", 1); err != nil {
					t.Error(err)
					return
				}
				added.Add(1)
			}
		})
	}
	meet := func(r int) error {
		st, err := Open(ctx, three.endpoints(), Options{Prefix: "/killed"})
		if err != nil {
			return err
		}
		defer st.Close()
		c, err := comm.New(ctx, comm.WithRank(r, ranks), comm.WithStore(st), comm.WithFabric("mem"))
		if err != nil {
			return err
		}
		x := []int64{1}
		if err := c.AllReduce(ctx, tensor.Of(x), comm.Sum); err != nil || x[0] != ranks {
			return fmt.Errorf("rank %d: %v, %w", r, x, err)
		}
		return c.Finalize(ctx)
	}
	met := make(chan error, ranks)
	for r := range ranks - 1 {
		go func() { met <- meet(r) }()
	}
	view := open(t, Options{Prefix: "/killed"})
	testutil.Eventually(t, func() bool { // all but one have come, and wait
		keys, err := view.ListKeys(ctx)
		n := 0
		for _, k := range keys {
			if strings.Contains(k, "/chorus/") || strings.HasPrefix(k, "chorus/") {
				n++
			}
		}
		return err == nil && n >= ranks && added.Load() > 20
	}, "the ranks come")
	dead := three.leader(t)
	dead.kill()
	go func() { met <- meet(ranks - 1) }()
	for range ranks {
		if err := <-met; err != nil {
			t.Error(err)
		}
	}
	before := added.Load()
	testutil.Eventually(t, func() bool { return added.Load() > before+20 || t.Failed() }, "counting goes on")
	close(stop)
	counting.Wait()
	got, err := counters[0].Get(ctx, "n")
	if want := fmt.Sprint(added.Load()); err != nil || string(got) != want {
		t.Errorf("%s were added: %s, %v", want, got, err)
	}
	if err := dead.start(); err != nil {
		t.Error(err)
	}
}

// TestJob starts ranks of the example, which find the store by its address alone.
func TestJob(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	program := filepath.Join(t.TempDir(), "example")
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", program, "./example").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	address := "etcd://" + strings.Join(shared(t), ",") + "?prefix=/job"
	var out, diagnostics bytes.Buffer
	job := launch.Job{Command: []string{program}, RanksPerNode: 3, Stdout: &out, Stderr: &diagnostics,
		Env: append(os.Environ(), "CHORUS_STORE="+address)}
	if err := job.Run(ctx); err != nil || strings.Count(out.String(), "sum 3\n") != 3 {
		t.Fatalf("%v\n%s\n%s", err, &out, &diagnostics)
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: shared(t), Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	r, err := client.Get(ctx, "/job/data/", clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil || r.Count == 0 {
		t.Errorf("the ranks have met elsewhere: %v", err)
	}
}

// TestRerun starts ranks by hand: the keys of a run outlive it. The next one needs a name of its own, as its error says,
// until they have expired.
func TestRerun(t *testing.T) {
	program := filepath.Join(t.TempDir(), "example")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./example").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	view := open(t, Options{Prefix: "/view"})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for i, run := range []struct{ options, name, says string }{
		{"?prefix=/rerun", "", "sum 1"}, {"?prefix=/rerun", "", "TORCHELASTIC_RUN_ID"}, {"?prefix=/rerun", "2", "sum 1"},
		{"?prefix=/expiring&ttl=5s", "", "sum 1"}, {"?prefix=/expiring&ttl=5s", "", "sum 1"},
	} {
		testutil.Eventually(t, func() bool {
			r, err := view.client.Get(ctx, "/expiring/", clientv3.WithPrefix(), clientv3.WithCountOnly())
			return err == nil && r.Count == 0
		}, "the keys expire")
		var ranks sync.WaitGroup
		for rank := range 2 {
			ranks.Go(func() {
				cmd := exec.CommandContext(ctx, program)
				cmd.Env = append(os.Environ(), "CHORUS_STORE=etcd://"+strings.Join(shared(t), ",")+run.options,
					"TORCHELASTIC_RUN_ID="+run.name, "TORCHCOMM_SIZE=2", fmt.Sprint("TORCHCOMM_RANK=", rank))
				if out, err := cmd.CombinedOutput(); !strings.Contains(string(out), run.says) {
					t.Errorf("run %d, rank %d: %v\n%s", i, rank, err, out)
				}
			})
		}
		ranks.Wait()
	}
}

// TestDead: the keys of processes that have died without a word expire.
func TestDead(t *testing.T) {
	o := Options{Prefix: "/dead", TTL: time.Second}
	a, view := open(t, o), open(t, Options{Prefix: "/view"})
	if err := a.Set(t.Context(), "k", []byte("v")); err != nil {
		t.Fatal(err)
	}
	a.end(errors.New("killed")) // no renewal, and no farewell
	<-a.alive
	testutil.Eventually(t, func() bool {
		r, err := view.client.Get(t.Context(), "/dead/", clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err != nil {
			t.Fatal(err)
		}
		return r.Count == 0
	}, "the keys expire")
}

// TestLease: the keys go with the last store that is closed, and a store whose keys have expired says so.
func TestLease(t *testing.T) {
	o := Options{Prefix: "/lease"}
	a, b := open(t, o), open(t, o)
	if err := a.Set(t.Context(), "k", []byte("v")); err != nil {
		t.Fatal(err)
	}
	a.Close()
	if got, err := b.Get(t.Context(), "k"); err != nil || string(got) != "v" {
		t.Errorf("%q, %v", got, err)
	}
	b.Close()
	c := open(t, o)
	if there, err := c.Check(t.Context(), "k"); there || err != nil {
		t.Errorf("the key is there: %v, %v", there, err)
	}
	waiting := make(chan error)
	go func() { waiting <- c.Wait(t.Context(), "never") }()
	if _, err := c.client.Revoke(t.Context(), c.lease); err != nil {
		t.Fatal(err)
	}
	err := c.Set(t.Context(), "k", nil)
	for _, err := range []error{err, <-waiting} {
		if !store.Gone(err) || !strings.Contains(err.Error(), "have expired") ||
			!strings.Contains(err.Error(), "127.0.0.1:") {
			t.Errorf("after the lease: %v", err)
		}
	}
}

// TestUnreachable names the endpoints.
func TestUnreachable(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err := Open(ctx, []string{"127.0.0.1:1", "127.0.0.1:2"}, Options{})
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "etcd at 127.0.0.1:1,127.0.0.1:2") ||
		!strings.Contains(err.Error(), "connection refused") {
		t.Error(err)
	}
}

// TestSecured has one member that asks for certificates and for passwords.
func TestSecured(t *testing.T) {
	ours, theirs := testutil.NewCertAuthority(t), testutil.NewCertAuthority(t)
	cert, key := ours.Issue(t, time.Now().Add(time.Hour))
	c := startCluster(t, 1, func(m *member) { m.Cert, m.Key, m.CA = cert, key, ours.File })
	at := c.endpoints()[0]
	mine, myKey := ours.Issue(t, time.Now().Add(time.Hour))
	job, err := secure.FromFiles(mine, myKey, ours.File)
	if err != nil {
		t.Fatal(err)
	}
	admin, err := clientv3.New(clientv3.Config{Endpoints: []string{at}, TLS: job.Mutual(), Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	for _, err := range []error{
		second(admin.UserAdd(t.Context(), "root", "r")), second(admin.UserGrantRole(t.Context(), "root", "root")),
		second(admin.UserAdd(t.Context(), "rank", "pass")), second(admin.RoleAdd(t.Context(), "jobs")),
		second(admin.RoleGrantPermission(t.Context(), "jobs", "/jobs/", clientv3.GetPrefixRangeEnd("/jobs/"),
			clientv3.PermissionType(clientv3.PermReadWrite))),
		second(admin.UserGrantRole(t.Context(), "rank", "jobs")), second(admin.AuthEnable(t.Context())),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte("pass\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	files := "&ca=" + ours.File + "&cert=" + mine + "&key=" + myKey
	for name, c := range map[string]struct{ address, says string }{
		"job's certificates": {"etcd://rank:pass@" + at + "?prefix=/jobs/a", ""},
		"files":              {"etcd://rank@" + at + "?prefix=/jobs/a&password-file=" + file + files, ""},
		"password":           {"etcd://rank:wrong@" + at + "?prefix=/jobs/a", "invalid user ID or password"},
		"permission":         {"etcd://rank:pass@" + at + "?prefix=/other", "permission denied"},
		"certificate's name": {"etcd://" + at + "?prefix=/jobs/a", ""}, // it's "rank", too
		"another authority":  {"etcd://rank:pass@" + at + "?ca=" + theirs.File, "x509: "},
	} {
		t.Run(name, func(t *testing.T) {
			begin := time.Now()
			o := store.OpenOptions{Security: &secure.Policy{TLS: job}, Timeout: 20 * time.Second}
			st, err := store.Open(t.Context(), c.address, o)
			if c.says == "" && err == nil {
				defer st.Close()
				if err = st.Set(t.Context(), "k", nil); err == nil {
					_, err = st.Get(t.Context(), "k")
				}
			}
			if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says) ||
				!strings.Contains(err.Error(), at) || errors.Is(err, context.DeadlineExceeded)) {
				t.Errorf("after %v: %v", time.Since(begin), err)
			}
		})
	}
}

func second[T any](_ T, err error) error { return err }

func TestAddress(t *testing.T) {
	self, err := secure.SelfMade()
	if err != nil {
		t.Fatal(err)
	}
	for address, says := range map[string]string{
		"etcd://":                            "HOST:PORT",
		"etcd:node0:1":                       "etcd://HOST:PORT",
		"etcd://node0":                       `"node0"`,
		"etcd://node0:1,":                    `""`,
		"etcd://node0:1/jobs":                "?prefix=/jobs",
		"etcd://node0:1?prefx=/a":            `"prefx"; there are prefix, ttl`,
		"etcd://node0:1?ttl=soon":            "90s",
		"etcd://node0:1?ttl=1ms&tls=off":     "less than",
		"etcd://node0:1?tls=yes":             "neither on nor off",
		"etcd://node0:1?tls=off&ca=x":        "tls=off",
		"etcd://node0:1?ca=/no/such":         "/no/such",
		"etcd://node0:1?cert=/no/such":       "/no/such",
		"etcd://node0:1?password-file=/none": "/none",
		"etcd://:geheim@node0:1":             "no user",
		"etcd://node0:1":                     "which etcd can't check",
		"etcd://u:geheim@node0:1?a=%zz":      "",
	} {
		_, err := store.Open(t.Context(), address, store.OpenOptions{Security: &secure.Policy{TLS: self}})
		if !errors.Is(err, store.ErrOptions) || !strings.Contains(err.Error(), says) ||
			strings.Contains(err.Error(), "geheim") {
			t.Errorf("%s: %v", address, err)
		}
	}
	const full = "etcd://u:p%40ss@node0:1,[fd00::1]:2?prefix=/a/&ttl=90s&tls=on&server-name=etcd"
	at, o, err := parse(full, store.OpenOptions{})
	if err != nil || strings.Join(at, " ") != "node0:1 [fd00::1]:2" || o.User != "u" || o.Password != "p@ss" ||
		o.Prefix != "/a/" || o.TTL != 90*time.Second || o.TLS.ServerName != "etcd" {
		t.Errorf("%q, %+v, %v", at, o, err)
	}
}
