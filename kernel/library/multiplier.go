package library

import (
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/dtype"
)

// Work is what a library may do instead of a kernel: that of its kind.
type Work struct {
	Kind   Kind
	GEMM   device.GEMM // may be there for the kernel alone, to tune it
	Fused  device.FusedGEMM
	Sparse device.SpMM
}

// Kind is a library of matrices.
type Kind uint8

const (
	None Kind = iota
	GEMM
	FusedGEMM // with a bias and scales
	SpMM      // of sparse matrices by dense ones
)

// multiplier is a library of one kind of products.
type multiplier struct {
	name   string
	types  dtype.Set
	varies bool
	broken atomic.Bool // it has failed, and isn't asked any more
	warned sync.Once
}

func (l *multiplier) is(found device.Library) {
	l.name, l.varies, l.types = found.Name, found.Varies, dtype.SetOf(found.Types...)
}

// usable are the types that the library multiplies; none if it has failed.
func (l *multiplier) usable() dtype.Set {
	if l.broken.Load() {
		return 0
	}
	return l.types
}

// refused is what an error of the library means: nil if the kernel does the work. A library that fails isn't asked
// again.
func (l *multiplier) refused(dev *device.Device, w *Work, err error) error {
	if _, failed := errors.AsType[*device.WorkError](err); failed || errors.Is(err, device.ErrOutOfBounds) ||
		errors.Is(err, device.ErrInvalidPointer) || errors.Is(err, device.ErrWrongDevice) {
		return err // the device's, or the caller's
	}
	if errors.Is(err, device.ErrCapture) || w.Kind != GEMM && errors.Is(err, device.ErrUnsupported) {
		return nil // which says nothing of other products
	}
	if !errors.Is(err, device.ErrUnsupported) && !errors.Is(err, device.ErrOutOfMemory) {
		l.broken.Store(true)
	}
	l.warned.Do(func() {
		slog.Warn("chorus: a library didn't multiply matrices, and a kernel does", "device", dev.Name(), "library", l.name,
			"error", err)
	})
	return nil
}
