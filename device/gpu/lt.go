package gpu

import (
	"errors"

	"github.com/chorus-comms/chorus/config"
	"github.com/chorus-comms/chorus/device/driver"
	"github.com/chorus-comms/chorus/device/gpu/abi"
	"github.com/chorus-comms/chorus/dtype"
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

// FusedLibrary is [driver.FusedProducts].FusedLibrary: cuBLASLt or hipBLASLt.
func (d *Driver) FusedLibrary(dev int) (driver.ProductLibrary, error) {
	const op = "library of fused products"
	if err := d.Knows(op, dev); err != nil {
		return driver.ProductLibrary{}, err
	}
	if err := d.lt.open(); err != nil {
		return driver.ProductLibrary{}, driver.Errorf(driver.ErrUnsupported, d.gpus[dev].Name, op, "%w", err)
	}
	return driver.ProductLibrary{Name: d.family.Lt + " (" + d.lt.place + ")", Types: []dtype.DType{dtype.Int8,
		dtype.Float8E4M3FN, dtype.Float8E5M2, dtype.Float16, dtype.BFloat16, dtype.Float32}}, nil
}

// ltCall calls the library on a thread for which the GPU is the current device.
func (b *gpu) ltCall(op, call string, f func(t *abi.Lt) abi.Status) error {
	return b.productCall(op, b.family.Lt, b.lt.place, call, b.lt.table.Text, func() abi.Status { return f(&b.lt.table) })
}
