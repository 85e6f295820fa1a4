package regroup

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/chorus-comms/chorus/bootstrap"
	"github.com/chorus-comms/chorus/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const testTimeout = 30 * time.Second

// processes are the processes of a test, as goroutines.
type processes struct {
	t         *testing.T
	endpoints []*Endpoint
	at        []func(string) // of each endpoint
}

func newProcesses(t *testing.T, n int) *processes {
	t.Helper()
	c := &processes{t: t, at: make([]func(string), n)}
	for i := range n {
		c.at[i] = func(string) {}
		s, err := Open(Options{At: func(step string) { c.at[i](step) }})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		c.endpoints = append(c.endpoints, s)
	}
	return c
}

func (c *processes) members(who ...int) []Member {
	var out []Member
	for _, i := range who {
		out = append(out, c.endpoints[i].Member(OldPlace{World: "w", Rank: i, Size: len(c.endpoints)}))
	}
	return out
}

// errDead is the result of a process that died.
var errDead = errors.New("dead")

// agree has the processes make a world of themselves; the result of each stands at its number.
func (c *processes) agree(uuid string, who ...int) map[int]error {
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	list := c.members(who...)
	var mu sync.Mutex
	out := map[int]error{}
	for _, i := range who {
		out[i] = errDead
	}
	var all sync.WaitGroup
	for _, i := range who {
		all.Go(func() {
			err := c.endpoints[i].Agree(ctx, uuid, list, c.open(list, i))
			mu.Lock()
			out[i] = err
			mu.Unlock()
		})
	}
	all.Wait()
	return out
}

// open is what communicators do to come up, in small: two exchanges.
func (c *processes) open(list []Member, i int) func(context.Context, store.Store) error {
	rank := 0
	for r, m := range list {
		if m.ID == c.endpoints[i].id {
			rank = r
		}
	}
	return func(ctx context.Context, st store.Store) error {
		for round := range 2 {
			c.at[i](fmt.Sprint("open ", round))
			if _, err := bootstrap.Exchange(ctx, store.NewPrefix(fmt.Sprint(round), st), rank, len(list),
				[]byte{byte(rank)}); err != nil {
				return err
			}
		}
		return nil
	}
}

// die makes a member end at its nth step from now on, as a killed process does: its connections break, and its
// goroutine does nothing more. where returns the step.
func (c *processes) die(i, n int) (where func() string) {
	var mu sync.Mutex
	at := ""
	c.at[i] = func(step string) {
		mu.Lock()
		n--
		now := n == 0
		if now {
			at = step
		}
		mu.Unlock()
		if now {
			c.endpoints[i].Close()
			runtime.Goexit()
		}
	}
	return func() string {
		mu.Lock()
		defer mu.Unlock()
		return at
	}
}

func TestAgree(t *testing.T) {
	for _, n := range []int{1, 2, 3, 8} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			c := newProcesses(t, n)
			who := rand.New(rand.NewPCG(1, uint64(n))).Perm(n)
			for _, uuid := range []string{"a", "b"} {
				for i, err := range c.agree(uuid, who...) {
					if err != nil {
						t.Errorf("%s, %d: %v", uuid, i, err)
					}
				}
			}
		})
	}
}

// A process dies at every step that it takes, in every place of the list: the others agree on how it ended, and the
// next attempt works.
func TestDeathAtEveryStep(t *testing.T) {
	points := 0
	for _, n := range []int{2, 3, 5} {
		for victim := range n {
			for step := 1; oneDeath(t, fmt.Sprintf("%d of %d, step %d", victim, n, step), n, map[int]int{victim: step}); step++ {
				points++
			}
		}
	}
	t.Logf("%d deaths", points)
}

// Two processes die, each at a random step: so the leader may, and then who resolves its attempt.
func TestDeathOfTwo(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for round := range 300 {
		n := 3 + r.IntN(4)
		victims := map[int]int{0: 4 + r.IntN(7), 1 + r.IntN(n-1): 1 + r.IntN(12)}
		if round%3 == 0 {
			victims = map[int]int{r.IntN(n): 1 + r.IntN(10), r.IntN(n): 1 + r.IntN(10)}
		}
		oneDeath(t, fmt.Sprintf("round %d: %d with %v", round, n, victims), n, victims)
	}
}

// oneDeath runs an attempt in which each victim dies at the given step; it reports whether any did.
func oneDeath(t *testing.T, name string, n int, victims map[int]int) (died bool) {
	t.Helper()
	c := newProcesses(t, n)
	defer func() {
		for _, s := range c.endpoints {
			s.Close()
		}
	}()
	where := map[int]func() string{}
	for i, step := range victims {
		where[i] = c.die(i, step)
	}
	var all []int
	for i := range n {
		all = append(all, i)
	}
	results := c.agree("first", all...)
	var alive []int
	var first error
	for _, i := range all {
		if w := where[i]; w != nil && w() != "" {
			died = true
			name += fmt.Sprintf(", %d at %q", i, w())
			continue
		}
		alive = append(alive, i)
		if len(alive) == 1 {
			first = results[i]
		}
		if (results[i] == nil) != (first == nil) {
			t.Errorf("%s: %d has %v, %d has %v", name, alive[0], first, i, results[i])
		}
		if e, ok := errors.AsType[*Error](results[i]); ok && where[e.Members[0]] == nil {
			t.Errorf("%s: %d blames %v: %v", name, i, e.Members, e)
		} else if results[i] != nil && !ok {
			t.Errorf("%s: %d has %v", name, i, results[i])
		}
	}
	if !died && first != nil {
		t.Errorf("%s: %v", name, first)
	}
	for i := range where {
		c.at[i] = func(string) {}
	}
	if len(alive) > 0 {
		for i, err := range c.agree("second", alive...) {
			if err != nil {
				t.Errorf("%s, again: %d: %v", name, i, err)
			}
		}
	}
	return died
}

func TestKeysAreForgotten(t *testing.T) {
	c := newProcesses(t, 3)
	var most int64
	for round := range 20 {
		for i, err := range c.agree(fmt.Sprint(round), 0, 1, 2) {
			if err != nil {
				t.Fatal(i, err)
			}
		}
		n, err := c.endpoints[0].Local().NumKeys(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if round == 2 {
			most = n
		}
		if round > 2 && n > most {
			t.Fatalf("%d keys after %d attempts, %d after 3", n, round+1, most)
		}
	}
}

func TestMissing(t *testing.T) {
	for absent := range 3 {
		c := newProcesses(t, 3)
		list := c.members(0, 1, 2)
		var all sync.WaitGroup
		for i := range 3 {
			if i == absent {
				continue
			}
			all.Go(func() {
				ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
				defer cancel()
				err := c.endpoints[i].Agree(ctx, "x", list, c.open(list, i))
				e, ok := errors.AsType[*Error](err)
				if !ok || e.Kind != Missing || len(e.Members) != 1 || e.Members[0] != absent {
					t.Errorf("%d, without %d: %v", i, absent, err)
				}
				if ok && !strings.Contains(err.Error(), fmt.Sprintf("rank %d before, pid ", absent)) {
					t.Errorf("%v", err)
				}
			})
		}
		all.Wait()
	}
}

func TestFailedPrepare(t *testing.T) {
	broken := errors.New("no memory left")
	for _, culprit := range []int{0, 2} {
		c := newProcesses(t, 3)
		list := c.members(0, 1, 2)
		var all sync.WaitGroup
		for i := range 3 {
			prepare := c.open(list, i)
			if i == culprit {
				prepare = func(context.Context, store.Store) error { return broken }
			}
			all.Go(func() {
				ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
				defer cancel()
				err := c.endpoints[i].Agree(ctx, "x", list, prepare)
				e, ok := errors.AsType[*Error](err)
				if !ok || e.Kind != Failed || e.Members[0] != culprit || e.Text != broken.Error() {
					t.Errorf("%d: %v", i, err)
				}
				if i == 0 && culprit == 0 && !errors.Is(err, broken) {
					t.Errorf("%d has lost the cause: %v", i, err)
				}
			})
		}
		all.Wait()
	}
}

func TestCanceled(t *testing.T) {
	c := newProcesses(t, 3)
	list := c.members(0, 1, 2)
	reason := errors.New("the user changed his mind")
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	var all sync.WaitGroup
	for i := range 2 { // member 2 never comes
		all.Go(func() {
			mine := context.Background()
			if i == 1 {
				mine = ctx
			}
			prepare := c.open(list, i)
			err := c.endpoints[i].Agree(mine, "x", list, func(ctx context.Context, st store.Store) error {
				if i == 1 {
					cancel(reason)
				}
				return prepare(ctx, st)
			})
			if e, ok := errors.AsType[*Error](err); !ok || e.Kind != Canceled || e.Members[0] != 1 || e.Text != reason.Error() {
				t.Errorf("%d: %v", i, err)
			}
		})
	}
	all.Wait()
}

func TestOtherList(t *testing.T) {
	c := newProcesses(t, 3)
	var all sync.WaitGroup
	for i := range 3 {
		list := c.members(0, 1, 2)
		if i == 2 {
			list = c.members(0, 2, 1)
		}
		all.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
			defer cancel()
			err := c.endpoints[i].Agree(ctx, "x", list, c.open(list, i))
			if e, ok := errors.AsType[*Error](err); !ok || e.Kind != Mismatch {
				t.Errorf("%d: %v", i, err)
			}
		})
	}
	all.Wait()
}

func TestRefused(t *testing.T) {
	c := newProcesses(t, 2)
	prepare := func(context.Context, store.Store) error { return nil }
	for name, err := range map[string]error{
		"not among": c.endpoints[0].Agree(t.Context(), "a", c.members(1), prepare),
		"slash":     c.endpoints[0].Agree(t.Context(), "a/b", c.members(0), prepare),
	} {
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := c.endpoints[0].Agree(t.Context(), "a", c.members(0), prepare); err != nil {
		t.Error(err)
	}
	if err := c.endpoints[0].Agree(t.Context(), "a", c.members(0), prepare); err == nil || !strings.Contains(err.Error(),
		"fresh") {
		t.Error(err)
	}
}

func TestHandles(t *testing.T) {
	c := newProcesses(t, 1)
	m := c.endpoints[0].Member(OldPlace{World: "a b", Rank: 1, Size: 3})
	got, err := Parse(m.String())
	if err != nil || got != m || strings.ContainsAny(m.String(), " \n/") || len(m.String()) > 512 {
		t.Errorf("%+v of %q: %v", got, m, err)
	}
	bad := m
	bad.Place.Rank = 7
	for _, h := range []string{"", "x", handlePrefix, handlePrefix + "e30", bad.String(), strings.Repeat("a", 2000)} {
		if _, err := Parse(h); err == nil {
			t.Errorf("%q was taken", h)
		}
	}
	if _, err := ParseAll([]string{m.String(), m.String()}); err == nil {
		t.Error("the same twice")
	}
	order := []Member{}
	for _, p := range []OldPlace{{Rank: -1}, {World: "b", Rank: 0, Size: 9}, {World: "a", Rank: 2, Size: 3},
		{World: "a", Rank: 0, Size: 3}} {
		order = append(order, Member{Place: p})
	}
	Sort(order)
	if order[0].Place.World != "a" || order[0].Place.Rank != 0 || order[1].Place.Rank != 2 ||
		order[2].Place.World != "b" || order[3].Place.Rank != -1 {
		t.Errorf("%+v", order)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(Member{ID: "a", Place: OldPlace{Rank: -1}, Address: bootstrap.Address{Unix: "@x", TCP: "1.2.3.4:5"}}.String())
	f.Add(handlePrefix + "e30")
	f.Fuzz(func(t *testing.T, handle string) {
		m, err := Parse(handle)
		if err != nil {
			return
		}
		if again, err := Parse(m.String()); err != nil || again != m {
			t.Errorf("%+v became %+v: %v", m, again, err)
		}
	})
}
