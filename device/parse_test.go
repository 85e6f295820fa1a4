package device_test

import (
	"strconv"
	"testing"

	"github.com/chorus-comms/chorus/device"
)

// FuzzParse reads any name of a device: what is one has no other spelling.
func FuzzParse(f *testing.F) {
	for _, spec := range []string{"cpu", "accinte:1", "accinte:-1", "accinte:01", ":", "a:b:c",
		"accinte:99999999999999999999", "Ä:0"} {
		f.Add(spec)
	}
	f.Fuzz(func(t *testing.T, spec string) {
		name, index, err := device.Parse(spec)
		if err != nil {
			return
		}
		again := name
		if index >= 0 {
			again += ":" + strconv.Itoa(index)
		}
		if again != spec {
			t.Errorf("%q is device %d of %q", spec, index, name)
		}
	})
}
