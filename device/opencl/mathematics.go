package opencl

import "github.com/chorus-comms/chorus/device/driver"

var fields = []driver.Field{driver.GEMMs, driver.FFTs}

// MathFields is [driver.Mathematics].MathFields.
func (d *Driver) MathFields() []driver.Field { return fields }

// MathLibrary is [driver.Mathematics].MathLibrary: CLBlast or clFFT.
func (d *Driver) MathLibrary(dev int, of driver.Field) (driver.Library, error) {
	op := "library of " + of.String()
	b, err := d.dev(op, dev)
	if err != nil {
		return driver.Library{}, err
	}
	switch of {
	case driver.GEMMs:
		x, err := b.products(op)
		if err != nil {
			return driver.Library{}, err
		}
		return driver.Library{Name: "CLBlast (" + x.place + ")", Types: blastTypes}, nil
	case driver.FFTs:
		x, err := b.ffts(op)
		if err != nil {
			return driver.Library{}, err
		}
		return driver.Library{Name: "clFFT (" + x.place + ")", Dims: fftDims, Align: b.align, Spoils: true}, nil
	}
	return driver.Library{}, driver.Errorf(driver.ErrUnsupported, b.Name, op, "there is none for OpenCL")
}

// MathWork is [driver.Mathematics].MathWork: plans of transforms have their own.
func (d *Driver) MathWork(driver.StreamHandle, driver.Task) (int, error) { return 0, nil }

// Compute is [driver.Mathematics].Compute.
func (d *Driver) Compute(h driver.StreamHandle, t driver.Task, _ driver.Ptr) error {
	switch t := t.(type) {
	case *driver.GEMM:
		const op = "multiply"
		s, err := d.stream(op, h)
		if err != nil {
			return err
		}
		defer s.Unlock()
		return s.multiply(op, t)
	case *driver.FFT:
		return d.transform(h, t)
	}
	return driver.Errorf(driver.ErrUnsupported, name, t.Field().String(), "there is no library for OpenCL")
}
