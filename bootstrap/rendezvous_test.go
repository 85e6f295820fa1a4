package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/secure"
	"github.com/chorus-comms/chorus/store"
)

// places are stores of each kind, where ranks of a test meet.
func places(t *testing.T) map[string]store.Store {
	file, err := store.OpenFile(t.Context(), filepath.Join(t.TempDir(), "f"), store.FileOptions{})
	if err != nil {
		t.Fatal(err)
	}
	server, err := store.ListenTCP("127.0.0.1:0", store.ServerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	tcp, err := store.DialTCP(t.Context(), server.Addr().String(), store.TCPOptions{})
	if err != nil {
		t.Fatal(err)
	}
	hash := store.NewHash(0)
	t.Cleanup(func() {
		tcp.Close()
		server.Close()
		file.Close()
		hash.Close()
	})
	return map[string]store.Store{"hash": hash, "file": file, "tcp": tcp}
}

// meet has a rank of a world meet the others, and checks what they have brought.
func meet(ctx context.Context, st store.Store, rank, size int, change ...func(*Rendezvous)) (*Rendezvous, error) {
	m := NewRendezvous(st, rank, size)
	for _, f := range change {
		f(m)
	}
	all, err := m.Exchange(ctx, secure.Secret{}, []byte{byte(rank)})
	for r, b := range all {
		if len(b) != 1 || b[0] != byte(r) {
			return m, fmt.Errorf("rank %d has brought %v", r, b)
		}
	}
	return m, err
}

func again(m *Rendezvous) { m.Again = true }

// A rank that has been missed is met by another try of the others, whatever became of the first.
func TestRendezvousTriedAgain(t *testing.T) {
	for name, st := range places(t) {
		t.Run(name, func(t *testing.T) {
			var all, missed sync.WaitGroup
			var rooms sync.Map
			missed.Add(2)
			for r := range 3 {
				all.Go(func() {
					if r == 2 {
						missed.Wait()
					}
					for try := range 3 {
						limit := 5 * time.Second
						if try == 0 && r < 2 {
							limit = 100 * time.Millisecond
						}
						ctx, cancel := context.WithTimeout(t.Context(), limit)
						m, err := meet(ctx, st, r, 3)
						cancel()
						if err == nil {
							rooms.Store(r, m.prefix)
							return
						}
						if e, ok := errors.AsType[*MissingRanksError](err); !ok || !slices.Equal(e.Missing, []int{2}) {
							t.Errorf("rank %d, try %d: %v", r, try, err)
						}
						if try == 0 && r < 2 {
							missed.Done()
						}
					}
					t.Errorf("rank %d has tried in vain", r)
				})
			}
			all.Wait()
			first, _ := rooms.Load(0)
			for r := range 3 {
				if room, _ := rooms.Load(r); room != first {
					t.Errorf("rank %d has met the others in %v, rank 0 in %v", r, room, first)
				}
			}
		})
	}
}

// One that gives up and comes again is met by the same call of those who have waited on, and by one who comes later.
func TestRendezvousWaitsOn(t *testing.T) {
	for name, st := range places(t) {
		t.Run(name, func(t *testing.T) {
			var all sync.WaitGroup
			come := func(r int) {
				all.Go(func() {
					if _, err := meet(t.Context(), st, r, 3); err != nil {
						t.Errorf("rank %d: %v", r, err)
					}
				})
			}
			come(1)
			if err := st.Wait(t.Context(), "0/1"); err != nil {
				t.Fatal(err)
			}
			for try := range 3 {
				ctx, cancel := context.WithCancel(t.Context())
				gone := make(chan error)
				go func() {
					_, err := meet(ctx, st, 0, 3)
					gone <- err
				}()
				if err := st.Wait(t.Context(), fmt.Sprint(try, "/0")); err != nil {
					t.Fatal(err)
				}
				cancel()
				if err := <-gone; !errors.Is(err, context.Canceled) {
					t.Errorf("try %d: %v", try, err)
				}
			}
			come(2)
			come(0)
			all.Wait()
		})
	}
}

// A rank that gives up later doesn't say that an earlier one is missing.
func TestRendezvousNamesWhoNeverCame(t *testing.T) {
	st := store.NewHash(0)
	defer st.Close()
	var all sync.WaitGroup
	for r := range 4 {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(60+20*r)*time.Millisecond)
			defer cancel()
			_, err := meet(ctx, st, r, 5)
			if e, ok := errors.AsType[*MissingRanksError](err); !ok || !slices.Equal(e.Missing, []int{4}) {
				t.Errorf("rank %d: %v", r, err)
			}
		})
	}
	all.Wait()
}

// A process replaces one that has died on its host at its first try. On another host it and all that wait get an error
// with both, and the next try succeeds.
func TestRendezvousReplacesTheDead(t *testing.T) {
	child := exec.Command("sleep", "60")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	host, err := kernelID()
	stat, bad := procStat(child.Process.Pid)
	child.Process.Kill()
	child.Wait()
	if err != nil || bad != nil {
		t.Skip("left out: the system says nothing of processes")
	}
	for where, known := range map[string]bool{host: true, "elsewhere": false} {
		st := store.NewHash(0)
		defer st.Close()
		dead := &attempt{st: store.NewPrefix("0", st), rank: 1, size: 2}
		word := processInfo{Who: "the dead", Process: fmt.Sprint(where, " ", child.Process.Pid, " ", stat.start)}
		for _, f := range []func() error{
			func() error { _, err := dead.st.Add(t.Context(), "claim/1", 1); return err },
			func() error { return dead.st.Set(t.Context(), "1", word.append([]byte{1})) },
			func() error { _, err := dead.st.Add(t.Context(), countKey, 1); return err },
		} {
			if err := f(); err != nil {
				t.Fatal(err)
			}
		}
		var all sync.WaitGroup
		size := 3
		dead.size = size
		for r := range size {
			all.Go(func() {
				if r == 2 { // or it would meet the dead
					if err := dead.st.Wait(t.Context(), endKey); err != nil {
						t.Error(err)
					}
				}
				for try := range 3 {
					_, err := meet(t.Context(), st, r, size)
					if err == nil {
						if known && try > 0 {
							t.Errorf("rank %d needed try %d", r, try+1)
						}
						return
					}
					if e, ok := errors.AsType[*DuplicateRankError](err); known || !ok || e.Rank != 1 || e.First != "the dead" {
						t.Errorf("rank %d: %v", r, err)
					}
				}
				t.Errorf("rank %d has tried in vain", r)
			})
		}
		all.Wait()
	}
}

// Meetings follow each other at one place, of the same members or others; when what they were for has come about, only
// who says so may come again.
func TestRendezvousAgain(t *testing.T) {
	st := store.NewHash(0)
	defer st.Close()
	rooms := map[string]bool{}
	for life := range 5 {
		members := []int{2 * life, 2*life + 1}
		var all sync.WaitGroup
		var met [2]*Rendezvous
		for r := range 2 {
			all.Go(func() {
				var err error
				met[r], err = meet(t.Context(), st, r, 2, again, func(m *Rendezvous) { m.Members = members })
				if err != nil {
					t.Errorf("life %d, rank %d: %v", life, r, err)
				}
			})
		}
		all.Wait()
		if met[0].prefix != met[1].prefix || rooms[met[0].prefix] {
			t.Errorf("life %d is in %q and %q", life, met[0].prefix, met[1].prefix)
		}
		rooms[met[0].prefix] = true
	}
	if err := NewRendezvous(st, 1, 2).Complete(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := meet(t.Context(), st, 0, 2); !errors.Is(err, ErrCompleted) {
		t.Errorf("one more: %v", err)
	}
}

// crossing has ranks of a job come for groups, in an order and each as soon as the one before has been seen to be there
// or has left. It returns what each got, and fails if one is still there at the end.
func crossing(t *testing.T, order []int, groups map[int][]int, limit time.Duration) map[int]error {
	t.Helper()
	st := store.NewHash(0)
	defer st.Close()
	counted := &counting{Store: st}
	var mu sync.Mutex
	got := map[int]error{}
	var all sync.WaitGroup
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	for _, rank := range order {
		members := groups[rank]
		before := counted.calls.Load()
		left := make(chan bool)
		all.Go(func() {
			defer close(left)
			_, err := meet(ctx, counted, slices.Index(members, rank), len(members), again,
				func(m *Rendezvous) { m.Members = members })
			mu.Lock()
			got[rank] = err
			mu.Unlock()
		})
		for counted.calls.Load() < before+5 { // it waits
			select {
			case <-left:
				before -= 5
			case <-time.After(50 * time.Microsecond):
			}
		}
	}
	all.Wait()
	return got
}

// counting counts the requests to a store that come back.
type counting struct {
	store.Store
	calls atomic.Int64
}

func (s *counting) Add(ctx context.Context, key string, delta int64) (int64, error) {
	s.calls.Add(1)
	return s.Store.Add(ctx, key, delta)
}
func (s *counting) Set(ctx context.Context, key string, value []byte) error {
	s.calls.Add(1)
	return s.Store.Set(ctx, key, value)
}
func (s *counting) Get(ctx context.Context, key string) ([]byte, error) {
	s.calls.Add(1)
	return s.Store.Get(ctx, key)
}
func (s *counting) MultiGet(ctx context.Context, keys ...string) ([][]byte, error) {
	s.calls.Add(1)
	return store.MultiGet(ctx, s.Store, keys...)
}

// Ranks of groups that cross meet the right ones, or get an error, and none of them waits.
func TestRendezvousCrossed(t *testing.T) {
	two := map[int][]int{0: {0, 3}, 1: {1, 2}, 2: {1, 2}, 3: {0, 3}}
	three := map[int][]int{0: {0, 1, 2}, 1: {0, 1, 2}, 2: {0, 1, 2}, 3: {3, 4, 5}, 4: {3, 4, 5}, 5: {3, 4, 5}}
	chain := map[int][]int{0: {0, 3}, 2: {2, 3}, 3: {2, 3}}
	for name, groups := range map[string]map[int][]int{"pairs": two, "threes": three, "one has no partner": chain} {
		t.Run(name, func(t *testing.T) {
			ranks := slices.Sorted(func(yield func(int) bool) {
				for r := range groups {
					if !yield(r) {
						return
					}
				}
			})
			crossed, rounds, limit := 0, 60, 20*time.Second
			if name == "one has no partner" {
				rounds, limit = 5, 500*time.Millisecond
			}
			for range rounds {
				rand.Shuffle(len(ranks), func(i, j int) { ranks[i], ranks[j] = ranks[j], ranks[i] })
				for rank, err := range crossing(t, ranks, groups, limit) {
					switch e := (*CrossedError)(nil); {
					case err == nil:
					case errors.As(err, &e):
						crossed++
						lists := []string{formatMembers(groups[ranks[0]])}
						for _, r := range ranks {
							if p := formatMembers(groups[r]); p != lists[0] {
								lists = append(lists, p)
								break
							}
						}
						slices.Sort(lists)
						if a := []string{e.A, e.B}; slices.Compare(slices.Sorted(slices.Values(a)), lists) != 0 {
							t.Errorf("order %v, rank %d: %v", ranks, rank, err)
						}
					case name == "one has no partner" && rank == 0 && errors.As(err, new(*MissingRanksError)):
						// 2 and 3 have met before it came
					default:
						t.Errorf("order %v, rank %d: %v", ranks, rank, err)
					}
				}
			}
			if crossed == 0 {
				t.Error("none were crossed")
			}
		})
	}
}

// Two at a time, in parallel: the right partner or an error, never another one.
func TestRendezvousCrossedAtOnce(t *testing.T) {
	for range 50 {
		st := store.NewHash(0)
		var all sync.WaitGroup
		rooms := make([]string, 4)
		for rank, members := range [][]int{{0, 3}, {1, 2}, {1, 2}, {0, 3}} {
			all.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				m, err := meet(ctx, st, slices.Index(members, rank), 2, again, func(m *Rendezvous) { m.Members = members })
				if rooms[rank] = m.prefix; err != nil && !errors.As(err, new(*CrossedError)) {
					t.Errorf("rank %d: %v", rank, err)
				}
			})
		}
		all.Wait()
		if rooms[0] != rooms[3] || rooms[1] != rooms[2] || rooms[0] != "" && rooms[0] == rooms[1] {
			t.Errorf("they're in %q", rooms)
		}
		st.Close()
	}
}

// Five round trips, and two more of the last rank.
func TestRendezvousRoundTrips(t *testing.T) {
	st := store.NewHash(0)
	defer st.Close()
	const size = 5
	for life := range 3 {
		var total atomic.Int64
		var all sync.WaitGroup
		for r := range size {
			all.Go(func() {
				counted := &counting{Store: st}
				if _, err := meet(t.Context(), counted, r, size, again); err != nil {
					t.Error(err)
				}
				total.Add(counted.calls.Load())
			})
		}
		all.Wait()
		if n := total.Load(); n != 5*size+2 {
			t.Errorf("life %d: %d requests", life, n)
		}
	}
}

func TestParty(t *testing.T) {
	long := make([]int, 1000)
	for i := range long {
		long[i] = 3 * i
	}
	other := slices.Clone(long)
	other[999]++
	for want, members := range map[string][]int{"": nil, "0-3, 7": {0, 1, 2, 3, 7}, "7, 0": {7, 0}} {
		if got := formatMembers(members); got != want {
			t.Errorf("%v is %q", members, got)
		}
	}
	if a, b := formatMembers(long), formatMembers(other); a == b || len(a) > 250 || !strings.HasPrefix(a, "0, 3, 6") ||
		!strings.Contains(a, "("+strconv.Itoa(len(long))+" ranks") {
		t.Errorf("%q and %q", a, b)
	}
}
