package native

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/comm/backend/base"
	"github.com/chorus-comms/chorus/comm/native/members"
	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/store"
)

// A rank that gives up while a world is opened says why: ranks that lose it give that reason, even if another
// rank reports the loss.
func TestReasonOfALoss(t *testing.T) {
	loss := &fabric.PeerError{Peer: 3, Err: errors.New("its process has died")}
	hearsay := &peerGaveUpError{base.Failure{Kind: base.Lost, Rank: 3, By: 1, Text: "its process has died"}}
	at := backend.Where{Comm: "world", Reporter: 2, Op: "new"}
	for _, err := range []error{loss, fmt.Errorf("sharing memory: %w", hearsay)} {
		for _, after := range []time.Duration{0, 50 * time.Millisecond} {
			st := store.NewHash(0)
			n := members.Notice{Failure: base.FailureOf(errors.New("too many open files"), 3)}
			time.AfterFunc(after, func() { st.CompareSet(context.Background(), failedKey, nil, n.Encode()) })
			o := startupFailure{store: st, start: time.Now(), at: at}
			got := o.failed(t.Context(), err)
			if a, ok := errors.AsType[*backend.AbortedError](got); !ok || a.By != 3 || !strings.Contains(a.Reason,
				"too many open files") {
				t.Errorf("%v, %v later: %v", err, after, got)
			}
		}
		o := startupFailure{store: store.NewHash(0), start: time.Now(), at: at}
		if lost, ok := errors.AsType[*backend.PeerLostError](o.failed(t.Context(), err)); !ok || lost.Peer != 3 {
			t.Errorf("%v, and nobody has said why: %v", err, lost)
		}
	}
}

// A rank that has timed out in the wait for another's part of shared memory takes the reason of a rank that was still
// behind, which comes a moment later.
func TestReasonOfARankBehind(t *testing.T) {
	at := backend.Where{Comm: "world", Reporter: 1, Op: "new"}
	wait := fmt.Errorf("sharing memory: %w", &fabric.AbsentError{Peers: []int{0}, Err: errors.New("late")})
	for _, after := range []time.Duration{0, 50 * time.Millisecond, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			st := store.NewHash(0)
			late := &backend.TimeoutError{Attendance: backend.Attendance{Missing: []int{2}}}
			n := members.Notice{Failure: base.FailureOf(late, 0)}
			behind := time.AfterFunc(after, func() { st.CompareSet(context.Background(), failedKey, nil, n.Encode()) })
			defer behind.Stop()
			ctx, cancel := context.WithDeadline(t.Context(), time.Now())
			defer cancel()
			o := startupFailure{store: st, start: time.Now(), at: at}
			want := 2
			if after == time.Hour {
				want = 0
			}
			got := o.failed(ctx, o.earlier(ctx, wait))
			if late, ok := errors.AsType[*backend.TimeoutError](got); !ok || !slices.Equal(late.Missing, []int{want}) {
				t.Errorf("%v later: %v", after, got)
			}
		})
	}
}

// A fabric may give a part of shared memory less time than the new communicator has.
func TestAbsentBeforeTheContextEnds(t *testing.T) {
	err := fmt.Errorf("sharing memory: %w", &fabric.AbsentError{Peers: []int{7}, Err: errors.New("late")})
	got := unopened(t.Context(), time.Now(), backend.Where{}, func(peer int) int { return peer - 5 }, err)
	if late, ok := errors.AsType[*backend.TimeoutError](got); !ok || !slices.Equal(late.Missing, []int{2}) {
		t.Error(got)
	}
}

// A rank that has lost the store waits a moment for links, and then gives up because of the store: the ranks that it had
// no link to aren't the reason.
func TestAbsentAfterTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gone := &store.ConnError{Op: "get", Addr: "127.0.0.1:1", Err: io.EOF}
		o := startupFailure{store: goneStore{store.NewHash(0), gone}, start: time.Now(),
			at: backend.Where{Comm: "world", Reporter: 0, Op: "new"}}
		watched, unwatch := o.watch(t.Context())
		<-watched.Done()
		err := fmt.Errorf("shm: %w", &fabric.AbsentError{Peers: []int{1}, Err: context.Cause(watched)})
		unwatch(&err)
		if got := o.failed(t.Context(), err); !store.Gone(got) || errors.Is(got, backend.ErrTimeout) {
			t.Error(got)
		}
	})
}

// A goneStore is a store whose server has died.
type goneStore struct {
	store.Store
	err error
}

func (s goneStore) Get(context.Context, string) ([]byte, error) { return nil, s.err }
func (s goneStore) CompareSet(context.Context, string, []byte, []byte) ([]byte, error) {
	return nil, s.err
}
