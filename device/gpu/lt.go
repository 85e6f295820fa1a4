package gpu

import (
	"errors"
	"fmt"

	"github.com/chorus-comms/chorus/config"
	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/device/gpu/abi"
	"github.com/chorus-comms/chorus/dtype"
)

// lt multiplies matrices of 8 bits: cuBLASLt or hipBLASLt.
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

// FusedLibrary is [device.FusedProducts].FusedLibrary: cuBLASLt or hipBLASLt.
func (d *Driver) FusedLibrary(dev int) (device.ProductLibrary, error) {
	const op = "library of fused products"
	if err := d.knows(op, dev); err != nil {
		return device.ProductLibrary{}, err
	}
	if err := d.lt.open(); err != nil {
		return device.ProductLibrary{}, device.Errorf(device.ErrUnsupported, d.gpus[dev].name, op, "%w", err)
	}
	return device.ProductLibrary{Name: d.family.Lt + " (" + d.lt.place + ")",
		Types: []dtype.DType{dtype.Int8, dtype.Float8E4M3FN, dtype.Float8E5M2}}, nil
}

// ltCall calls the library on a thread for which the GPU is the current device.
func (b *gpu) ltCall(op, call string, f func(t *abi.Lt) abi.Status) error {
	s := abi.Done
	if err := b.call(op, call, func() abi.Result { s = f(&b.lt.table); return abi.Success }); err != nil || s == abi.Done {
		return err
	}
	text := s.String()
	if b.lt.table.Text != nil {
		text = fmt.Sprintf("%s (%d)", b.lt.table.Text(s), int32(s))
	}
	return device.Errorf(kindOfStatus(&b.lt.common, s), b.name, op, "%s (%s): %s: %s", b.family.Lt, b.lt.place, call, text)
}
