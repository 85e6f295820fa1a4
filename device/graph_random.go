package device

import (
	"errors"

	"github.com/chorus-comms/chorus/device/rng"
)

// draws are the random numbers that a graph takes from its devices' default generators at each replay.
type draws struct {
	captures []*rng.Capture
	last     Event // behind the last replay, since the next one's numbers must not come before that is over
	on       *Stream
}

// capturing lets the default generators of the runtime's devices, those that have been used before, draw for a graph
// until the function that it returns is called, which keeps of them what has drawn.
func (rt *Runtime) capturing() (end func() ([]*rng.Capture, error), err error) {
	var begun []*rng.CUDA
	end = func() (drawn []*rng.Capture, err error) {
		for _, g := range begun {
			c, cerr := g.EndCapture()
			err = errors.Join(err, cerr)
			if cerr == nil && c.Words() > 0 {
				drawn = append(drawn, c)
			}
		}
		return drawn, err
	}
	for _, d := range rt.devices {
		d.mu.Lock()
		g, ok := d.gen.(*rng.CUDA)
		d.mu.Unlock()
		if !ok {
			continue
		}
		if err := g.BeginCapture(); err != nil {
			_, eerr := end()
			return nil, errors.Join(Errorf(ErrCapture, d.Name(), "capture", "its generator is captured already: %w", err), eerr)
		}
		begun = append(begun, g)
	}
	return end, nil
}

// before enqueues what gives a replay its numbers.
func (dr *draws) before(s *Stream) error {
	if len(dr.captures) == 0 {
		return nil
	}
	if s.Capturing() {
		return Errorf(ErrCapture, s.dev.Name(), "replay",
			"a graph that draws random numbers can't be a part of another, whose replays would all draw the same")
	}
	if !s.Equal(dr.on) {
		if err := s.Wait(&dr.last); err != nil {
			return err
		}
	}
	var begin []func()
	for _, c := range dr.captures {
		f, err := c.Advance()
		if err != nil {
			return Errorf(ErrCapture, s.dev.Name(), "replay", "%w", err)
		}
		begin = append(begin, f)
	}
	return s.HostFunc("generators", func() error {
		for _, f := range begin {
			f()
		}
		return nil
	})
}

// after notes the replay that was enqueued.
func (dr *draws) after(s *Stream) error {
	if len(dr.captures) == 0 {
		return nil
	}
	if dr.on != nil && dr.on.dev != s.dev { // an event is of one device
		if err := dr.last.Close(); err != nil {
			return err
		}
	}
	dr.on = s
	return s.Record(&dr.last)
}
