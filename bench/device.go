package bench

import "errors"

// onDevice makes a round of a communicator of a device out of one that is prepared on the buffers as this process can touch them:
// what is checked stays there, and what is timed works on the device's buffers and lasts until the stream is done.
func (r *Runner) onDevice(rd *round, s *setup) error {
	if r.c.Stream() == nil {
		return nil
	}
	there := *s
	there.a, there.b = r.a, r.b
	stream, err := r.a.On().CurrentStream(r.ctx)
	if err != nil {
		return err
	}
	call := r.op.prepare(&there).call
	rd.call = func() error {
		if err := call(); err != nil {
			return err
		}
		return stream.Synchronize(r.ctx)
	}
	return nil
}

// touchable gives a setup the buffers by addresses that this process can follow.
func (r *Runner) touchable(s *setup) (err error) {
	var errs [2]error
	s.a, errs[0] = r.a.EngineView()
	s.b, errs[1] = r.b.EngineView()
	return errors.Join(errs[:]...)
}

// barrier returns when all ranks are there.
func (r *Runner) barrier() error {
	err := r.c.Barrier(r.ctx)
	if s := r.c.Stream(); err == nil && s != nil {
		cur, serr := s.Device().CurrentStream(r.ctx)
		if serr != nil {
			return serr
		}
		err = cur.Synchronize(r.ctx)
	}
	return err
}
