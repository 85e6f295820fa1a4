package abi

import (
	"reflect"
	"slices"
	"testing"
)

// TestCallWords holds the order of a call's words to that of the hardware.
func TestCallWords(t *testing.T) {
	c := Call{Scenario: Allreduce, Count: 1, Comm: 2, Root: 3, Function: 4, Tag: 5, ArithConfig: 6, Compression: 7,
		Stream: 1, Host: 5, Addr: [3]uint64{0x1_0000_0009, 0x2_0000_000b, 0x3_0000_000d}}
	want := [CallWords]uint32{10, 1, 2, 3, 4, 5, 6, 7, 0x501, 9, 1, 11, 2, 13, 3}
	if got := c.Words(); got != want {
		t.Errorf("words are %v, want %v", got, want)
	}
	if got := ParseCall(want); got != c {
		t.Errorf("words become %+v", got)
	}
}

// TestPlaces holds exchange memory to the hardware's, with the driver's 16 RX buffers.
func TestPlaces(t *testing.T) {
	if at := RXDescriptorAt(16); at != 0x1C8 {
		t.Errorf("the first communicator is at %#x", at)
	}
	d := RXDescriptor{RXReserved, 0x1_0000_2000, 3, 4, 5, 6}
	if w := d.Words(); w != [RXWords]uint32{2, 0x2000, 1, 3, 4, 5, 6} || ParseRXDescriptor(w) != d {
		t.Errorf("a descriptor is %v", w)
	}
	c := Communicator{1, []Rank{{0x7F000001, 5500, 1, 2, 0, 1024}, {0x7F000001, 5501, 0, 0, 1, 1024}}}
	words := []uint32{2, 1, 0x7F000001, 5500, 1, 2, 0, 1024, 0x7F000001, 5501, 0, 0, 1, 1024}
	if got := c.Words(); !slices.Equal(got, words) {
		t.Errorf("a communicator is %v", got)
	}
	if got, err := ParseCommunicator(append(words, 1, 2)); err != nil || !reflect.DeepEqual(got, c) {
		t.Errorf("it becomes %+v, %v", got, err)
	}
	id := c.ID()
	if c.Ranks[0].Inbound++; c.ID() != id {
		t.Error("its number changes with its messages")
	}
	if c.Ranks[1].Port++; c.ID() == id {
		t.Error("its number is another's")
	}
	wantConfigs := map[Types][]uint32{
		{Float16, Float16}: {2, 2, 0, 0, 0, 2, 0, 4, 9}, {Float32, Float16}: {4, 2, 0, 0, 1, 2, 1, 4, 9},
		{Float32, Float32}: {4, 4, 0, 0, 0, 2, 0, 0, 5}, {Float64, Float64}: {8, 8, 0, 0, 0, 2, 0, 1, 6},
		{Int32, Int32}: {4, 4, 0, 0, 0, 2, 0, 2, 7}, {Int64, Int64}: {8, 8, 0, 0, 0, 2, 0, 3, 8},
	}
	order, configs := DefaultArithConfigs()
	if w := Bytes.Words(); !slices.Equal(w, []uint32{1, 1, 0, 0, 0, 0, 0}) {
		t.Errorf("that of bytes is %v", w)
	}
	for _, types := range order {
		w := configs[types].Words()
		if !slices.Equal(w, wantConfigs[types]) {
			t.Errorf("%v is %v, want %v", types, w, wantConfigs[types])
		}
		if a, err := ParseArithConfig(append(w, 9, 9)); err != nil || !slices.Equal(a.Words(), w) {
			t.Errorf("%v becomes %+v, %v", types, a, err)
		}
	}
}

// TestHeader holds the header to the emulator's bytes: an eager message of 24 bytes.
func TestHeader(t *testing.T) {
	h := Header{Count: 24, Tag: 5, Src: 1, Seq: 2, Stream: 12, Dst: 0x0103, MsgType: RendezvousAddress, Host: true,
		Addr: 0x1122334455667788}
	b := make([]byte, HeaderSize)
	h.Put(b)
	want := make([]byte, HeaderSize)
	copy(want, []byte{24, 0, 0, 0, 5, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 12, 0, 0, 0, 3, 1, 2, 1, 0x88, 0x77, 0x66, 0x55,
		0x44, 0x33, 0x22, 0x11})
	if !slices.Equal(b, want) {
		t.Errorf("header is %v", b)
	}
	if got, err := ParseHeader(b); err != nil || got != h {
		t.Errorf("it becomes %+v, %v", got, err)
	}
}

// TestNames holds what a status, an engine and a type are called.
func TestNames(t *testing.T) {
	if s := (DMADecode | CollectiveNotImplemented | 1<<29).String(); s !=
		"DMA_DECODE_ERROR | COLLECTIVE_NOT_IMPLEMENTED | bit 29" {
		t.Error(s)
	}
	if s := Status(0); s.Err() != nil || s.String() != "COLLECTIVE_OP_SUCCESS" {
		t.Error(s)
	}
	if s := HWID(2 | 8 | 16 | 0xabcdef<<8).String(); s != "cyt_rdma, arithmetic, compression, commit abcdef" {
		t.Error(s)
	}
	for d := Int8; d < dataTypes; d++ {
		if DataTypeOf(d.DType()) != d {
			t.Errorf("%v is not the type of its elements", d)
		}
	}
	if p, err := ParseProtocol("cyt_rdma"); err != nil || p != RDMA {
		t.Error(p, err)
	}
	if _, err := ParseProtocol("smoke"); err == nil {
		t.Error("any name is a protocol")
	}
}

// FuzzParse gives the parsers any words: what they return are the words that they read.
func FuzzParse(f *testing.F) {
	f.Add([]byte{2, 0, 0, 0, 1, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		var words []uint32
		for i := 0; i+4 <= len(b); i += 4 {
			words = append(words, uint32(b[i])|uint32(b[i+1])<<8|uint32(b[i+2])<<16|uint32(b[i+3])<<24)
		}
		if c, err := ParseCommunicator(words); err == nil {
			if w := c.Words(); !slices.Equal(w, words[:len(w)]) {
				t.Errorf("%v become %v", words, w)
			}
		}
		if a, err := ParseArithConfig(words); err == nil {
			w := a.Words()
			w[6] = words[6] // any number is true
			if !slices.Equal(w, words[:len(w)]) {
				t.Errorf("%v become %v", words, w)
			}
		}
		if h, err := ParseHeader(b); err == nil {
			again := make([]byte, HeaderSize)
			if h.Put(again); b[23] <= 1 && !slices.Equal(again[:37], b[:37]) {
				t.Errorf("%v becomes %v", b, again)
			}
		}
	})
}
