package fabric

import (
	"errors"
	"reflect"
	"testing"
	"unsafe"
)

// TestReserve follows what is put behind the halves of a stage, and when there is no more.
func TestReserve(t *testing.T) {
	const half = 1 << 20
	type piece struct{ offset, n int }
	var got []piece
	var fail error
	mem := make([]uint64, ControlBytes/8)
	s := NewSpace(SpaceConfig{
		Members: []int{0}, Control: []unsafe.Pointer{unsafe.Pointer(&mem[0])}, Stages: make([]unsafe.Pointer, 1), StageBytes: 2 * half,
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
		{1, nil, []piece{{0, leastBacked}, {half, leastBacked}}},
		{leastBacked, nil, nil},
		{leastBacked + 1, full, []piece{{leastBacked, leastBacked}}},
		{leastBacked + 1, nil, []piece{{leastBacked, leastBacked}, {half + leastBacked, leastBacked}}},
		{half, nil, []piece{{2 * leastBacked, half - 2*leastBacked}, {half + 2*leastBacked, half - 2*leastBacked}}},
		{3, nil, nil},
	} {
		got, fail = nil, step.fail
		if err := s.Reserve(step.n); err != step.fail || !reflect.DeepEqual(got, step.want) {
			t.Errorf("Reserve(%d): %v, puts memory behind %v, want %v", step.n, err, got, step.want)
		}
	}
}
