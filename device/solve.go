package device

import "github.com/chorus-comms/chorus/device/driver"

// Solves is nil if devices of the driver may have a library of linear algebra, which isn't looked for; else
// [ErrUnsupported].
func (d *Device) Solves() error {
	_, err := optional[driver.Solvers](d.rt, "solve")
	return err
}

// SolverLibrary tells which library factors and solves on the device; [ErrUnsupported] says why there's none.
func (d *Device) SolverLibrary() (SolverLibrary, error) {
	drv, err := optional[driver.Solvers](d.rt, "solve")
	if err != nil {
		return SolverLibrary{}, err
	}
	return drv.SolverLibrary(d.index)
}

// Solve enqueues a step; see [Solvers]. It allocates the memory for work.
func (s *Stream) Solve(x *Solve) error {
	drv, err := optional[driver.Solvers](s.dev.rt, "solve")
	if err != nil {
		return err
	}
	bytes, err := drv.SolveWork(s.h, x)
	if err != nil {
		return err
	}
	with := *x
	if bytes > 0 {
		if with.Work, err = s.dev.Alloc(bytes, s); err != nil {
			return err
		}
	}
	err = drv.Solve(s.h, &with)
	if bytes > 0 {
		if e := s.dev.Dealloc(with.Work); err == nil { // which waits for the stream's work
			err = e
		}
	}
	if err != nil {
		return err
	}
	for _, o := range x.Operands() {
		s.uses(o.Ptr)
	}
	return nil
}
