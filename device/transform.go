package device

import "github.com/chorus-comms/chorus/device/driver"

// TransformLibrary tells which library transforms on the device; [ErrUnsupported] says why there's none.
func (d *Device) TransformLibrary() (TransformLibrary, error) {
	drv, err := optional[driver.Transforms](d.rt, "transform")
	if err != nil {
		return TransformLibrary{}, err
	}
	return drv.TransformLibrary(d.index)
}

// TransformPlans are the plans that are kept for the device.
func (d *Device) TransformPlans() (driver.PlanCache, error) {
	drv, err := optional[driver.Transforms](d.rt, "transform")
	if err != nil {
		return nil, err
	}
	return drv.TransformPlans(d.index)
}

// Transform enqueues a transform; see [Transforms]. It allocates the memory for work.
func (s *Stream) Transform(t *Transform) error {
	drv, err := optional[driver.Transforms](s.dev.rt, "transform")
	if err != nil {
		return err
	}
	bytes, err := drv.TransformWork(s.h, t)
	if err != nil {
		return err
	}
	with := *t
	if bytes > 0 {
		if with.Work, err = s.dev.Alloc(bytes, s); err != nil {
			return err
		}
	}
	err = drv.Transform(s.h, &with)
	if bytes > 0 {
		if e := s.dev.Dealloc(with.Work); err == nil { // which waits for the stream's work
			err = e
		}
	}
	if err != nil {
		return err
	}
	s.uses(t.In, t.Out)
	return nil
}
