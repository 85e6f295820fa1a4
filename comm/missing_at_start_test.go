package comm_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/comm"
	_ "github.com/chorus-comms/chorus/fabric/fault"
	"github.com/chorus-comms/chorus/internal/testutil"
	"github.com/chorus-comms/chorus/store"
)

func init() {
	programs["without memory"] = withoutMemory
	programs["absent"] = absent
}

// absent is a rank of a world whose rank 1 never joins. The others begin together, so that each has come when the
// other's patience ends.
func absent() error {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	if os.Getenv("CHORUS_TEST_RANK") == fmt.Sprint(culprit) {
		return nil
	}
	st, err := store.DialTCP(ctx, os.Getenv("CHORUS_TEST_STORE"), store.TCPOptions{})
	if err != nil {
		return err
	}
	defer st.Close()
	if err := st.Set(ctx, "here/"+os.Getenv("CHORUS_TEST_RANK"), nil); err != nil {
		return err
	}
	if err := st.Wait(ctx, "here/0", "here/2"); err != nil {
		return err
	}
	_, err = join(ctx, comm.WithTimeout(1500*time.Millisecond))
	var late *comm.TimeoutError
	if !errors.As(err, &late) {
		return fmt.Errorf("not a *TimeoutError: %w", err)
	}
	var any interface {
		At() comm.Where
		Attended() *comm.Attendance
	}
	if !errors.As(err, &any) || any.At() != late.Where || !reflect.DeepEqual(any.Attended(), &late.Attendance) {
		return fmt.Errorf("it doesn't say where it is from and who was there, as other errors do: %w", err)
	}
	fmt.Printf("blame %s %s missing %v arrived %v waited %v: %v\n", late.Comm, late.Op, late.Missing, late.Arrived,
		late.Elapsed >= time.Second, err)
	return nil
}

// TestNeverArrives starts two ranks of three: both say which rank is missing, and for how long they have
// waited.
func TestNeverArrives(t *testing.T) {
	t.Parallel()
	cmds, outs := start(t, "absent", "shm", 3)
	for r, cmd := range cmds {
		err := cmd.Wait()
		want := fmt.Sprintf(`blame world new missing [1] arrived [0 2] waited true: chorus: communicator "world": rank %d of 3: `, r)
		if text := outs[r].String(); err != nil || r != culprit && (!strings.Contains(text, want) || !strings.Contains(text,
			"for rank 1")) {
			t.Errorf("rank %d doesn't say %s: %v\n%s", r, want, err, text)
		}
	}
}

// withoutMemory is a rank whose process may make no file, and so no memory to share, larger than a page.
func withoutMemory() error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if os.Getenv("CHORUS_TEST_RANK") == "1" {
		if err := syscall.Setrlimit(1 /* RLIMIT_FSIZE */, &syscall.Rlimit{Cur: 4096, Max: 4096}); err != nil {
			return err
		}
	}
	c, err := join(ctx)
	if err == nil {
		err = c.AllReduce(ctx, zeros(100_000), comm.Sum)
	}
	fmt.Printf("blame %s %v\n", kindOf(err), err)
	return err
}

// TestNoMemoryAtStart starts three ranks of which one can share no memory: it says why, and the others name it.
func TestNoMemoryAtStart(t *testing.T) {
	t.Parallel()
	cmds, outs := start(t, "without memory", "shm", 3)
	for r, cmd := range cmds {
		cmd.Wait()
		want := regexp.MustCompile("^aborted .*by rank 1: .*file too large")
		if r == 1 {
			want = regexp.MustCompile("file too large")
		}
		if _, text, _ := strings.Cut(outs[r].String(), "blame "); !want.MatchString(text) {
			t.Errorf("rank %d doesn't say %v:\n%s", r, want, outs[r])
		} else {
			t.Logf("rank %d: %s", r, text)
		}
	}
}

// TestStoreDies ends the store while two of three ranks wait there for the third: they say that it's gone, and don't
// blame the third. Then ranks that have met lose it, and go on.
func TestStoreDies(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	open := func(server *store.TCPServer, r, size int) (*comm.Comm, error) {
		st, err := store.DialTCP(ctx, server.Addr().String(), store.TCPOptions{})
		if err != nil {
			return nil, err
		}
		defer st.Close()
		return comm.New(ctx, comm.WithRank(r, size), comm.WithStore(st), comm.WithFabric("shm"),
			comm.WithTimeout(10*time.Second))
	}
	serve := func() *store.TCPServer {
		server, err := store.ListenTCP("127.0.0.1:0", store.ServerOptions{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { server.Close() })
		return server
	}
	both := func(f func(r int)) {
		var wg sync.WaitGroup
		for r := range 2 {
			wg.Go(func() { f(r) })
		}
		wg.Wait()
	}

	if !testutil.Short() { // it takes seconds, in which nothing is done
		dying := serve()
		time.AfterFunc(200*time.Millisecond, func() { dying.Close() })
		both(func(r int) {
			c, err := open(dying, r, 3)
			if err == nil {
				c.Finalize(ctx)
				t.Errorf("rank %d: two of three ranks are a world", r)
				return
			}
			t.Logf("rank %d: %v", r, err)
			if !strings.Contains(err.Error(), "store") || !strings.Contains(err.Error(), dying.Addr().String()) {
				t.Errorf("rank %d: it doesn't say that the store is gone: %v", r, err)
			}
		})
	}

	server := serve()
	met := make([]*comm.Comm, 2)
	both(func(r int) {
		var err error
		if met[r], err = open(server, r, 2); err != nil {
			t.Errorf("rank %d: %v", r, err)
		}
	})
	server.Close()
	if t.Failed() {
		return
	}
	each(t, met, func(ctx context.Context, c *comm.Comm) error {
		part, err := c.Split(ctx, []int{1, 0})
		if err != nil {
			return fmt.Errorf("split without the store: %w", err)
		}
		return errors.Join(part.AllReduce(ctx, zeros(1000), comm.Sum), part.Finalize(ctx))
	})
	finalize(t, met)
}

// TestBrokenFrames has one rank's messages shortened, relabeled or lost on their way: every rank gets a typed error,
// and stays with it.
func TestBrokenFrames(t *testing.T) {
	for _, x := range []struct{ script, kind string }{
		{"truncate class=collective after=4 count=1", "mismatch"},
		{"mislabel class=collective after=4 count=1", "mismatch"},
		{"drop class=collective after=4", "timeout"},
		{"cut class=collective after=4 count=1", "lost"},
	} {
		t.Run(strings.Fields(x.script)[0], func(t *testing.T) {
			t.Parallel()
			st := store.NewHash(time.Minute)
			comms := make([]*comm.Comm, 3)
			var wg sync.WaitGroup
			for r := range comms {
				wg.Go(func() {
					hints := map[string]string{"fabric": "fault", "fabric.inner": "tcp"}
					if r == culprit {
						hints["fabric.script"] = x.script
					}
					var err error
					if comms[r], err = comm.New(context.Background(), comm.WithRank(r, 3), comm.WithStore(st),
						comm.WithTimeout(time.Second), comm.WithHints(hints)); err != nil {
						t.Errorf("rank %d: %v", r, err)
					}
				})
			}
			wg.Wait()
			if t.Failed() {
				return
			}
			each(t, comms, func(ctx context.Context, c *comm.Comm) error {
				var err error
				for range 1000 {
					if err = c.AllReduce(ctx, zeros(3000), comm.Sum, comm.Algorithm("ring")); err != nil {
						break
					}
				}
				if err == nil {
					return errors.New("nothing happened")
				}
				b := blameOf(c, err)
				t.Log(b.Text)
				if b.Kind != x.kind || b.Again != x.kind {
					return fmt.Errorf("it gives %q and then %q: %w", b.Kind, b.Again, err)
				}
				return nil
			})
			finalize(t, comms)
		})
	}
}
