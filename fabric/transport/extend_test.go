package transport_test

import (
	"errors"
	"testing"

	"go.uber.org/goleak"

	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/fabric/fabrictest"
	"github.com/chorus-comms/chorus/fabric/mem"
	"github.com/chorus-comms/chorus/fabric/transport"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bare hides all that a fabric can do besides what it must.
type bare struct{ fabric.Fabric }

// announcing hides that it carries control payloads.
type announcing struct{ fabric.Announcer }

// TestExtend runs the suite on fabrics that lack abilities, which get them from Extend.
func TestExtend(t *testing.T) {
	for name, hide := range map[string]func(fabric.Fabric) fabric.Fabric{
		"core":      func(f fabric.Fabric) fabric.Fabric { return bare{f} },
		"announcer": func(f fabric.Fabric) fabric.Fabric { return announcing{f.(fabric.Announcer)} },
	} {
		for kind, opts := range map[string][]mem.Option{"buffered": nil, "unbuffered": {mem.Unbuffered()}} {
			t.Run(name+"/"+kind, func(t *testing.T) {
				ranks := map[fabric.Fabric]*mem.Rank{}
				fabrictest.Run(t, func(_ testing.TB, size int) []fabric.Fabric {
					all := mem.NewWorld(size, opts...)
					for r, f := range all {
						all[r] = hide(f)
						ranks[all[r]] = f.(*mem.Rank)
					}
					return all
				}, fabrictest.Kill(func(f fabric.Fabric) { ranks[f].Kill(errors.New("killed by the test")) }))
			})
		}
	}
}

// TestExtendNothing leaves a fabric alone that has everything.
func TestExtendNothing(t *testing.T) {
	f := mem.NewWorld(1)[0]
	if transport.Extend(f) != f.(fabric.Messenger) {
		t.Error("a Messenger was extended")
	}
}
