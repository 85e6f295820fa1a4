package native

import (
	"errors"
	"fmt"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/fabric"
)

// asking has rank 0 ask rank 1, which is telling of a failure and so doesn't answer yet.
func asking(t *testing.T) (g0, g1 *group, done chan struct{}) {
	opened := pair(t, t.Context())
	g0, g1, done = opened[0].(*group), opened[1].(*group), make(chan struct{})
	g1.Reporting.Begin()
	go func() {
		defer close(done)
		g0.Stalled(0, []int{1})
	}()
	synctest.Wait()
	select {
	case <-done:
		t.Fatal("answered before the failure was told")
	default:
	}
	return g0, g1, done
}

// TestAnswerAfterWord asks a rank that is reporting a failure: its answer comes after the report.
func TestAnswerAfterWord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g0, g1, done := asking(t)
		g1.Fail(&backend.AbortedError{Where: g1.Where(), By: 1, Reason: "enough"})
		g1.Reporting.End()
		if <-done; !g0.Raised() {
			t.Error("answered, but not told")
		}
	})
}

// TestAskTheLost asks a rank that is found lost meanwhile: ask doesn't wait for its answer.
func TestAskTheLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g0, g1, done := asking(t)
		start := time.Now()
		g0.world.PeerLost(1, fmt.Errorf("connecting: %w", syscall.ECONNREFUSED))
		<-done
		if waited := time.Since(start); waited != 0 { // in virtual time
			t.Errorf("it was waited for, %v", waited)
		}
		g1.Reporting.End()
	})
}

// TestInquire has a rank whose peer is gone, and that has been told why but is given time to end an operation before:
// it waits for that.
func TestInquire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := pair(t, t.Context())[0].(*group)
		g.AwaitReason(fabric.ErrClosing) // rank 1 knows of nothing
		if g.Raised() {
			t.Fatal(g.Cause())
		}
		why := errors.New("enough")
		g.BreakFrom(2, why)
		if g.Raised() {
			t.Fatal("broken at once")
		}
		if g.AwaitReason(fabric.ErrClosing); g.Cause() != why {
			t.Errorf("not waited for the cause: %v", g.Cause())
		}
	})
}
