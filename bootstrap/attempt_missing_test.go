package bootstrap

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/store"
)

// TestMissingRanksWithoutOneself asks a rank whose own payload isn't there, as its time was over before, which ranks are
// missing: it's not among them.
func TestMissingRanksWithoutOneself(t *testing.T) {
	st := store.NewHash(time.Second)
	s := &attempt{st: st, rank: 0, size: 3}
	for _, x := range []struct {
		sets string
		want []int
	}{{"", []int{1, 2}}, {"1", []int{2}}, {"2", nil}} {
		if x.sets != "" {
			if err := st.Set(context.Background(), x.sets, []byte("it's there")); err != nil {
				t.Fatal(err)
			}
		}
		if got := s.missingRanks(); !slices.Equal(got, x.want) {
			t.Errorf("after rank %q has come, %v are missing, want %v", x.sets, got, x.want)
		}
	}
}
