package device

import "github.com/chorus-comms/chorus/device/driver"

// SparseLibrary tells which library multiplies sparse matrices on the device; [ErrUnsupported] says why there's none.
func (d *Device) SparseLibrary() (ProductLibrary, error) {
	drv, err := optional[driver.SparseProducts](d.rt, "multiply sparse")
	if err != nil {
		return ProductLibrary{}, err
	}
	return drv.SparseLibrary(d.index)
}

// MultiplySparse enqueues a product; see [SparseProducts]. It allocates the memory for work.
func (s *Stream) MultiplySparse(p *SparseProduct) error {
	drv, err := optional[driver.SparseProducts](s.dev.rt, "multiply sparse")
	if err != nil {
		return err
	}
	bytes, err := drv.SparseWork(s.h, p)
	if err != nil {
		return err
	}
	with := *p
	if bytes > 0 {
		if with.Work, err = s.dev.Alloc(bytes, s); err != nil {
			return err
		}
	}
	err = drv.MultiplySparse(s.h, &with)
	if bytes > 0 {
		if e := s.dev.Dealloc(with.Work); err == nil { // which waits for the stream's work
			err = e
		}
	}
	if err != nil {
		return err
	}
	s.uses(p.Out.Ptr, p.B.Ptr, p.Starts, p.Places, p.Values)
	return nil
}
