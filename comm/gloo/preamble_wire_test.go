package gloo

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"errors"
	"io"
	"net/netip"
	"reflect"
	"runtime"
	"testing"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/secure"
)

// FuzzPreamble demands that what is read as a frame's head is written as it was.
func FuzzPreamble(f *testing.F) {
	f.Add(preamble{data, 4 << 56, 1000}.append(nil))
	f.Add(preamble{sendReady, 7, 12}.append(nil))
	f.Add(make([]byte, preambleBytes))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) != preambleBytes {
			return
		}
		p, err := parsePreamble((*[preambleBytes]byte)(b))
		if err == nil && !bytes.Equal(p.append(nil), b) {
			t.Errorf("%x is read as %+v, which is %x", b, p, p.append(nil))
		}
	})
}

// FuzzRecord demands that a record is read as one or refused, and that what is read is written so that it's read alike.
func FuzzRecord(f *testing.F) {
	r := record{"vm", address{netip.MustParseAddrPort("127.0.0.1:4711"), -1}, []int64{0, 1}}
	f.Add(r.append(nil))
	r.addr.at, r.ids = netip.MustParseAddrPort("[fe80::1]:80"), nil
	f.Add(r.append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := parseRecord(b, 2)
		if err != nil {
			return
		}
		if r.ids != nil && len(r.ids) != 2 {
			t.Fatalf("%d numbers", len(r.ids))
		}
		again, err := parseRecord(r.append(nil), 2)
		if mapped := r.addr.at.Addr().Is4In6(); !mapped && (err != nil || !reflect.DeepEqual(again, r)) {
			t.Errorf("%+v is read again as %+v, %v", r, again, err)
		}
	})
}

// TestWire holds what is written to bytes that were seen on PyTorch's wire.
func TestWire(t *testing.T) {
	r := record{"vm", address{netip.MustParseAddrPort("127.0.0.1:4711"), -1}, []int64{0, 1}}
	if n := len(r.append(nil)); n != 170 {
		t.Errorf("the record of a rank of two on host vm has %d bytes, not 170", n)
	}
	want := "300000000000000003000000000000000000000000000004" + "0000000000000000e8030000000000000000000000000000"
	if got := hex.EncodeToString(preamble{recvReady, slotOf(slotAllReduce, 0), 1000}.append(nil)); got != want {
		t.Errorf("a preamble is\n%s, not\n%s", got, want)
	}
	if got := slotOf(slotBarrier, 1); got != 0x0700000001000000 {
		t.Errorf("the slot of the barrier with number 1 is %#x", got)
	}
	s := allReduceSegments(2, 0, 4000, 4)
	if s.count != 4 || s.size != 1000 {
		t.Errorf("4000 bytes go round in %d segments of %d bytes", s.count, s.size)
	}
	here, there := netip.MustParseAddrPort("127.0.0.1:1"), netip.MustParseAddrPort("127.0.0.1:256")
	if a, b := (address{at: here}), (address{at: there}); !a.dials(b) || b.dials(a) { // 256 is 1 as it lies in memory
		t.Error("ports are compared as numbers")
	}
}

// TestPermitted demands that a rank doesn't listen for other hosts unless that was permitted, whatever secret there is.
func TestPermitted(t *testing.T) {
	for _, test := range []struct {
		host, insecure string
		refused        bool
	}{{"127.0.0.1", "", false}, {"::1", "", false}, {"10.0.0.1", "", true}, {"10.0.0.1", "true", false}} {
		t.Setenv("CHORUS_SECRET", secure.Generate())
		t.Setenv("CHORUS_INSECURE", test.insecure)
		if err := permitted(backend.Where{}, test.host); (err != nil) != test.refused {
			t.Errorf("%+v: %v", test, err)
		}
	}
}

// TestEarly announces more than comes to a pair whose receive was withdrawn: memory grows with what comes.
func TestEarly(t *testing.T) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	in := bufio.NewReader(bytes.NewReader(make([]byte, 1<<20)))
	if err := (&pair{}).early(in, preamble{op: data, length: 1 << 45}); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Error(err)
	}
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 16<<20 {
		t.Errorf("1 MiB of 32 TiB takes %d bytes", n)
	}
}
