package device

import "github.com/chorus-comms/chorus/device/driver"

// FusedLibrary tells which library multiplies fused products on the device; [ErrUnsupported] says why there's none.
func (d *Device) FusedLibrary() (ProductLibrary, error) {
	drv, err := optional[driver.FusedProducts](d.rt, "multiply fused")
	if err != nil {
		return ProductLibrary{}, err
	}
	return drv.FusedLibrary(d.index)
}

// MultiplyFused enqueues a product; see [FusedProducts].
func (s *Stream) MultiplyFused(p *FusedProduct) error {
	drv, err := optional[driver.FusedProducts](s.dev.rt, "multiply fused")
	if err != nil {
		return err
	}
	if err := drv.MultiplyFused(s.h, p); err != nil {
		return err
	}
	s.uses(p.Out.Ptr, p.A.Ptr, p.B.Ptr)
	for _, x := range p.Vectors() {
		if x.Ptr != 0 {
			s.uses(x.Ptr)
		}
	}
	return nil
}
