package accl

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/chorus-comms/chorus/accl/abi"
)

// TestMoves draws and lists each collective's moves, and counts those of a ring of four: all-reduce passes 3 blocks in
// the first round, 3 in the second, and the words of each are a move's.
func TestMoves(t *testing.T) {
	for _, p := range []abi.Protocol{abi.UDP, abi.RDMA} {
		for _, s := range Collectives() {
			m, err := RecordMoves(t.Context(), s, 4, 1000, p, Config{MaxEagerSize: 1024, RXBufferSize: 1024})
			if err != nil {
				t.Fatal(err)
			}
			sent := 0
			for _, x := range m.All {
				if got, err := abi.ParseMove(x.Words()); err != nil || got != x.Move {
					t.Errorf("%v: %v has the words %#x: %v", s, x.Move, x.Words(), err)
				}
				if x.Remote {
					sent++
					if x.Rendezvous != (p == abi.RDMA) {
						t.Errorf("%v with %v: %v", s, p, x.Move)
					}
				}
			}
			if s == abi.Allgather && sent != 4*3 {
				t.Errorf("%d sends of an all-gather", sent)
			}
			var picture, text bytes.Buffer
			if err := errors.Join(m.WriteSVG(&picture), m.WriteText(&text)); err != nil {
				t.Fatal(err)
			}
			dec := xml.NewDecoder(&picture)
			for err = nil; err == nil; _, err = dec.Token() {
			}
			if err != io.EOF {
				t.Errorf("%v: not XML: %v", s, err)
			}
			if got := strings.Count(text.String(), "move "); got != len(m.All) {
				t.Errorf("%v: %d moves listed of %d", s, got, len(m.All))
			}
		}
	}
	m, err := RecordMoves(t.Context(), abi.Allreduce, 4, 16, abi.UDP, Config{})
	if err != nil {
		t.Fatal(err)
	}
	if _, n := m.columns(); n != len(m.All)/4 {
		t.Errorf("a ring of four whose ranks do the same at a time is drawn in %d columns, %d moves", n, len(m.All))
	}
	fused := 0 // receive, combine and send on
	for _, x := range m.All {
		if x.Op1.Opcode == abi.MoveOnRecv && x.Op0.Opcode == abi.MoveImmediate && x.Remote {
			fused++
		}
	}
	if fused != 4*2 {
		t.Errorf("%d fused moves in a ring of 4", fused)
	}
	if _, err := RecordMoves(t.Context(), abi.Nop, 4, 16, abi.UDP, Config{}); err == nil {
		t.Error("moves of nop")
	}
}

// TestTuning demands that the registers choose the way of a collective by rendezvous: in a flat tree of five, four
// blocks come from the root or go to it, in a binomial tree three.
func TestTuning(t *testing.T) {
	for _, s := range []abi.Scenario{abi.Bcast, abi.Reduce} {
		for _, x := range []struct {
			tuning Tuning
			want   int
		}{
			{Tuning{BcastFlatRanks: 5, ReduceFlatRanks: 5, ReduceFlatMaxCount: 1}, 4},
			{Tuning{BcastFlatRanks: 4, ReduceFlatRanks: 4, ReduceFlatMaxCount: 1}, 3},
			{Tuning{BcastFlatRanks: 5, ReduceFlatRanks: 4, ReduceFlatMaxCount: 1 << 14}, 4},
		} {
			m, err := RecordMoves(t.Context(), s, 5, 1000, abi.RDMA, Config{Tuning: x.tuning, MaxRendezvousSize: 1 << 16})
			if err != nil {
				t.Fatal(err)
			}
			root := 0
			for _, move := range m.All {
				if move.Remote && (s == abi.Bcast && move.Rank == 0 || s == abi.Reduce && move.Dst == 0) {
					root++
				}
			}
			if root != x.want {
				t.Errorf("%v with %+v: %d blocks pass the root, want %d", s, x.tuning, root, x.want)
			}
		}
	}
}
