package bench

import "errors"

// onDevice turns a round that was prepared on host views of the buffers into one of a device's communicator. Checks
// stay on the host views. Timed operations are enqueued on the device's buffers, in blocks; the host waits at the end
// of each block.
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
	rd.call = r.op.prepare(&there).call
	rd.synchronize = func() error { return stream.Synchronize(r.ctx) }
	return nil
}

// once runs a round to its end.
func (rd *round) once() error {
	err := rd.call()
	if err == nil && rd.synchronize != nil {
		err = rd.synchronize()
	}
	return err
}

// deviceRounds is how many rounds at least a device has enqueued at a time: that the host waits for the last is its
// cost, not the device's.
const deviceRounds = 20

// grouped is the schedule with blocks of n rounds at least.
func (s schedule) grouped(n int) schedule {
	if s.perBlock >= n {
		return s
	}
	return schedule{blocks: max(1, s.rounds()/n), perBlock: n}
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
