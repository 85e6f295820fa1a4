package device

import (
	"slices"

	"github.com/chorus-comms/chorus/device/driver"
)

// mathematics is the driver's part, if devices may have a library for a field.
func (rt *Runtime) mathematics(of driver.Field) (driver.Mathematics, error) {
	drv, err := optional[driver.Mathematics](rt, of.String())
	if err == nil && !slices.Contains(drv.MathFields(), of) {
		err = Errorf(ErrUnsupported, rt.Name(), of.String(), "the driver has no library of %v", of)
	}
	return drv, err
}

func (d *Device) library(of driver.Field) (Library, error) {
	drv, err := d.rt.mathematics(of)
	if err != nil {
		return Library{}, err
	}
	return drv.MathLibrary(d.index, of)
}

// GEMMLibrary tells which library multiplies matrices on the device; [ErrUnsupported] says why there's none.
func (d *Device) GEMMLibrary() (Library, error) { return d.library(driver.GEMMs) }

// FusedGEMMLibrary tells which library multiplies fused products on the device; [ErrUnsupported] says why there's none.
func (d *Device) FusedGEMMLibrary() (Library, error) { return d.library(driver.FusedGEMMs) }

// SpMMLibrary tells which library multiplies sparse matrices on the device; [ErrUnsupported] says why there's none.
func (d *Device) SpMMLibrary() (Library, error) { return d.library(driver.SpMMs) }

// FFTLibrary tells which library transforms on the device; [ErrUnsupported] says why there's none.
func (d *Device) FFTLibrary() (Library, error) { return d.library(driver.FFTs) }

// SolverLibrary tells which library factors and solves on the device; [ErrUnsupported] says why there's none.
func (d *Device) SolverLibrary() (Library, error) { return d.library(driver.LinearAlgebra) }

// Solves is nil if devices of the driver may have a library of linear algebra, which isn't looked for; else
// [ErrUnsupported].
func (d *Device) Solves() error {
	_, err := d.rt.mathematics(driver.LinearAlgebra)
	return err
}

// FFTPlans are the plans that are kept for the device.
func (d *Device) FFTPlans() (driver.PlanCache, error) {
	drv, err := optional[driver.PlanCaches](d.rt, "transform")
	if err != nil {
		return nil, err
	}
	return drv.FFTPlans(d.index)
}

// BLASHandle is the handle of the library with which the stream multiplies matrices; see [driver.BLASHandles].
// It's the stream's, and lives as long as it.
func (s *Stream) BLASHandle() (uintptr, error) {
	drv, err := optional[driver.BLASHandles](s.dev.rt, "handle of products")
	if err != nil {
		return 0, err
	}
	return drv.BLASHandle(s.h)
}

// compute enqueues a task of a library. It allocates the memory for work.
func (s *Stream) compute(t driver.Task) error {
	drv, err := s.dev.rt.mathematics(t.Field())
	if err != nil {
		return err
	}
	bytes, err := drv.MathWork(s.h, t)
	if err != nil {
		return err
	}
	var work Ptr
	if bytes > 0 {
		if work, err = s.dev.Alloc(bytes, s); err != nil {
			return err
		}
	}
	err = drv.Compute(s.h, t, work)
	if e := s.dev.Dealloc(work); err == nil { // which waits for the stream's work
		err = e
	}
	return err
}

// GEMM enqueues a product; see [driver.Mathematics].
func (s *Stream) GEMM(p *GEMM) error {
	err := s.compute(p)
	if err == nil {
		s.uses(p.Out.Ptr, p.A.Ptr, p.B.Ptr)
	}
	return err
}

// FusedGEMM enqueues a product; see [driver.Mathematics].
func (s *Stream) FusedGEMM(p *FusedGEMM) error {
	err := s.compute(p)
	if err == nil {
		s.uses(p.Out.Ptr, p.A.Ptr, p.B.Ptr)
		for _, x := range p.Vectors() {
			if x.Ptr != 0 {
				s.uses(x.Ptr)
			}
		}
	}
	return err
}

// SpMM enqueues a product; see [driver.Mathematics].
func (s *Stream) SpMM(p *SpMM) error {
	err := s.compute(p)
	if err == nil {
		s.uses(p.Out.Ptr, p.B.Ptr, p.RowOffsets, p.ColumnIndices, p.Values)
	}
	return err
}

// FFT enqueues a transform; see [driver.Mathematics].
func (s *Stream) FFT(t *FFT) error {
	err := s.compute(t)
	if err == nil {
		s.uses(t.In, t.Out)
	}
	return err
}

// Solve enqueues a step; see [driver.Mathematics].
func (s *Stream) Solve(x *Solve) error {
	err := s.compute(x)
	if err == nil {
		for _, o := range x.Operands() {
			s.uses(o.Ptr)
		}
	}
	return err
}
