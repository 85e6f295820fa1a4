package tcp

import (
	"bytes"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/fabric/transport"
)

func headerOf(h header) []byte {
	var b [headerBytes]byte
	h.put(&b)
	return b[:]
}

// FuzzHeader checks that a header that is accepted keeps its promises, and is
// what its encoding says.
func FuzzHeader(f *testing.F) {
	f.Add(headerOf(header{kind: kindEager, payload: 5, length: 5, comm: 1, tag: 9, id: 3, desc: fabric.Desc{1}}))
	f.Add(headerOf(header{kind: kindAsk, class: fabric.Internal, length: 1 << 40}))
	f.Add(headerOf(header{kind: kindChunk, payload: chunkBytes, length: 1 << 30, offset: 1<<30 - chunkBytes}))
	f.Add(headerOf(header{kind: kindChunk, payload: 1, length: maxMessage, offset: maxMessage}))
	f.Add(headerOf(header{kind: kindCredit, length: 1 << 63}))
	f.Add(headerOf(header{kind: kindGoodbye}))
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) != headerBytes {
			return
		}
		var h header
		if h.parse((*[headerBytes]byte)(data)) != nil {
			return
		}
		if !bytes.Equal(headerOf(h), data) {
			t.Fatalf("%+v encodes to something else", h)
		}
		if h.length > maxMessage || h.kind == kindChunk && h.offset+uint64(h.payload) > h.length ||
			h.kind == kindEager && uint64(h.payload) != h.length || h.payload > max(maxEager, chunkBytes) {
			t.Fatalf("accepted %+v", h)
		}
	})
}

func TestHeaderRefused(t *testing.T) {
	for name, h := range map[string]header{
		"no kind":                     {},
		"kind beyond the last":        {kind: kindEnd},
		"class beyond the last":       {kind: kindAsk, class: fabric.Internal + 1},
		"eager with another payload":  {kind: kindEager, payload: 4, length: 5},
		"eager too large":             {kind: kindEager, payload: maxEager + 1, length: maxEager + 1},
		"push with a payload":         {kind: kindPush, payload: 5, length: 5},
		"empty chunk":                 {kind: kindChunk, length: 5},
		"chunk beyond the end":        {kind: kindChunk, payload: 5, length: 10, offset: 6},
		"chunk, offset out of bounds": {kind: kindChunk, payload: 5, length: 10, offset: 1<<64 - 5},
		"chunk too large":             {kind: kindChunk, payload: chunkBytes + 1, length: 1 << 30},
		"message too large":           {kind: kindAsk, length: 1 << 63},
		"control too large":           {kind: kindControl, payload: fabric.MaxControl + 1},
		"goodbye with a payload":      {kind: kindGoodbye, payload: 1},
	} {
		var got header
		if got.parse((*[headerBytes]byte)(headerOf(h))) == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func FuzzHello(f *testing.F) {
	h := hello{from: 1, to: 0, size: 2, index: 1}
	f.Add(h.encode())
	h.index = unable(unix.EMFILE)
	f.Add(h.encode())
	f.Add([]byte("GET / HTTP/1.1\r\nHost: example.com\r\n\r\n............"))
	world := newFabric(fabric.Config{Rank: 0, Size: 2})
	world.Base = transport.NewBase("tcp", 0, 2, transport.NewMatcher(2), selfBuffer)
	world.cards = [][]byte{{}, {}}
	f.Fuzz(func(t *testing.T, data []byte) {
		h, err := world.identify(data)
		if _, unable := h.unable(); err == nil && (h.from != 1 || !unable && h.index > uint32(world.o.connections)) {
			t.Fatalf("admitted %x", data)
		}
	})
}

func TestOptions(t *testing.T) {
	for _, good := range []map[string]string{
		nil, {"connections": "16", "eager": "0", "window": "1", "heartbeat": "0"}, {"addr": "::1"}, {"addr": ""},
		{"ports": "2000-2010"}, {"ports": "7"},
		{"heartbeat": "2s", "interface": "lo", "buffer": "1000000"},
	} {
		if err := new(options).table().Set("tcp", good); err != nil {
			t.Errorf("%v: %v", good, err)
		}
	}
	for _, bad := range []map[string]string{
		{"connection": "2"}, {"connections": "0"}, {"connections": "17"}, {"eager": "-1"}, {"eager": "2000000"},
		{"addr": "localhost"},
		{"ports": "9-8"}, {"ports": "0"}, {"ports": "70000"}, {"heartbeat": "10"}, {"heartbeat": "-1s"}, {"window": "x"},
	} {
		if new(options).table().Set("tcp", bad) == nil {
			t.Errorf("%v: accepted", bad)
		}
	}
}
