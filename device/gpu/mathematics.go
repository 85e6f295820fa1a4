package gpu

import (
	"github.com/chorus-comms/chorus/config"
	"github.com/chorus-comms/chorus/device/driver"
	"github.com/chorus-comms/chorus/dtype"
)

var fields = []driver.Field{driver.GEMMs, driver.FusedGEMMs, driver.SpMMs, driver.FFTs,
	driver.LinearAlgebra}

// MathFields is [driver.Mathematics].MathFields.
func (d *Driver) MathFields() []driver.Field { return fields }

// MathLibrary is [driver.Mathematics].MathLibrary.
func (d *Driver) MathLibrary(dev int, of driver.Field) (l driver.Library, err error) {
	op := "library of " + of.String()
	if err := d.Knows(op, dev); err != nil {
		return l, err
	}
	library := []interface {
		open() error
		title() string
	}{d.blas, d.lt, d.sparse, d.fft, d.solver}[of]
	if err := library.open(); err != nil {
		return l, driver.Errorf(driver.ErrUnsupported, d.gpus[dev].Name, op, "%w", err)
	}
	switch of {
	case driver.GEMMs:
		c, err := config.Load(nil)
		if err != nil {
			return l, err
		}
		l.Types = []dtype.DType{dtype.Float16, dtype.BFloat16, dtype.Float32, dtype.Float64, dtype.Complex64,
			dtype.Complex128}
		l.Varies = d.family.Name == "cuda" && c.CUBLASWorkspace != ":4096:8" && c.CUBLASWorkspace != ":16:8"
	case driver.FusedGEMMs:
		l.Types = []dtype.DType{dtype.Int8, dtype.Float8E4M3FN, dtype.Float8E5M2, dtype.Float16, dtype.BFloat16,
			dtype.Float32}
	case driver.SpMMs:
		l.Types, l.Varies = sparseTypes(d.family), true
	case driver.FFTs:
		// Addresses are those of complex numbers, of real ones as well. rocFFT may change what a real transform reads.
		l.Dims, l.Align, l.Spoils = fftDims, 16, d.family.Name == "hip"
	case driver.LinearAlgebra:
		l.Types = solverTypes[:]
	}
	l.Name = library.title()
	return l, nil
}

// MathWork is [driver.Mathematics].MathWork.
func (d *Driver) MathWork(h driver.StreamHandle, t driver.Task) (bytes int, err error) {
	switch t := t.(type) {
	case *driver.SpMM:
		return d.sparseWork(h, t)
	case *driver.FFT:
		return d.transformWork(h, t)
	case *driver.Solve:
		return d.solveWork(h, t)
	}
	return 0, nil
}

// Compute is [driver.Mathematics].Compute.
func (d *Driver) Compute(h driver.StreamHandle, t driver.Task, work driver.Ptr) error {
	switch t := t.(type) {
	case *driver.GEMM:
		return d.multiply(h, t)
	case *driver.FusedGEMM:
		return d.fuse(h, t)
	case *driver.SpMM:
		return d.multiplySparse(h, t, work)
	case *driver.FFT:
		return d.transform(h, t, work)
	default:
		return d.solve(h, t.(*driver.Solve), work)
	}
}
