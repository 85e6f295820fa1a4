package library

import (
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/chorus-comms/chorus/config"
	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/dtype"
)

// Libraries are those that a device has beside its kernels. Those of matrices do what kernels do as well, and the
// others what has no kernels. Its methods are safe for concurrent use.
type Libraries struct {
	dev *device.Device

	gemm        multiplier // it's opened at once, and others when they're first asked for
	fused, spmm multiplier
	fusedOnce   sync.Once
	spmmOnce    sync.Once
	fft, solver optional
	multiplied  atomic.Int64
}

// New are the libraries of a device.
func New(dev *device.Device) *Libraries {
	x := &Libraries{dev: dev}
	found, err := dev.GEMMLibrary()
	if err == nil {
		x.gemm.is(found)
	} else {
		x.warn("CHORUS_BLAS_LIBRARY", func(c *config.Config) string { return c.BLASLibrary }, "kernels multiply matrices",
			err)
	}
	return x
}

// warn says why a library whose files a variable names isn't used, and what is done instead.
func (x *Libraries) warn(variable string, files func(*config.Config) string, instead string, why error) {
	if c, err := config.Load(nil); err == nil && files(c) != "" && files(c) != "none" {
		slog.Warn("chorus: the library of "+variable+" isn't used, and "+instead, "device", x.dev.Name(), "error", why)
	}
}

// GEMM are the types of matrices that a library multiplies. There are none if the device has no library, or its library
// has failed.
func (x *Libraries) GEMM() dtype.Set { return x.gemm.usable() }

// FusedGEMM are likewise those of a library that adds a bias and scales.
func (x *Libraries) FusedGEMM() dtype.Set {
	x.fusedOnce.Do(func() {
		if found, err := x.dev.FusedGEMMLibrary(); err == nil {
			x.fused.is(found)
		}
	})
	return x.fused.usable()
}

// SpMM are likewise the types of sparse matrices that a library multiplies by dense ones.
func (x *Libraries) SpMM() dtype.Set {
	x.spmmOnce.Do(func() {
		found, err := x.dev.SpMMLibrary()
		if err == nil {
			x.spmm.is(found)
			return
		}
		x.warn("CHORUS_SPARSE_LIBRARY", func(c *config.Config) string { return c.SparseLibrary },
			"kernels multiply sparse matrices", err)
	})
	return x.spmm.usable()
}

// GEMMLibrary names the library that multiplies matrices; empty if there's none, or it has failed.
func (x *Libraries) GEMMLibrary() string {
	if x.gemm.usable() == 0 {
		return ""
	}
	return x.gemm.name
}

// GEMMVaries reports whether the library's results may have other bits each time.
func (x *Libraries) GEMMVaries() bool { return x.gemm.usable() != 0 && x.gemm.varies }

// Do has a library do work on matrices. Without an error, and not done, a kernel does it.
func (x *Libraries) Do(s *device.Stream, w *Work) (done bool, err error) {
	l := x.of(w)
	if l == nil || l.usable() == 0 {
		return false, nil
	}
	switch w.Kind {
	case FusedGEMM:
		err = s.FusedGEMM(&w.Fused)
	case SpMM:
		err = s.SpMM(&w.Sparse)
	default:
		err = s.GEMM(&w.GEMM)
	}
	if err == nil {
		x.multiplied.Add(1)
		return true, nil
	}
	return false, l.refused(x.dev, w, err)
}

// Does reports whether a library is asked for work.
func (x *Libraries) Does(w *Work) bool {
	l := x.of(w)
	return l != nil && l.usable() != 0
}

// of is the library of some work; nil for a kernel's.
func (x *Libraries) of(w *Work) *multiplier {
	switch w.Kind {
	case GEMM:
		return &x.gemm
	case FusedGEMM:
		return &x.fused
	case SpMM:
		return &x.spmm
	}
	return nil
}

// Multiplied is how many products of matrices libraries have computed.
func (x *Libraries) Multiplied() int64 { return x.multiplied.Load() }

// FFTLibrary is the library that computes the device's Fourier transforms; [device.ErrUnsupported] if there's none, or
// it has failed. There are no kernels for them.
func (x *Libraries) FFTLibrary() (device.Library, error) {
	return x.fft.open(x, "transform", "Fourier transforms", "CHORUS_FFT_LIBRARY",
		func(c *config.Config) string { return c.FFTLibrary }, x.dev.FFTLibrary)
}

// FFT has the library enqueue a transform. [device.ErrUnsupported] says that it doesn't do this one: nothing is
// enqueued. A library that fails isn't asked again.
func (x *Libraries) FFT(s *device.Stream, f *device.FFT) error {
	l, err := x.FFTLibrary()
	if err != nil {
		return err
	}
	return x.fft.ran(x.dev, "transform", "Fourier transforms", l.Name, s.FFT(f))
}

// Transformed is how many Fourier transforms the library was asked for.
func (x *Libraries) Transformed() int64 { return x.fft.count.Load() }

// SolverLibrary is the library that does the device's linear algebra; [device.ErrUnsupported] if there's none, or it
// has failed. There are no kernels for it.
func (x *Libraries) SolverLibrary() (device.Library, error) {
	return x.solver.open(x, "solve", "linear algebra", "CHORUS_SOLVER_LIBRARY",
		func(c *config.Config) string { return c.SolverLibrary }, x.dev.SolverLibrary)
}

// Solve has the library enqueue a step. [device.ErrUnsupported] says that it doesn't do this one. A library that fails
// isn't asked again.
func (x *Libraries) Solve(s *device.Stream, step *device.Solve) error {
	l, err := x.SolverLibrary()
	if err != nil {
		return err
	}
	return x.solver.ran(x.dev, "solve", "steps of linear algebra", l.Name, s.Solve(step))
}

// Solved is how many steps of linear algebra the library was asked for.
func (x *Libraries) Solved() int64 { return x.solver.count.Load() }
