package gpu

import (
	"github.com/chorus-comms/chorus/config"
	"github.com/chorus-comms/chorus/device/driver"
	"github.com/chorus-comms/chorus/dtype"
)

var fields = []driver.Field{driver.Products, driver.FusedProducts, driver.SparseProducts, driver.Transforms,
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
	case driver.Products:
		c, err := config.Load(nil)
		if err != nil {
			return l, err
		}
		l.Types = []dtype.DType{dtype.Float16, dtype.BFloat16, dtype.Float32, dtype.Float64, dtype.Complex64,
			dtype.Complex128}
		l.Varies = d.family.Name == "cuda" && c.CUBLASWorkspace != ":4096:8" && c.CUBLASWorkspace != ":16:8"
	case driver.FusedProducts:
		l.Types = []dtype.DType{dtype.Int8, dtype.Float8E4M3FN, dtype.Float8E5M2, dtype.Float16, dtype.BFloat16,
			dtype.Float32}
	case driver.SparseProducts:
		l.Types, l.Varies = sparseTypes(d.family), true
	case driver.Transforms:
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
	case *driver.SparseProduct:
		return d.sparseWork(h, t)
	case *driver.Transform:
		return d.transformWork(h, t)
	case *driver.Solve:
		return d.solveWork(h, t)
	}
	return 0, nil
}

// Compute is [driver.Mathematics].Compute.
func (d *Driver) Compute(h driver.StreamHandle, t driver.Task, work driver.Ptr) error {
	switch t := t.(type) {
	case *driver.Product:
		return d.multiply(h, t)
	case *driver.FusedProduct:
		return d.fuse(h, t)
	case *driver.SparseProduct:
		return d.multiplySparse(h, t, work)
	case *driver.Transform:
		return d.transform(h, t, work)
	default:
		return d.solve(h, t.(*driver.Solve), work)
	}
}
