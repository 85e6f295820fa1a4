package base

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/fabric"
)

// travelled is what another rank makes of a cause.
func travelled(t *testing.T, cause error, most int) error {
	t.Helper()
	f := FailureOf(cause, 3)
	payload := Encode(&f, most, func() { f.Shorten() })
	if payload == nil || len(payload) > most {
		t.Fatalf("%d bytes of at most %d", len(payload), most)
	}
	var g Failure
	if err := json.Unmarshal(payload, &g); err != nil || !g.Known() {
		t.Fatal(string(payload), err)
	}
	return g.Err(backend.Where{Comm: "c", Reporter: 1, Op: g.Op, Seq: g.Seq})
}

// A failure is the same on the rank that finds it and on one that is told, but for whose error it is.
func TestFailureTravels(t *testing.T) {
	here := backend.Where{Comm: "c", Reporter: 3, Op: "all_reduce", Seq: 7}
	there := here
	there.Reporter = 1
	attendance := backend.Attendance{Elapsed: time.Second, Arrived: []int{0, 3}, Missing: []int{1}, Unknown: []int{2},
		Refused: map[int]string{1: "all_reduce: output is nil"}, Doing: map[int]string{1: "in barrier #1"}}
	for _, x := range []struct{ cause, want error }{
		{&backend.PeerLostError{Where: here, Peer: 2, Cause: "gone"}, &backend.PeerLostError{Where: there, Peer: 2,
			Cause: "gone"}},
		{&backend.MismatchError{Where: here, RankA: 0, RankB: 3, OpA: "a", OpB: "b"},
			&backend.MismatchError{Where: there, RankA: 0, RankB: 3, OpA: "a", OpB: "b"}},
		{&backend.TimeoutError{Where: here, Attendance: attendance}, &backend.TimeoutError{Where: there,
			Attendance: attendance}},
		{&backend.AbortedError{Where: here, By: 3, Reason: "enough", Err: errors.New("enough")},
			&backend.AbortedError{Where: there, By: 3, Reason: "enough"}},
		{errors.New("odd"), &backend.AbortedError{Where: backend.Where{Comm: "c", Reporter: 1}, By: 3, Reason: "odd"}},
	} {
		if got := travelled(t, x.cause, 1000); !reflect.DeepEqual(got, x.want) {
			t.Errorf("%#v has become %#v", x.cause, got)
		}
	}
}

// A failure that is too long for the wire loses its less important parts first, and keeps its kind and
// its rank.
func TestFailureIsShortened(t *testing.T) {
	ranks := make([]int, 5000)
	for i := range ranks {
		ranks[i] = i
	}
	var timeout *backend.TimeoutError
	e := &backend.TimeoutError{Attendance: backend.Attendance{Missing: ranks, Doing: map[int]string{1: strings.Repeat("x",
		5000)}}}
	if err := travelled(t, e, 500); !errors.As(err, &timeout) || len(timeout.Missing) == 0 || timeout.Missing[0] != 0 ||
		timeout.Doing != nil {
		t.Errorf("got %v", err)
	}
	var aborted *backend.AbortedError
	if err := travelled(t, &backend.AbortedError{By: 2, Reason: strings.Repeat("why ", 5000)}, 500); !errors.As(err,
		&aborted) ||
		aborted.By != 2 || !strings.HasPrefix(aborted.Reason, "why why") {
		t.Errorf("got %v", err)
	}
}

// Translated gives every rank in a failure its number in another communicator.
func TestFailureTranslated(t *testing.T) {
	f := FailureOf(&backend.TimeoutError{Attendance: backend.Attendance{Missing: []int{1}, Arrived: []int{0, 2}}}, 2)
	g := f.Translated(func(r int) int { return 10 + r })
	if g.Rank != 12 || !reflect.DeepEqual(g.Missing, []int{11}) || !reflect.DeepEqual(g.Arrived, []int{10, 12}) ||
		f.Missing[0] != 1 {
		t.Errorf("got %+v, of %+v", g, f)
	}
}

func TestLossOf(t *testing.T) {
	at := backend.Where{Comm: "c"}
	var lost *backend.PeerLostError
	err := LossOf(at, 4, &fabric.PeerError{Peer: 9, Err: &fabric.PeerError{Peer: 9, Err: errors.New("reset")}})
	if !errors.As(err, &lost) || lost.Peer != 4 || lost.Cause != "reset" {
		t.Errorf("got %v", err)
	}
	var aborted *backend.AbortedError
	if err := LossOf(at, 4, fmt.Errorf("x: %w", &fabric.UnableError{Peer: 9, Reason: "no files"})); !errors.As(err,
		&aborted) ||
		aborted.By != 4 || aborted.Reason != "no files" {
		t.Errorf("got %v", err)
	}
}
