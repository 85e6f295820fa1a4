package bootstrap

import (
	"context"
	"errors"
	"slices"
	"strings"
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
		if got, known := s.missingRanks(); !known || !slices.Equal(got, x.want) {
			t.Errorf("after rank %q has come, %v are missing, want %v", x.sets, got, x.want)
		}
	}
}

// late is a store in which a rank's time is over at its first addition, before it has come.
type late struct{ store.Store }

func (l late) Add(ctx context.Context, key string, n int64) (int64, error) {
	return 0, &store.TimeoutError{Op: "add", Err: context.DeadlineExceeded}
}

// TestOwnTimeIsOver has the time of a rank be over before it has come, when all others have. The error is of the same
// type as if one of them were missing. It names none of them, and not the rank itself.
func TestOwnTimeIsOver(t *testing.T) {
	st := store.NewHash(time.Second)
	for _, rank := range []string{"1", "2", "0/1", "0/2"} { // of an exchange, and of the first attempt of a meeting
		if err := st.Set(context.Background(), rank, nil); err != nil {
			t.Fatal(err)
		}
	}
	_, err := Exchange(context.Background(), late{st}, 0, 3, nil)
	v := &rendezvousCall{m: &Rendezvous{Rank: 0, Size: 3}, attempt: &attempt{st: store.NewPrefix("0", late{st}), size: 3},
		missing: []int{2}, missingKnown: true}
	for name, err := range map[string]error{
		"exchange": err,
		"meeting":  v.explain(context.Background(), &store.TimeoutError{Err: context.DeadlineExceeded}),
	} {
		e, ok := errors.AsType[*MissingRanksError](err)
		if !ok || len(e.Missing) > 0 || e.Reporter != 0 || !errors.Is(err, context.DeadlineExceeded) ||
			!strings.Contains(err.Error(), "the time of rank 0 of 3 was over") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
