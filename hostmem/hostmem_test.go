package hostmem

import (
	"bytes"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"pgregory.net/rapid"

	"github.com/chorus-comms/chorus/internal/testutil"
)

// checkLeaks fails the test if it leaves segments, mappings, descriptors or blocks behind.
func checkLeaks(t *testing.T) {
	t.Helper()
	Trim()
	before, fds := ReadStats(), memfds(t)
	t.Cleanup(func() {
		Trim()
		after := ReadStats()
		before.Peak, after.Peak = 0, 0
		if after != before || memfds(t) != fds {
			t.Errorf("left behind: %+v with %d descriptors, began with %+v and %d", after, memfds(t), before, fds)
		}
	})
}

// memfds counts this process's open memory files.
func memfds(t *testing.T) (n int) {
	t.Helper()
	if !memoryFiles {
		return 0
	}
	dir, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range dir {
		if l, _ := os.Readlink("/proc/self/fd/" + e.Name()); strings.Contains(l, "memfd:chorus") {
			n++
		}
	}
	return n
}

func TestBlocks(t *testing.T) {
	checkLeaks(t)
	for _, n := range []int{0, 1, 255, 256, 257, 4095, 4096, 70001, largeSize - 1, largeSize, largeSize + 1, 5 << 20} {
		b, err := AllocZero(n)
		if err != nil {
			t.Fatal(err)
		}
		if b.Len() != n || len(b.Bytes()) != n || b.Pointer() != unsafe.Add(b.Segment().Base(), b.Offset()) {
			t.Errorf("%d: block of %d at %d", n, b.Len(), b.Offset())
		}
		align := min(1<<orderFor(n), pageSize)
		if uintptr(b.Pointer())%uintptr(align) != 0 {
			t.Errorf("%d: %p is not aligned to %d", n, b.Pointer(), align)
		}
		if n > 0 {
			if s, off, ok := Find(b.Pointer(), n); ok != memoryFiles || ok && (s != b.Segment() || off != b.Offset()) {
				t.Errorf("%d: found is %v", n, ok)
			}
		}
		for i := range b.Bytes() {
			b.Bytes()[i] = 0xff
		}
		b.Free()
		b.Free()
		again, err := AllocZero(n)
		if err != nil {
			t.Fatal(err)
		}
		if len(bytes.Trim(again.Bytes(), "\x00")) != 0 {
			t.Errorf("%d: reused memory was not cleared", n)
		}
		if n >= largeSize && again.Segment() != b.Segment() {
			t.Errorf("%d: the freed segment was not reused", n)
		}
		again.Free()
	}
	for _, n := range []int{-1, maxSize + 1} {
		if _, err := Alloc(n); err == nil {
			t.Errorf("a block of %d bytes was made", n)
		}
	}
}

func TestLargeClass(t *testing.T) {
	for n := largeSize; n < 1<<40; n += n/3 + 12345 {
		c := largeClass(n)
		if c < n || c > n+n/8+pageSize || c%pageSize != 0 || largeClass(c) != c {
			t.Errorf("largeClass(%d) = %d", n, c)
		}
	}
}

func TestCacheLimit(t *testing.T) {
	checkLeaks(t)
	defer SetCacheLimit(DefaultCacheLimit)
	SetCacheLimit(5 << 20)
	var list []*Block
	for range 4 {
		b, err := Alloc(2 << 20)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, b)
	}
	start := ReadStats()
	if start.InUse < 8<<20 || start.Peak < start.InUse {
		t.Errorf("%+v", start)
	}
	for _, b := range list {
		b.Free()
	}
	if st := ReadStats(); st.Cached-start.Cached != 4<<20 || st.InUse != start.InUse-8<<20 {
		t.Errorf("after freeing 4 x 2 MiB under a limit of 5 MiB: %+v", st)
	}
	SetCacheLimit(4 << 20)
	if st := ReadStats(); st.Cached-start.Cached != 4<<20 {
		t.Errorf("4 MiB under a limit of 4 MiB: %+v", st)
	}
	SetCacheLimit(4<<20 - 1)
	if st := ReadStats(); st.Cached-start.Cached != 2<<20 {
		t.Errorf("with a limit just below 4 MiB: %+v", st)
	}
	b, err := Alloc(2 << 20)
	if err != nil {
		t.Fatal(err)
	}
	if b.Segment() != list[3].Segment() {
		t.Error("the segment freed last is not the one reused first")
	}
	b.Free()
	SetCacheLimit(0)
	if st := ReadStats(); st.Cached-start.Cached != 0 {
		t.Errorf("with limit 0: %+v", st)
	}
}

// waitStats collects garbage until cond holds; cleanups run in a goroutine of their own.
func waitStats(t *testing.T, cond func(Stats) bool) {
	t.Helper()
	testutil.Eventually(t, func() bool { runtime.GC(); return cond(ReadStats()) }, "the statistics, first at %+v, become others",
		ReadStats())
}

func TestForgottenBlocks(t *testing.T) {
	Trim()
	start := ReadStats()
	for range 3 {
		b, err := Alloc(2 << 20)
		if err != nil {
			t.Fatal(err)
		}
		*(*byte)(b.Pointer()) = 1
	}
	waitStats(t, func(s Stats) bool { return s.InUse == start.InUse })

	b, err := Alloc(2 << 20)
	if err != nil {
		t.Fatal(err)
	}
	lent := b.Bytes()
	lent[100] = 42
	b = nil
	waitStats(t, func(s Stats) bool { return s.Forgotten == start.Forgotten+2<<20 })
	next, err := Alloc(2 << 20)
	if err != nil {
		t.Fatal(err)
	}
	defer next.Free()
	next.Bytes()[100] = 1
	if lent[100] != 42 {
		t.Error("memory with a slice outstanding was handed out again")
	}
}

func TestBuddy(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type block struct{ off, order int }
		b, live := newBuddy(), []block{}
		t.Repeat(map[string]func(*rapid.T){
			"alloc": func(t *rapid.T) {
				order := rapid.IntRange(minOrder, maxOrder).Draw(t, "order")
				if !b.fits(order) {
					// It must be true that no aligned free place exists.
					for off := 0; off < slabSize; off += 1 << order {
						free := true
						for _, l := range live {
							free = free && (l.off+1<<l.order <= off || off+1<<order <= l.off)
						}
						if free {
							t.Fatalf("order %d does not fit, but %d is free", order, off)
						}
					}
					t.Skip()
				}
				n := block{b.alloc(order), order}
				if n.off < 0 || n.off+1<<order > slabSize || n.off%(1<<order) != 0 {
					t.Fatalf("order %d at %d", order, n.off)
				}
				for _, l := range live {
					if l.off < n.off+1<<n.order && n.off < l.off+1<<l.order {
						t.Fatalf("%v overlaps %v", n, l)
					}
				}
				live = append(live, n)
			},
			"free": func(t *rapid.T) {
				if len(live) == 0 {
					t.Skip()
				}
				i := rapid.IntRange(0, len(live)-1).Draw(t, "i")
				b.free(live[i].off, live[i].order)
				live[i] = live[len(live)-1]
				live = live[:len(live)-1]
			},
			"": func(t *rapid.T) {
				if b.empty() != (len(live) == 0) {
					t.Fatalf("empty is %v with %d blocks", b.empty(), len(live))
				}
			},
		})
		for _, l := range live {
			b.free(l.off, l.order)
		}
		if *b != *newBuddy() {
			t.Fatal("not as new after freeing everything")
		}
	})
}

func TestConcurrent(t *testing.T) {
	checkLeaks(t)
	defer SetCacheLimit(DefaultCacheLimit)
	SetCacheLimit(3 << 20)
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(1, uint64(g)))
			var live []*Block
			for range 300 {
				if len(live) > 10 || len(live) > 0 && rng.IntN(2) == 0 {
					i := rng.IntN(len(live))
					b := live[i]
					for _, v := range b.Bytes() {
						if v != byte(g+1) {
							t.Errorf("a block of goroutine %d holds %d", g, v)
							break
						}
					}
					b.Free()
					live[i] = live[len(live)-1]
					live = live[:len(live)-1]
					continue
				}
				n := rng.IntN(20000)
				if rng.IntN(20) == 0 {
					n += largeSize
				}
				b, err := Alloc(n)
				if err != nil {
					t.Error(err)
					return
				}
				for i := range b.Bytes() {
					b.Bytes()[i] = byte(g + 1)
				}
				if s, _, ok := Find(b.Pointer(), n); ok != memoryFiles || ok && s != b.Segment() {
					t.Errorf("found is %v", ok)
				}
				live = append(live, b)
			}
			for _, b := range live {
				b.Free()
			}
		})
	}
	wg.Wait()
}

func BenchmarkAlloc(b *testing.B) {
	for _, n := range []int{4 << 10, 4 << 20} {
		b.Run(map[bool]string{true: "small", false: "large"}[n < largeSize], func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				blk, err := Alloc(n)
				if err != nil {
					b.Fatal(err)
				}
				blk.Free()
			}
		})
	}
}
