package comm_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/internal/testutil"
	"github.com/chorus-comms/chorus/store"
	"github.com/chorus-comms/chorus/tensor"
)

func init() { programs["starving"] = starvingRank }

// A famine is one attempt at something that opens descriptors, of which one rank has only a few left.
type famine struct {
	What   string // one of starvings
	Fabric string
	Left   int
	Rank   int // whose
}

// starvings are what opens descriptors. Each has a world, but for "new", in which all ranks have met before.
var starvings = map[string]func(ctx context.Context, c *comm.Comm) error{
	"split": func(ctx context.Context, c *comm.Comm) error {
		sub, err := c.Split(ctx, []int{2, 0, 1})
		if err != nil {
			return err
		}
		return errors.Join(sub.Barrier(ctx), sub.Finalize(ctx))
	},
	"message": func(ctx context.Context, c *comm.Comm) error {
		in := tensor.Of(make([]int32, c.Size()))
		return c.AllToAllSingle(ctx, in, tensor.Of(make([]int32, c.Size())))
	},
	"memory": func(ctx context.Context, c *comm.Comm) error {
		x, err := c.Zeros(dtype.Float32, 1<<19)
		if err != nil {
			c.Abort(err)
			return err
		}
		defer x.Free()
		return c.AllReduce(ctx, x, comm.Sum)
	},
	"window": func(ctx context.Context, c *comm.Comm) error {
		x := tensor.Of(make([]int32, 100))
		w, err := c.NewWindow(ctx, x)
		if err != nil {
			return err
		}
		if err := w.Put(ctx, tensor.Of([]int32{1}), comm.Target{Rank: (c.Rank() + 1) % c.Size()}); err != nil {
			return err
		}
		return errors.Join(w.Fence(ctx, -1), w.Close(ctx))
	},
	"regroup": func(ctx context.Context, c *comm.Comm) error {
		ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
		defer cancel()
		sub, err := c.Regroup(ctx)
		if err != nil {
			return err
		}
		regrouped = sub.Size()
		return errors.Join(sub.Barrier(ctx), sub.Finalize(ctx))
	},
}

// regrouped is the size of the last world that "regroup" has made.
var regrouped int

// An upshot is what a rank says of a famine.
type upshot struct {
	famine
	Me        int
	Text      string // of the error
	Own       bool   // which is of want of descriptors here
	Kind      string
	By        int
	MS        int
	Size      int    // of the new world
	After     string // the error of the world that was there before, in an operation of its own afterwards
	AfterKind string
	AfterBy   int
}

func starvingRank() error {
	var all []famine
	if err := json.Unmarshal([]byte(os.Getenv("CHORUS_TEST_FAMINES")), &all); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	st, err := store.DialTCP(ctx, os.Getenv("CHORUS_TEST_STORE"), store.TCPOptions{})
	if err != nil {
		return err
	}
	me, _ := strconv.Atoi(os.Getenv("CHORUS_TEST_RANK"))
	size, _ := strconv.Atoi(os.Getenv("CHORUS_TEST_SIZE"))
	inUse := 0
	for i, f := range all {
		if i == 3 { // each rank has been hungry once
			if inUse, err = descriptors(); err != nil {
				return err
			}
		}
		opts := []comm.NewOption{comm.WithTimeout(20 * time.Second), comm.WithStore(st), comm.WithRank(me, size),
			comm.WithFabric(f.Fabric), comm.WithName(fmt.Sprint("famine", i))}
		u := upshot{famine: f, Me: me}
		var world *comm.Comm
		do := starvings[f.What]
		if f.What != "new" {
			if world, err = comm.New(ctx, opts...); err != nil {
				return fmt.Errorf("famine %d: %w", i, err)
			}
			if f.What != "message" {
				if err := world.Barrier(ctx); err != nil {
					return err
				}
			}
		}
		if err := together(ctx, st, fmt.Sprint("ready", i), size); err != nil {
			return err
		}
		restore := func() {}
		if me == f.Rank {
			if restore, err = starve(f.Left); err != nil {
				return err
			}
		}
		began := time.Now()
		regrouped = 0
		if world == nil {
			var c *comm.Comm
			if c, err = comm.New(ctx, opts...); err == nil {
				err = errors.Join(c.Barrier(ctx), c.Finalize(ctx))
			}
		} else {
			err = do(ctx, world)
		}
		u.MS = int(time.Since(began).Milliseconds())
		restore()
		u.Size = regrouped
		u.Text, u.Own, u.Kind, u.By = told(err)
		if world != nil {
			u.After, _, u.AfterKind, u.AfterBy = told(world.Barrier(ctx))
			world.Finalize(ctx)
		}
		b, _ := json.Marshal(u)
		fmt.Println("upshot", string(b))
		if err := together(ctx, st, fmt.Sprint("over", i), size); err != nil {
			return err
		}
	}
	const forStore = 2 // connections that it may keep
	for began := time.Now(); inUse > 0; time.Sleep(10 * time.Millisecond) {
		n, err := descriptors()
		if err != nil || n <= inUse+forStore {
			return err
		}
		if time.Since(began) > 5*time.Second {
			return fmt.Errorf("%d descriptors were in use, and now %d are", inUse, n)
		}
	}
	return nil
}

// descriptors counts those in use.
func descriptors() (int, error) {
	open, err := os.ReadDir("/proc/self/fd")
	return len(open) - 1, err // one is that of the directory
}

// told takes an error apart.
func told(err error) (text string, own bool, kind string, by int) {
	if err == nil {
		return "", false, "", -1
	}
	by = -1
	var aborted *comm.AbortedError
	var lost *comm.PeerLostError
	var late *comm.TimeoutError
	var internal *comm.InternalError
	switch {
	case errors.As(err, &aborted):
		kind, by = "aborted", aborted.By
	case errors.As(err, &lost):
		kind, by = "lost", lost.Peer
	case errors.As(err, &late):
		kind = "timeout"
	case errors.As(err, &internal):
		kind = "internal"
	default:
		kind = fmt.Sprintf("%T", err)
	}
	return err.Error(), errors.Is(err, syscall.EMFILE), kind, by
}

// together returns when all ranks are there.
func together(ctx context.Context, st store.Store, key string, size int) error {
	n, err := st.Add(ctx, key, 1)
	if err != nil {
		return err
	}
	if n == int64(size) {
		return st.Set(ctx, key+"/all", nil)
	}
	return st.Wait(ctx, key+"/all")
}

// starve leaves this process so many descriptors.
func starve(left int) (restore func(), err error) {
	inUse, err := descriptors()
	if err != nil {
		return nil, err
	}
	var before syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
		return nil, err
	}
	low := before
	low.Cur = uint64(inUse + left)
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &low); err != nil {
		return nil, err
	}
	return func() { syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before) }, nil
}

// TestStarved leaves a rank of three few descriptors while it opens something. It says so, at once, and the others that
// it was that rank, and why; but from "regroup" they go on without it. CHORUS_TEST_LONG=1 has every number of
// descriptors up to 40.
func TestStarved(t *testing.T) {
	var all []famine
	lefts := testutil.Pick([]int{0, 2, 5}, []int{0, 1, 2, 3, 4, 5, 6, 8, 13})
	if os.Getenv("CHORUS_TEST_LONG") != "" {
		lefts = nil
		for left := range 41 {
			lefts = append(lefts, left)
		}
	}
	for _, what := range []string{"new", "split", "message", "memory", "window", "regroup"} {
		for _, fabric := range []string{"shm", "tcp", "auto"} {
			for _, left := range lefts {
				all = append(all, famine{What: what, Fabric: fabric, Left: left, Rank: left % 3})
			}
		}
	}
	plan, _ := json.Marshal(all)
	t.Setenv("CHORUS_TEST_FAMINES", string(plan))
	const size = 3
	cmds, outs := start(t, "starving", "-", size)
	upshots := map[famine][]upshot{}
	for r, cmd := range cmds {
		if err := cmd.Wait(); err != nil {
			t.Errorf("rank %d: %v\n%s", r, err, outs[r])
		}
		s := bufio.NewScanner(strings.NewReader(outs[r].String()))
		s.Buffer(nil, 1<<20)
		for s.Scan() {
			line, ok := strings.CutPrefix(s.Text(), "upshot ")
			var u upshot
			if !ok || json.Unmarshal([]byte(line), &u) != nil {
				continue
			}
			upshots[u.famine] = append(upshots[u.famine], u)
		}
	}
	for _, f := range all {
		us := upshots[f]
		hungry := slices.ContainsFunc(us, func(u upshot) bool { return u.Me == f.Rank && u.Text != "" })
		// passedOn reports whether a rank has heard of it as it should.
		passedOn := func(u upshot) bool {
			who := f.Rank
			if f.What == "split" && !strings.Contains(u.Text, ": split:") {
				who = (f.Rank + 1) % size // in what was split off
			}
			// Its part was done, so its next operation fails.
			if (f.What == "message" || f.What == "memory") && u.Text == "" {
				return u.AfterKind == "aborted" && u.AfterBy == who && strings.Contains(u.After, "too many open files")
			}
			return u.Kind == "aborted" && u.By == who && strings.Contains(u.Text, "too many open files")
		}
		for _, u := range us {
			bad := ""
			if f.What == "regroup" && u.Text == "" {
				want := size
				if hungry {
					want-- // the others go on
				}
				if u.Size != want {
					bad = fmt.Sprintf("not a world of %d", want)
				}
			}
			switch {
			case !hungry && u.Text != "":
				bad = "the others were not hungry"
			case u.Me == f.Rank && u.Text != "" && (!u.Own || u.Kind != "internal"):
				bad = "not its own want"
			case u.Me != f.Rank && hungry && !passedOn(u) && (f.What != "regroup" || u.Text != ""):
				bad = "not aborted by it"
			case u.MS > 3000:
				bad = "late"
			}
			if bad != "" {
				t.Errorf("%s: %+v", bad, u)
			}
		}
		if len(us) != size {
			t.Errorf("%v: %d upshots", f, len(us))
		}
	}
}
