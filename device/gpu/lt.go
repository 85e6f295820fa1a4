package gpu

import (
	"errors"

	"github.com/chorus-comms/chorus/config"
	"github.com/chorus-comms/chorus/device/gpu/abi"
)

// lt multiplies matrices of 8 bits, and others to which a bias is added: cuBLASLt or hipBLASLt.
type lt struct {
	companion[abi.Lt]
	numbers abi.LtNumbers
	common  abi.BLASNumbers
}

func newLt(f *abi.Family, places []string) *lt {
	return &lt{numbers: f.LtNumbers(), common: f.Numbers(), companion: companion[abi.Lt]{name: f.Lt,
		variable: "CHORUS_BLAS_LIBRARY", files: func(c *config.Config) string { return c.BLASLibrary }, places: places,
		off: func(c *config.Config) error {
			if c.NoLt {
				return errors.New("DISABLE_HIPBLASLT is set")
			}
			return nil
		}}}
}

// ltCall calls the library on a thread for which the GPU is the current device.
func (b *gpu) ltCall(op, call string, f func(t *abi.Lt) abi.Status) error {
	return b.productCall(op, b.family.Lt, b.lt.place, call, b.lt.table.Text, func() abi.Status { return f(&b.lt.table) })
}
