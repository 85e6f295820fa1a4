package shm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"
	"unsafe"

	"pgregory.net/rapid"

	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/hostmem"
	"github.com/chorus-comms/chorus/internal/testutil"
)

func pattern(id, n int) []byte {
	b := make([]byte, n)
	x := uint32(id)*2654435761 + 1
	for i := range b {
		x = x*1664525 + 1013904223
		b[i] = byte(x >> 24)
	}
	return b
}

// buffers hands out memory. Every other time peers can map it.
type buffers struct {
	mu     sync.Mutex
	blocks []*hostmem.Block
}

func (b *buffers) get(n int, mapped bool) []byte {
	if !mapped || n == 0 {
		return make([]byte, n)
	}
	block, err := hostmem.Alloc(n)
	if err != nil {
		panic(err)
	}
	b.mu.Lock()
	b.blocks = append(b.blocks, block)
	b.mu.Unlock()
	return block.Bytes()
}

func (b *buffers) free() {
	for _, x := range b.blocks {
		x.Free()
	}
}

// Messages of all sizes and kinds of memory, sent and received in different
// orders, some of them canceled on either side, arrive as they were sent.
func TestMixedMessages(t *testing.T) {
	checkLeaks(t)
	type letter struct {
		from, to, n            int
		mappedOut, mappedIn    bool
		cancelSend, cancelRecv bool
		any                    bool
	}
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(2, 3).Draw(t, "ranks")
		options := map[string]string{
			"cma":  rapid.SampledFrom([]string{"auto", "off"}).Draw(t, "cma"),
			"map":  rapid.SampledFrom([]string{"auto", "off"}).Draw(t, "map"),
			"wait": rapid.SampledFrom([]string{"auto", "block"}).Draw(t, "wait"),
		}
		letters := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) letter {
			kind := rapid.IntRange(0, 9).Draw(t, "fate")
			return letter{
				from: rapid.IntRange(0, size-1).Draw(t, "from"), to: rapid.IntRange(0, size-1).Draw(t, "to"),
				n: rapid.SampledFrom([]int{0, 1, 64, 65, 96, 97, wholeMax, wholeMax + 1, 70_000, 1<<20 + 5,
					3 << 20}).Draw(t, "bytes"),
				mappedOut: rapid.Bool().Draw(t, "out"), mappedIn: rapid.Bool().Draw(t, "in"),
				cancelSend: kind == 0, cancelRecv: kind == 1, any: kind == 2,
			}
		}), 1, 24).Draw(t, "letters")
		seed := rapid.Uint64().Draw(t, "order")
		ranks, errs := openAll(size, func(c *fabric.Config) { c.Options = options })
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		var memory buffers
		failures := make([]error, size)
		var wg sync.WaitGroup
		for r, f := range ranks {
			wg.Go(func() {
				failures[r] = func() error {
					rng := rand.New(rand.NewPCG(seed, uint64(r)))
					w := newWaiter()
					type posted struct {
						m      *fabric.Msg
						letter letter
						id     int
						send   bool
					}
					var all []posted
					for i, x := range letters {
						if x.from == r {
							buf := memory.get(x.n, x.mappedOut)
							copy(buf, pattern(i, x.n))
							all = append(all, posted{message(x.to, i, buf), x, i, true})
						}
						if x.to == r {
							from := x.from
							if x.any {
								from = fabric.AnySource
							}
							all = append(all, posted{message(from, i, memory.get(x.n, x.mappedIn)), x, i, false})
						}
					}
					rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
					for _, p := range all {
						p.m.Reset(w)
						post(f, p.send, p.m)
						if rng.IntN(4) == 0 {
							runtime.Gosched()
						}
					}
					for _, p := range all {
						if p.send && p.letter.cancelSend || !p.send && p.letter.cancelRecv {
							f.Cancel(p.m)
						}
					}
					for _, p := range all {
						canceled := p.letter.cancelSend || p.letter.cancelRecv
						if canceled && !p.m.Done() {
							// Its counterpart may be gone for good.
							w.Begin(nil, 20*time.Millisecond)
						} else {
							w.Begin(nil, patience)
						}
						err := f.Wait(p.m, w)
						if canceled {
							f.Cancel(p.m)
							if err = p.m.Err; errors.Is(err, fabric.ErrCanceled) {
								continue
							}
						}
						if err != nil {
							return fmt.Errorf("message %d, %+v, sending %v: %w", p.id, p.letter, p.send, err)
						}
						if p.send || canceled {
							continue
						}
						if p.m.From != p.letter.from || p.m.N != p.letter.n {
							return fmt.Errorf("message %d, %+v: got %d bytes from %d", p.id, p.letter, p.m.N, p.m.From)
						}
						if !bytes.Equal(p.m.Bytes(), pattern(p.id, p.letter.n)) {
							return fmt.Errorf("message %d, %+v: wrong bytes", p.id, p.letter)
						}
					}
					// No rank closes while another still waits for its messages.
					for q := range size {
						if q != r {
							post(f, true, message(q, 1<<20, nil))
						}
					}
					for q := range size {
						if q != r {
							w.Begin(nil, patience)
							if err := f.Wait(post(f, false, message(q, 1<<20, nil)), w); err != nil {
								return err
							}
						}
					}
					return nil
				}()
			})
		}
		wg.Wait()
		closeWorld(ranks)
		memory.free()
		if err := errors.Join(failures...); err != nil {
			t.Fatal(err)
		}
	})
}

// A full ring delays messages but doesn't reorder them.
func TestRingOverflow(t *testing.T) {
	const count = 20 * entryCount
	for _, n := range []int{8, 1000, wholeMax} {
		ranks := openWorld(t, 2, nil)
		each(t, ranks, func(f *Fabric, w *fabric.Waiter) error {
			out, in := make([]*fabric.Msg, count), make([]*fabric.Msg, count)
			for i := range count { // both send before either receives
				out[i] = post(f, true, message(1-f.rank, 0, pattern(i, n)))
			}
			for i := range count {
				in[i] = post(f, false, message(1-f.rank, 0, make([]byte, n)))
			}
			for i := range count {
				if err := errors.Join(f.Wait(in[i], w), f.Wait(out[i], w)); err != nil {
					return err
				}
				if !bytes.Equal(in[i].Bytes(), pattern(i, n)) {
					return fmt.Errorf("message %d of %d bytes is another one", i, n)
				}
			}
			return nil
		})
		closeAll(t, ranks)
	}
}

// More announced messages than there are claims: the rest are staged.
func TestManyAnnounced(t *testing.T) {
	const count, n = 3 * claimCount, 2 * wholeMax
	ranks := openWorld(t, 2, nil)
	each(t, ranks, func(f *Fabric, w *fabric.Waiter) error {
		ms := make([]*fabric.Msg, count)
		for i := range count {
			if f.rank == 0 {
				ms[i] = post(f, true, message(1, i, pattern(i, n)))
			}
		}
		for i := count - 1; i >= 0; i-- {
			if f.rank == 1 {
				ms[i] = post(f, false, message(0, i, make([]byte, n)))
				if err := f.Wait(ms[i], w); err != nil {
					return err
				}
				if !bytes.Equal(ms[i].Bytes(), pattern(i, n)) {
					return fmt.Errorf("message %d has other bytes", i)
				}
			}
		}
		for _, m := range ms {
			if err := f.Wait(m, w); err != nil {
				return err
			}
		}
		return nil
	})
	closeAll(t, ranks)
}

// Messages complete although no goroutine waits.
func TestProgressWithoutWait(t *testing.T) {
	for _, options := range []map[string]string{nil, {"cma": "off"}} {
		ranks := openWorld(t, 2, options)
		const n = 3 << 20
		in := make([]byte, n)
		ms := []*fabric.Msg{message(1, 0, pattern(5, n)), message(0, 0, in)}
		post(ranks[0], true, ms[0])
		post(ranks[1], false, ms[1])
		deadline := time.Now().Add(patience)
		for !ms[0].Done() || !ms[1].Done() {
			if time.Now().After(deadline) {
				t.Fatal("nothing moves")
			}
			runtime.Gosched()
		}
		if !bytes.Equal(in, pattern(5, n)) {
			t.Error("other bytes arrived")
		}
		closeAll(t, ranks)
	}
}

// A rank closes once it has received a message, and that is the last that its sender gets from it: the message
// was sent. One that it hasn't received was not.
func TestReceivedBeforeGoodbye(t *testing.T) {
	ranks := openWorld(t, 2, nil)
	var b buffers
	defer b.free()
	const n = 300_000
	each(t, ranks, func(f *Fabric, w *fabric.Waiter) error {
		if f.rank == 1 {
			for tag := range 4 {
				if err := f.Wait(post(f, false, message(0, tag, b.get(n, true))), w); err != nil {
					return err
				}
			}
			return f.Close(context.Background())
		}
		f.acquire() // no goroutine sees what the peer has read
		var ms []*fabric.Msg
		for tag := range 5 {
			ms = append(ms, post(f, true, message(1, tag, b.get(n, true))))
		}
		for deadline := time.Now().Add(patience); f.wanted.Load() == 0 && time.Now().Before(deadline); {
			runtime.Gosched() // until its goodbye wants to be heard
		}
		f.unlock()
		for tag, m := range ms {
			if err := f.Wait(m, w); tag < 4 && err != nil {
				return fmt.Errorf("message %d: %w", tag, err)
			} else if tag == 4 && !errors.Is(err, fabric.ErrLeft) {
				return fmt.Errorf("a message that wasn't received: %v", err)
			}
		}
		return nil
	})
	closeAll(t, ranks)
}

// A receive is withdrawn at the moment at which its message has come, but wasn't copied yet: it gets it.
func TestWithdrawnAtTheLastMoment(t *testing.T) {
	ranks := openWorld(t, 2, nil)
	const n = 300_000
	each(t, ranks, func(f *Fabric, w *fabric.Waiter) error {
		if f.rank == 0 {
			return f.Wait(post(f, true, message(1, 0, make([]byte, n))), w)
		}
		f.acquire()
		m := post(f, false, message(0, 0, make([]byte, n)))
		for deadline := time.Now().Add(patience); !f.pulls.busy() && time.Now().Before(deadline); runtime.Gosched() {
			for _, p := range f.near { // as poll does, which would go on to copy
				if stamp, ok, _ := p.in.peek(); ok {
					f.receive(p, stamp)
				}
			}
		}
		alone := f.near[0].canRead // else it takes the sender's help
		f.abandonPull(m, fabric.ErrCanceled)
		f.unlock()
		if !alone {
			return nil
		}
		if !m.Done() {
			f.Cancel(m)
			return errors.New("it's neither withdrawn nor done")
		}
		if m.Err != nil || m.N != n {
			return fmt.Errorf("%d bytes, %v", m.N, m.Err)
		}
		return nil
	})
	closeAll(t, ranks)
}

// If the permission to read the sender's memory is withdrawn after it was probed,
// the message is staged.
func TestReadingRefused(t *testing.T) {
	ranks := openWorld(t, 2, map[string]string{"map": "off"})
	ranks[1].peers[0].pid = 1 << 30 // of no process
	each(t, ranks, func(f *Fabric, w *fabric.Waiter) error {
		for i := range 3 {
			buf := pattern(i, 300_000)
			if f.rank == 1 {
				clear(buf)
			}
			m := post(f, f.rank == 0, message(1-f.rank, i, buf))
			if err := f.Wait(m, w); err != nil {
				return err
			}
			if !bytes.Equal(buf, pattern(i, 300_000)) {
				return errors.New("other bytes arrived")
			}
		}
		return nil
	})
	closeAll(t, ranks)
}

// A segment that its owner closes is forgotten by the peers, but late readers survive.
func TestSegmentEnds(t *testing.T) {
	checkLeaks(t)
	ranks := openWorld(t, 2, nil)
	seg, err := hostmem.NewSegment(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	seg.Bytes()[77] = 9
	p := ranks[1].peers[0]
	addr, err := p.resolve(newWaiter(), ranks[0].Place(unsafe.Add(seg.Base(), 77), 10), 10)
	if err != nil {
		t.Fatal(err)
	}
	if *(*byte)(addr) != 9 {
		t.Error("the mapping shows other memory")
	}
	for _, beyond := range []fabric.Place{{Segment: seg.ID(), Offset: 1 << 20}, {Segment: seg.ID(), Offset: 1<<64 - 4}} {
		if _, err := p.resolve(newWaiter(), beyond, 8); err == nil {
			t.Errorf("%+v was resolved", beyond)
		}
	}
	seg.Close()
	testutil.Eventually(t, func() bool { return p.maps.lookup(seg.ID()) == nil }, "the peer unmaps the segment")
	_ = *(*byte)(addr)
	if _, err := p.resolve(newWaiter(), fabric.Place{Segment: seg.ID()}, 1); err == nil {
		t.Error("a closed segment was resolved")
	}
	closeAll(t, ranks)
}
