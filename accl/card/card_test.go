package card

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"go.uber.org/goleak"

	"github.com/chorus-comms/chorus/accl"
	"github.com/chorus-comms/chorus/accl/abi"
	"github.com/chorus-comms/chorus/accl/engine"
	"github.com/chorus-comms/chorus/internal/dl"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is a card whose kernels are an engine in Go, and the registers of a controller in front of it.
type fake struct {
	engine *engine.Engine
	caller *engine.Controller

	mu     sync.Mutex
	words  map[uint32]uint32 // of the controller
	call   *engine.Call
	copied int // bytes, between host and card
	open   int // buffers
	shut   bool
}

func newFake(net *engine.Local, session uint32, p abi.Protocol) *fake {
	f := &fake{engine: engine.New(engine.Config{Session: session, Protocol: p, Network: net.Port(session)}),
		words: map[uint32]uint32{}}
	net.Attach(session, f.engine)
	f.caller = f.engine.Controller()
	return f
}

func (f *fake) ReadRegister(k Kernel, offset uint32) (uint32, error) {
	if k == Engine {
		return f.engine.Read(offset)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if offset != control {
		return f.words[offset], nil
	}
	if f.call == nil {
		return controlIdle, nil
	}
	select {
	case <-f.call.Done():
		f.call = nil
		return controlDone | controlIdle, nil
	default:
		return controlStart, nil
	}
}

func (f *fake) WriteRegister(k Kernel, offset, value uint32) error {
	if k == Engine {
		return f.engine.Write(offset, value)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.words[offset] = value; offset != control || value&controlStart == 0 {
		return nil
	}
	if f.call != nil {
		return errors.New("the controller was started twice")
	}
	// The map of the hardware, written out.
	w := func(at uint32) uint32 { return f.words[at] }
	f.call = f.caller.Start(abi.ParseCall([abi.CallWords]uint32{w(0x10), w(0x18), w(0x20), w(0x28), w(0x30), w(0x38),
		w(0x40), w(0x48), w(0x50), w(0x58), w(0x5c), w(0x64), w(0x68), w(0x70), w(0x74)}))
	return nil
}

// buffer is memory of a fake card, which the host sees itself, or a copy of.
type buffer struct {
	card  *fake
	at    accl.MemoryKind
	addr  uint64
	there []byte
	here  []byte
}

func (f *fake) Alloc(n int, at accl.MemoryKind) (Memory, error) {
	b := &buffer{card: f, at: at, there: engine.Alloc(n)}
	if b.here = b.there; !at.Host && !at.P2P {
		b.here = make([]byte, n)
	}
	b.addr = f.engine.Memory.Map(b.there, at.Host)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.open++
	return b, nil
}

func (b *buffer) Addr() uint64  { return b.addr }
func (b *buffer) Bytes() []byte { return b.here }

func (b *buffer) move(to, from []byte, offset, n int) error {
	b.card.mu.Lock()
	defer b.card.mu.Unlock()
	b.card.copied += copy(to[offset:offset+n], from[offset:])
	return nil
}

func (b *buffer) ToDevice(offset, n int) error   { return b.move(b.there, b.here, offset, n) }
func (b *buffer) FromDevice(offset, n int) error { return b.move(b.here, b.there, offset, n) }

func (b *buffer) Free() error {
	b.card.engine.Memory.Unmap(b.addr, b.at.Host)
	b.card.mu.Lock()
	defer b.card.mu.Unlock()
	b.card.open--
	return nil
}

func (f *fake) Close() error {
	f.engine.Close()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.shut = true
	return nil
}

// library is a stand-in for XRT's, with one card.
func (f *fake) library() *functions {
	const dev = 7
	objects, last := map[uintptr]Memory{}, uintptr(100)
	result := func(err error) int32 {
		if err != nil {
			return -1
		}
		return 0
	}
	return &functions{
		DeviceOpen:  func(index uint32) uintptr { return map[uint32]uintptr{0: dev}[index] },
		DeviceClose: func(uintptr) int32 { return result(f.Close()) },
		Load:        func(_ uintptr, path string) int32 { return result(missing(path, "a.xclbin")) },
		UUID:        func(_ uintptr, out *[16]byte) int32 { out[3] = 9; return 0 },
		KernelOpen: func(_ uintptr, uuid *[16]byte, name string) uintptr {
			if uuid[3] != 9 {
				return 0
			}
			return map[string]uintptr{"ccl_offload:{ccl_offload_0}": 1 + uintptr(Engine),
				"hostctrl:{hostctrl_0}": 1 + uintptr(Controller)}[name]
		},
		KernelClose: func(uintptr) int32 { return 0 },
		ReadRegister: func(k uintptr, offset uint32, into *uint32) int32 {
			v, err := f.ReadRegister(Kernel(k-1), offset)
			*into = v
			return result(err)
		},
		WriteRegister: func(k uintptr, offset, value uint32) int32 {
			return result(f.WriteRegister(Kernel(k-1), offset, value))
		},
		Alloc: func(_ uintptr, n uintptr, flags uint64, bank uint32) uintptr {
			if bank > 3 {
				return 0
			}
			m, _ := f.Alloc(int(n), accl.MemoryKind{Host: flags == 1<<29, P2P: flags == 1<<30})
			f.mu.Lock()
			defer f.mu.Unlock()
			last++
			objects[last] = m
			return last
		},
		Free:    func(bo uintptr) int32 { return result(f.object(objects, bo).Free()) },
		Address: func(bo uintptr) uint64 { return f.object(objects, bo).Addr() },
		Map:     func(bo uintptr) unsafe.Pointer { return unsafe.Pointer(&f.object(objects, bo).Bytes()[0]) },
		Sync: func(bo uintptr, direction int32, n, offset uintptr) int32 {
			if m := f.object(objects, bo); direction == 0 {
				return result(m.ToDevice(int(offset), int(n)))
			} else {
				return result(m.FromDevice(int(offset), int(n)))
			}
		},
	}
}

func (f *fake) object(all map[uintptr]Memory, bo uintptr) Memory {
	f.mu.Lock()
	defer f.mu.Unlock()
	return all[bo]
}

func missing(path, known string) error {
	if path != known {
		return errors.New("no such file")
	}
	return nil
}

// shells are the ways to a fake card.
var shells = map[string]func(f *fake) (Card, error){
	"card": func(f *fake) (Card, error) { return f, nil },
	"XRT":  func(f *fake) (Card, error) { return f.library().open(XRT{Xclbin: "a.xclbin"}) },
	"Coyote": func(f *fake) (Card, error) {
		split := func(offset uint32) (Kernel, uint32) {
			if offset >= 0x2000 {
				return Controller, offset - 0x2000
			}
			return Engine, offset
		}
		return &Coyote{
			Read: func(offset uint32) (uint32, error) {
				k, o := split(offset)
				return f.ReadRegister(k, o)
			},
			Write: func(offset, value uint32) error {
				k, o := split(offset)
				return f.WriteRegister(k, o, value)
			},
			Allocate: f.Alloc, Shut: f.Close,
		}, nil
	},
}

// open returns drivers of fake cards behind a shell.
func open(t *testing.T, shell string, n int, p abi.Protocol) ([]*accl.Driver, []*fake) {
	t.Helper()
	net := engine.NewNetwork()
	var cfg accl.Config
	for r := range n {
		cfg.Ranks = append(cfg.Ranks, abi.Rank{IP: 0x7F000001, Port: uint32(5500 + r), Session: uint32(r)})
	}
	var ds []*accl.Driver
	var cards []*fake
	for r := range n {
		f := newFake(net, uint32(r), p)
		c, err := shells[shell](f)
		if err != nil {
			t.Fatal(err)
		}
		cfg.Local = r
		d, err := accl.New(t.Context(), New(c), cfg)
		if err != nil {
			t.Fatal(err)
		}
		ds, cards = append(ds, d), append(cards, f)
	}
	return ds, cards
}

// TestCards has engines on cards carry out collectives, in memory of every kind.
func TestCards(t *testing.T) {
	for shell := range shells {
		for _, p := range []abi.Protocol{abi.UDP, abi.RDMA} {
			t.Run(fmt.Sprint(shell, "/", p), func(t *testing.T) {
				const n, count = 3, 1000
				ds, cards := open(t, shell, n, p)
				var wg sync.WaitGroup
				for _, d := range ds {
					wg.Go(func() {
						if err := collectives(t.Context(), d, count); err != nil {
							t.Errorf("rank %d: %v", d.Rank(), err)
						}
					})
				}
				wg.Wait()
				for r, d := range ds {
					if err := d.Close(); err != nil {
						t.Error(err)
					}
					if f := cards[r]; f.open != 0 || !f.shut || f.copied == 0 {
						t.Errorf("rank %d: %d buffers are open; shut: %v; %d bytes copied", r, f.open, f.shut, f.copied)
					}
				}
			})
		}
	}
}

func collectives(ctx context.Context, d *accl.Driver, count int) error {
	for _, place := range [][]accl.BufferOption{nil, {accl.HostOnly()}, {accl.P2P()}, {accl.Bank(2)}} {
		a, err := d.Buffer(count, abi.Float32, place...)
		b, err2 := d.Buffer(3*count, abi.Float32, place...)
		if err := errors.Join(err, err2); err != nil {
			return err
		}
		for i := range accl.Elements[float32](a) {
			accl.Elements[float32](a)[i] = float32(d.Rank() + i)
		}
		if err := d.Allreduce(ctx, abi.Sum, a, b.Slice(count, 2*count), count); err != nil {
			return err
		}
		for i, x := range accl.Elements[float32](b)[count : 2*count] {
			if x != float32(3+3*i) {
				return fmt.Errorf("%v: the sum's element %d is %v", place, i, x)
			}
		}
		if err := d.Allgather(ctx, a, b, count); err != nil {
			return err
		}
		for i, x := range accl.Elements[float32](b) {
			if x != float32(i/count+i%count) {
				return fmt.Errorf("%v: element %d of all is %v", place, i, x)
			}
		}
		if err := errors.Join(d.Barrier(ctx), a.Free(), b.Free()); err != nil {
			return err
		}
	}
	return nil
}

// TestErrors names what the engine returns, and what a card refuses.
func TestErrors(t *testing.T) {
	ds, _ := open(t, "card", 1, abi.UDP)
	d := ds[0]
	a, err := d.Buffer(10, abi.Float32)
	if err != nil {
		t.Fatal(err)
	}
	d.Device().Free(a.Addr(), a.MemoryKind())
	if err := d.Copy(t.Context(), a, a, 10, accl.FromDevice(), accl.ToDevice()); err == nil ||
		!strings.Contains(err.Error(), "DMA_DECODE_ERROR") {
		t.Errorf("memory that was freed: %v", err)
	}
	if err := a.SyncToDevice(); err == nil {
		t.Error("memory that was freed is copied to")
	}
	if err := d.Device().Push(t.Context(), nil); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("a stream of the host's: %v", err)
	}
	d.Close()
	if err := d.Nop(t.Context()); err == nil {
		t.Error("a card that is closed takes calls")
	}
}

// TestHeld gives up a call that a card can't drop: nothing is called any more.
func TestHeld(t *testing.T) {
	ds, _ := open(t, "card", 2, abi.UDP)
	b, err := ds[0].Buffer(10, abi.Float32)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := ds[0].Recv(ctx, b, 10, 1); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a receive in vain: %v", err)
	}
	if err := ds[0].Nop(t.Context()); !errors.Is(err, errHeld) {
		t.Errorf("the card takes calls: %v", err)
	}
	if err := ds[1].Nop(t.Context()); err != nil {
		t.Errorf("the other card: %v", err)
	}
	for _, d := range ds {
		d.Close()
	}
}

// TestOpen says what is missing on the way to a card.
func TestOpen(t *testing.T) {
	t.Setenv("XILINX_XRT", t.TempDir())
	if _, err := OpenXRT(XRT{}); err != nil {
		none := (*dl.NotFoundError)(nil)
		if errors.As(err, &none) && !strings.Contains(err.Error(), "XRT is not on this machine") {
			t.Error(err)
		}
	}
	for _, x := range []struct {
		XRT
		want string
	}{{XRT{Index: 1}, "no card 1"}, {XRT{Xclbin: "b.xclbin"}, `"b.xclbin"`},
		{XRT{Xclbin: "a.xclbin", Controller: "ctrl"}, "no kernel ctrl"}} {
		f := newFake(engine.NewNetwork(), 0, abi.UDP)
		if _, err := f.library().open(x.XRT); err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%+v: %v", x.XRT, err)
		}
		f.Close()
	}
	f := newFake(engine.NewNetwork(), 0, abi.UDP)
	defer f.Close()
	c, err := f.library().open(XRT{Xclbin: "a.xclbin"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Alloc(10, accl.MemoryKind{Bank: 9}); err == nil || !strings.Contains(err.Error(), "bank 9") {
		t.Error(err)
	}
}
