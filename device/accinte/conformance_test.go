package accinte

import (
	"testing"

	"github.com/chorus-comms/chorus/device/devicetest"
	"github.com/chorus-comms/chorus/device/internal/testmodule"
)

func open(t testing.TB, o Options) *Driver {
	t.Helper()
	d, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

func TestConformance(t *testing.T) {
	devicetest.Run(t, open(t, Options{MemoryBytes: 256 << 20}), devicetest.Module(testmodule.Image))
}
