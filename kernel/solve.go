package kernel

import (
	"github.com/chorus-comms/chorus/config"
	"github.com/chorus-comms/chorus/device"
)

// SolverLibrary is the library that does the device's linear algebra; [device.ErrUnsupported] if there's none, or it
// has failed. There are no kernels for it.
func (l *Loader) SolverLibrary() (device.Library, error) {
	return l.solver.open(l.dev, "solve", "linear algebra", "CHORUS_SOLVER_LIBRARY",
		func(c *config.Config) string { return c.SolverLibrary }, l.dev.SolverLibrary)
}

// Solve has the library enqueue a step. [device.ErrUnsupported] says that it doesn't do this one. A library that fails
// isn't asked again.
func (l *Loader) Solve(s *device.Stream, x *device.Solve) error {
	t, err := l.SolverLibrary()
	if err != nil {
		return err
	}
	return l.solver.ran(l.dev, "solve", "steps of linear algebra", t.Name, s.Solve(x))
}
