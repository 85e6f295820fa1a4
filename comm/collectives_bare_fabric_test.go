package comm_test

import (
	"context"
	"testing"

	"github.com/chorus-comms/chorus/comm/commtest"
	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/internal/testutil"
)

// bare is a fabric that can do what it must, and nothing else; announcing is one that only lacks control payloads.
type (
	bare       struct{ fabric.Fabric }
	announcing struct{ fabric.Announcer }
)

func init() {
	without := func(hide func(fabric.Fabric) fabric.Fabric) fabric.Driver {
		return fabric.Driver{Open: func(ctx context.Context, c fabric.Config) (fabric.Fabric, error) {
			f, err := fabric.Open(ctx, "mem", c)
			if err != nil {
				return nil, err
			}
			return hide(f), nil
		}}
	}
	fabric.Register("bare", without(func(f fabric.Fabric) fabric.Fabric { return bare{f} }))
	fabric.Register("announcing", without(func(f fabric.Fabric) fabric.Fabric { return announcing{f.(fabric.Announcer)} }))
}

// TestConformanceBare has come as messages what ranks tell each other of failures, departures and splits. Where the
// fabric is no Announcer a mismatch isn't found in which no rank waits for another.
func TestConformanceBare(t *testing.T) {
	t.Run("bare", func(t *testing.T) {
		testutil.SkipIfShort(t)
		commtest.Run(t, commtest.Config{Open: over("bare"), Worlds: suiteWorlds, Skip: []string{"Mismatches"}})
	})
	t.Run("announcing", func(t *testing.T) {
		commtest.Run(t, commtest.Config{Open: over("announcing"), Worlds: suiteWorlds})
	})
}
