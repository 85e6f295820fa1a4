package shm

import (
	"errors"
	"testing"
	"time"
	"unsafe"

	"github.com/chorus-comms/chorus/fabric"
)

// A peer whose ring makes no sense is lost, whatever it wrote.
func TestCorruptRing(t *testing.T) {
	checkLeaks(t)
	put := func(kind uint8, fill func(e *entry)) func(*Fabric) {
		return func(f *Fabric) {
			p := f.peers[1]
			p.mu.Lock()
			defer p.mu.Unlock()
			e, _, err := p.out.reserve(0)
			if e == nil {
				t.Error("no room", err)
				return
			}
			if fill != nil {
				fill(e)
			}
			p.out.publish(e, kind, 0)
			p.ring()
		}
	}
	for name, write := range map[string]func(f *Fabric){
		"kind 0":    put(0, nil),
		"kind 77":   put(77, nil),
		"long":      put(kindWhole, func(e *entry) { e.n = 1 << 31 }),
		"outside":   put(kindWhole, func(e *entry) { e.n, e.at = 4000, uint64(shapeOf(2).area-3999) }),
		"far away":  put(kindWhole, func(e *entry) { e.n, e.at = 4000, ^uint64(0)-10 }),
		"huge":      put(kindReady, func(e *entry) { e.body[4] = 1 << 60 }),
		"no piece":  put(kindPiece, func(e *entry) { e.tag, e.n = 1<<32|3, 8 }),
		"any piece": put(kindPiece, func(e *entry) { e.tag, e.n = ^uint64(0), 8 }),
		"stamp":     func(f *Fabric) { f.peers[1].out.head.entries[0].stamp.Store(55 << 16); f.peers[1].page.ring() },
	} {
		t.Run(name, func(t *testing.T) {
			ranks := openWorld(t, 2, nil)
			w := newWaiter()
			x := watch(ranks[1], w)
			write(ranks[0])
			m := post(ranks[1], false, message(0, 0, make([]byte, 8)))
			var lost *fabric.PeerError
			if err := ranks[1].Wait(m, w); !errors.As(err, &lost) || lost.Peer != 0 || !errors.Is(err, errCorrupt) {
				t.Errorf("it shows as: %v", err)
			}
			select {
			case <-x.lost:
			case <-time.After(patience):
				t.Error("nobody was told")
			}
			closeAll(t, ranks)
		})
	}
}

// A receiver that claims to have consumed what was never sent isn't believed.
func TestCorruptConsumed(t *testing.T) {
	for _, claim := range []uint64{entryCount + 1, 1 << 40, ^uint64(0)} {
		r := outRing{head: new(ringHead), area: make([]byte, areaMin)}
		for range entryCount {
			if ok, err := r.note(kindDrop, 0, 0); !ok || err != nil {
				t.Fatal(ok, err)
			}
		}
		if ok, err := r.note(kindDrop, 0, 0); ok || err != nil {
			t.Fatal("a full ring took another entry", err)
		}
		r.head.consumed.Store(claim)
		if _, err := r.note(kindDrop, 0, 0); !errors.Is(err, errCorrupt) {
			t.Errorf("claim %d: %v", claim, err)
		}
	}
}

// Places outside of their segment lose the peer, and only it.
func TestPlaceOutsideSegment(t *testing.T) {
	checkLeaks(t)
	ranks := openWorld(t, 2, nil)
	p := ranks[0].peers[1]
	seg := ranks[0].inbox
	p.mu.Lock()
	m := message(1, 0, make([]byte, 100_000))
	id := p.outs.put(outgoing{m: m, claimable: true})
	p.claims[uint32(id)].word.Store(claimWord(id, claimOpen))
	p.out.ready(m, id, fabric.Place{Segment: seg.ID(), Offset: uint64(seg.Size() - 10)})
	p.mu.Unlock()
	var lost *fabric.PeerError
	if err := ranks[1].Wait(post(ranks[1], false, message(0, 0, make([]byte, 100_000))), newWaiter()); !errors.As(err,
		&lost) {
		t.Errorf("it shows as: %v", err)
	}
	closeAll(t, ranks)
}

// Packets that make no sense lose the peer.
func TestNonsensePackets(t *testing.T) {
	checkLeaks(t)
	for _, packet := range [][]byte{{0}, {99}, {byte(frameWant), 1}, fields{Kind: frameHave, ID: 1,
		Size: 4096}.encode(nil), fields{Kind: frameHello, Size: 1, Color: 1}.encode(nil),
		fields{Kind: frameWant}.encode([]byte{1}), make([]byte, maxPacket+1)} {
		ranks := openWorld(t, 2, nil)
		ranks[0].peers[1].link.send(packet, -1)
		w := newWaiter()
		var lost *fabric.PeerError
		if err := ranks[1].Wait(post(ranks[1], false, message(0, 0, nil)), w); !errors.As(err, &lost) || lost.Peer != 0 {
			t.Errorf("%d bytes of kind %d show as: %v", len(packet), packet[0], err)
		}
		closeAll(t, ranks)
	}
}

// parse never leads outside of the entry and the area.
func FuzzEntry(f *testing.F) {
	f.Add(uint64(1<<16|kindWhole<<8|flagDesc), make([]byte, 128))
	f.Add(uint64(1<<16|kindReady<<8), []byte{0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8})
	f.Add(uint64(1<<16|kindPiece<<8), []byte{7, 7, 7, 7, 7, 7, 7, 7, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1,
		9})
	area := make([]byte, areaMin)
	f.Fuzz(func(t *testing.T, stamp uint64, b []byte) {
		var e entry
		copy(unsafe.Slice((*byte)(unsafe.Pointer(&e)), unsafe.Sizeof(e)), b)
		var v envelope
		if err := e.parse(stamp, area, &v); err != nil {
			if !errors.Is(err, errCorrupt) {
				t.Error(err)
			}
			return
		}
		if v.n < 0 || v.n > maxMessage {
			t.Fatalf("%d bytes", v.n)
		}
		if v.kind != kindWhole && v.kind != kindPiece || v.n == 0 {
			return
		}
		inside := func(base unsafe.Pointer, size int) bool {
			d := uintptr(v.payload) - uintptr(base)
			return d <= uintptr(size) && uintptr(v.n) <= uintptr(size)-d
		}
		if !inside(unsafe.Pointer(&e), int(unsafe.Sizeof(e))) && !inside(unsafe.Pointer(&area[0]), len(area)) {
			t.Fatalf("payload of %d bytes outside", v.n)
		}
	})
}

// A packet that decodes says what it would say if it were encoded again.
func FuzzFrame(f *testing.F) {
	f.Add(fields{Kind: frameHello, Hello: hello{Rank: 1, World: 2, Locals: 2, Probe: 7}, Size: 4096, Color: 3}.encode(nil),
		1)
	f.Add(fields{Kind: frameControl}.encode([]byte("payload")), 0)
	f.Add(fields{Kind: frameWant, ID: 5}.encode(nil), 0)
	f.Add(fields{Kind: frameNone, ID: 5}.encode(nil), 0)
	f.Add(fields{Kind: frameEnded, ID: 5}.encode(nil), 0)
	f.Add(fields{Kind: frameHave, ID: 5, Size: 4096, Color: 7}.encode(nil), 1)
	f.Add(fields{Kind: frameOffer, Comm: 1, Members: 2, Stage: 3, Size: 4, Color: 5}.encode(nil), 1)
	f.Add(fields{Kind: frameRefuse, Comm: 1}.encode(text("no memory")), 0)
	f.Add(fields{Kind: frameGoodbye}.encode(nil), 0)
	f.Fuzz(func(t *testing.T, b []byte, n int) {
		fr, err := decodeFrame(b, n)
		if err != nil {
			return
		}
		again := fr.encode(fr.payload)
		if string(again) != string(b) {
			t.Fatalf("%x decodes like %x", b, again)
		}
	})
}
