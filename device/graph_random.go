package device

import (
	"encoding/binary"
	"errors"
	"slices"

	"github.com/chorus-comms/chorus/device/rng"
)

// drawn is what a graph draws from a device's default generator, or from another one.
type drawn struct {
	dev     *Device
	gen     *rng.CUDA
	capture *rng.Capture
	state   Ptr // of a seed and an offset, for kernels that read them; 0 if there are none
}

// close gives the memory of the state back.
func (dr *drawn) close() error { return dr.dev.Dealloc(dr.state) }

// closeAll gives that of several back.
func closeAll(all []*drawn) (err error) {
	for _, dr := range all {
		err = errors.Join(err, dr.close())
	}
	return err
}

// draws are the random numbers that a graph takes from its generators at each replay.
type draws struct {
	captures []*drawn
	last     Event // behind the last replay, since the next one's numbers must not come before that is over
	on       *Stream
}

// capturing lets generators draw for a graph: the default ones of the runtime's devices that have been used before, and
// others, whose states are on a stream's device. The function that it returns ends that, and keeps those that have
// drawn.
func (rt *Runtime) capturing(s *Stream, others []*rng.CUDA) (end func() ([]*drawn, error), err error) {
	var begun []*drawn
	end = func() (all []*drawn, err error) {
		for _, dr := range begun {
			dr.dev.mu.Lock()
			dr.dev.drawn = slices.DeleteFunc(dr.dev.drawn, func(other *drawn) bool { return other == dr })
			dr.dev.mu.Unlock()
			c, cerr := dr.gen.EndCapture()
			if dr.capture = c; cerr == nil && c.Words() > 0 {
				all = append(all, dr)
			} else {
				cerr = errors.Join(cerr, dr.close())
			}
			err = errors.Join(err, cerr)
		}
		return all, err
	}
	begin := func(d *Device, g *rng.CUDA) {
		if err != nil || slices.ContainsFunc(begun, func(dr *drawn) bool { return dr.gen == g }) {
			return
		}
		if berr := g.BeginCapture(); berr != nil {
			err = Errorf(ErrCapture, d.Name(), "capture", "its generator is captured already: %w", berr)
			return
		}
		dr := &drawn{dev: d, gen: g}
		begun = append(begun, dr)
		if d == s.dev { // before the capture: in the graph's memory it might have been another's, which replays write to
			dr.state, err = d.Alloc(16, s)
		}
		d.mu.Lock()
		d.drawn = append(d.drawn, dr)
		d.mu.Unlock()
	}
	for _, d := range rt.devices {
		d.mu.Lock()
		g, ok := d.gen.(*rng.CUDA)
		d.mu.Unlock()
		if ok {
			begin(d, g)
		}
	}
	for _, g := range others {
		begin(s.dev, g)
	}
	if err != nil {
		all, eerr := end()
		return nil, errors.Join(err, eerr, closeAll(all))
	}
	return end, nil
}

// RandomState is the address of two words of 64 bits in the device's memory, for kernels that are captured on s and
// draw from g. While a replay of the graph runs, they are the seed and the offset from which its draws begin
// ([rng.Draw.Captured]). The memory is the graph's.
func (d *Device) RandomState(s *Stream, g *rng.CUDA) (Ptr, error) {
	d.mu.Lock()
	i := slices.IndexFunc(d.drawn, func(dr *drawn) bool { return dr.gen == g })
	if i < 0 {
		d.mu.Unlock()
		return 0, Errorf(ErrCapture, d.Name(), "random numbers", "the generator isn't captured")
	}
	dr := d.drawn[i]
	d.mu.Unlock()
	if dr.state == 0 {
		p, err := d.Alloc(16, s)
		if err != nil {
			return 0, err
		}
		dr.state = p
	}
	return dr.state, nil
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
		f, seed, offset, err := c.capture.Advance()
		if err != nil {
			return Errorf(ErrCapture, s.dev.Name(), "replay", "%w", err)
		}
		begin = append(begin, f)
		if c.state == 0 {
			continue
		}
		if err := s.copyWords(c.state, seed, offset); err != nil {
			return err
		}
	}
	return s.HostFunc("generators", func() error {
		for _, f := range begin {
			f()
		}
		return nil
	})
}

// copyWords enqueues a copy of two words to device memory.
func (s *Stream) copyWords(to Ptr, a, b uint64) error {
	words, err := s.dev.rt.Pin(16)
	if err != nil {
		return err
	}
	binary.NativeEndian.PutUint64(words.Bytes(), a)
	binary.NativeEndian.PutUint64(words.Bytes()[8:], b)
	return errors.Join(s.Copy(to, words.Ptr(), 16), words.Free()) // which waits for the copy
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
