package device

import "github.com/chorus-comms/chorus/device/driver"

// ProductLibrary tells which library multiplies matrices on the device; [ErrUnsupported] says why there's none.
func (d *Device) ProductLibrary() (ProductLibrary, error) {
	drv, err := optional[driver.Products](d.rt, "multiply")
	if err != nil {
		return ProductLibrary{}, err
	}
	return drv.ProductLibrary(d.index)
}

// Multiply enqueues a product; see [Products].
func (s *Stream) Multiply(p *Product) error {
	drv, err := optional[driver.Products](s.dev.rt, "multiply")
	if err != nil {
		return err
	}
	if err := drv.Multiply(s.h, p); err != nil {
		return err
	}
	for _, m := range [...]Ptr{p.Out.Ptr, p.A.Ptr, p.B.Ptr} {
		s.uses(m)
	}
	return nil
}

// ProductHandle is the handle of the library with which the stream multiplies matrices; see [ProductHandles]. It's the
// stream's, and lives as long as it.
func (s *Stream) ProductHandle() (uintptr, error) {
	drv, err := optional[driver.ProductHandles](s.dev.rt, "handle of products")
	if err != nil {
		return 0, err
	}
	return drv.ProductHandle(s.h)
}
