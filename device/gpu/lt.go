package gpu

import (
	"errors"
	"fmt"
	"sync"

	"github.com/chorus-comms/chorus/config"
	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/device/gpu/abi"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/internal/dl"
)

// lt multiplies matrices of 8 bits: cuBLASLt or hipBLASLt, which is opened when it's first asked for.
type lt struct {
	family *abi.Family
	places []string

	once    sync.Once
	table   abi.Lt
	numbers abi.LtNumbers
	common  abi.BLASNumbers
	place   string
	err     error // why there is none
}

// suppliedLt is one of a table that the caller has filled.
func suppliedLt(f *abi.Family, place string, table abi.Lt) (*lt, error) {
	x := &lt{family: f, table: table, place: place, numbers: f.LtNumbers(), common: f.Numbers()}
	_, err := dl.Supplied(f.Lt, "unknown", place, &x.table)
	x.once.Do(func() { x.err = disabled() })
	return x, err
}

// disabled is why the library isn't used, wherever it is.
func disabled() error {
	c, err := config.Load(nil)
	if err == nil && c.NoLt {
		err = errors.New("DISABLE_HIPBLASLT is set")
	}
	return err
}

// open opens the library: of the files of CHORUS_BLAS_LIBRARY the first that is one, or what the machine has.
func (x *lt) open() error {
	x.once.Do(func() {
		if x.err = disabled(); x.err != nil {
			return
		}
		c, err := config.Load(nil)
		if err != nil {
			x.err = err
			return
		}
		x.numbers, x.common = x.family.LtNumbers(), x.family.Numbers()
		x.err = dl.Named("CHORUS_BLAS_LIBRARY", c.BLASLibrary, x.places, func(places []string) error {
			lib, err := dl.Source{Name: x.family.Lt, Candidates: places}.Open()
			if err != nil {
				return err
			}
			x.place = lib.Path()
			_, err = lib.Resolve(&x.table)
			return err
		})
	})
	return x.err
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
