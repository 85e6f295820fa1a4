package fabric

import (
	"errors"
	"reflect"
	"testing"
	"time"
	"unsafe"
)

// TestReserve follows what is put behind the halves of a stage, and when there is no more.
func TestReserve(t *testing.T) {
	const half = 4 << 20
	type piece struct{ offset, n int }
	var got []piece
	var fail error
	mem := make([]uint64, ControlBytes/8)
	s := NewSpace(SpaceConfig{
		Members: []int{0}, Control: []unsafe.Pointer{unsafe.Pointer(&mem[0])}, Stages: make([]unsafe.Pointer, 1),
		StageBytes: 2 * half,
		Commit: func(offset, n int) error {
			got = append(got, piece{offset, n})
			return fail
		},
	})
	full := errors.New("no memory")
	for _, step := range []struct {
		n    int
		fail error
		want []piece
	}{
		{0, nil, nil},
		{1, nil, []piece{{0, minBacked}, {half, minBacked}}},
		{minTurnBytes - 1, nil, nil},
		{minTurnBytes, full, []piece{{minBacked, turnBytes - minBacked}}},
		{minTurnBytes, nil, []piece{{minBacked, turnBytes - minBacked}, {half + minBacked, turnBytes - minBacked}}},
		{turnBytes, nil, nil},
		{turnBytes + 1, nil, []piece{{turnBytes, turnBytes}, {half + turnBytes, turnBytes}}},
		{half, nil, []piece{{2 * turnBytes, half - 2*turnBytes}, {half + 2*turnBytes, half - 2*turnBytes}}},
		{3, nil, nil},
	} {
		got, fail = nil, step.fail
		if err := s.Reserve(step.n); err != step.fail || !reflect.DeepEqual(got, step.want) {
			t.Errorf("Reserve(%d): %v, puts memory behind %v, want %v", step.n, err, got, step.want)
		}
	}
}

// TestStageTurns demands that operations in turn get scratch that stays in their half, doesn't move within
// an operation, and comes back only after a full round.
func TestStageTurns(t *testing.T) {
	const half = 3 << 20
	mem := make([]byte, 2*half)
	block := make([]uint64, ControlBytes/8)
	start := unsafe.Pointer(&mem[0])
	s := NewSpace(SpaceConfig{Members: []int{0}, Control: []unsafe.Pointer{unsafe.Pointer(&block[0])},
		Stages: []unsafe.Pointer{start}, StageBytes: 2 * half})
	for _, n := range []int{1, 64, minTurnBytes - 1, minTurnBytes, 5000, 64 << 10, turnBytes / 2, turnBytes/2 + 1,
		turnBytes, turnBytes + 1, half} {
		turns := max(1, s.window(n)/stride(n))
		if n < minTurnBytes {
			turns = 1
		}
		seen := map[int]bool{}
		for seq := uint64(1); seq <= uint64(2*turns); seq++ {
			s.seq = seq
			off := int(uintptr(s.Stage(0, n)) - uintptr(start))
			if low := int(seq&1) * half; off < low || off+n > low+half {
				t.Errorf("%d bytes in operation %d: at %d, outside of its half", n, seq, off)
			}
			if seen[off] {
				t.Errorf("%d bytes in operation %d: at %d again before the round is over", n, seq, off)
			}
			seen[off] = true
		}
		if s.seq += 1; !seen[int(uintptr(s.Stage(0, n))-uintptr(start))] {
			t.Errorf("%d bytes: a round has more than %d turns", n, turns)
		}
	}
}

// TestWaitSaysWhere demands that a wait that spins without success says on which core; a fabric's goroutines in
// one process don't.
func TestWaitSaysWhere(t *testing.T) {
	for _, shared := range []bool{true, false} {
		blocks := make([]byte, 2*ControlBytes+128)
		start := unsafe.Add(unsafe.Pointer(&blocks[0]), -uintptr(unsafe.Pointer(&blocks[0]))&127)
		c := SpaceConfig{Members: []int{0, 1}, Control: []unsafe.Pointer{start, unsafe.Add(start, ControlBytes)},
			Stages: make([]unsafe.Pointer, 2),
			Policy: Policy{Spins: 10, Yields: 10}}
		if !shared {
			c.Waiters = new(GoroutineWaiters)
		}
		s := NewSpace(c)
		w := NewWaiter(NewAbort())
		w.Begin(nil, time.Millisecond)
		if err := s.wait(w, 1, &s.blocks[1].slots[1].flag, 1<<24); !errors.Is(err, ErrTimeout) {
			t.Fatal(err)
		}
		if hint := *(*uint64)(unsafe.Pointer(&s.blocks[0].coreHint)); (hint != 0) != shared {
			t.Errorf("shared between processes: %v; the hint after a wait that timed out: %#x", shared, hint)
		}
	}
}
