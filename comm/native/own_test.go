package native

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/chorus-comms/chorus/fabric"
)

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
