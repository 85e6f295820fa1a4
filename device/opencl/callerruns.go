package opencl

import (
	"time"

	"github.com/chorus-comms/chorus/device/driver"
	"github.com/chorus-comms/chorus/device/internal/outcome"
	"github.com/chorus-comms/chorus/device/internal/traces"
)

// turn is the time in which a caller does an idle stream's next work itself. The queue is held back only if something
// is enqueued meanwhile: otherwise the library isn't called.
type turn struct {
	on      bool
	name    string
	traced  traces.Work
	begin   time.Time
	let     func()          // lets the work that was enqueued meanwhile go on; nil: there's none
	outcome *outcome.Result // what that work comes after
}

// behind makes what is enqueued next come after the caller's turn, if the stream is in one. It's locked.
func (s *stream) behind(op string) error {
	if !s.turn.on || s.turn.let != nil {
		return nil
	}
	let, err := s.hold(op)
	if err != nil {
		return err
	}
	s.outcome = s.outcome.After(1)
	s.turn.let, s.turn.outcome = let, s.outcome
	return nil
}

// StreamTryAcquire is [driver.CallerRuns].StreamTryAcquire.
func (d hosted) StreamTryAcquire(h driver.StreamHandle, name string) (entered bool, err error) {
	const op = "enter"
	s, err := d.stream(op, h)
	if err != nil {
		return false, err
	}
	defer s.Unlock()
	if s.turn.on || s.captured() {
		return false, nil
	}
	if t, err := s.point(op); err != nil || !t.Over() {
		return false, err
	}
	if err := s.broken(); err != nil {
		return false, err
	}
	if s.outcome != nil { // a function has run, and hasn't said yet how
		return false, nil
	}
	s.turn = turn{on: true, name: name}
	if tr := d.trace.Load(); tr != nil {
		s.turn.begin = time.Now()
		s.turn.traced = s.calls(tr, op, driver.Activity{Kind: driver.ActivityHost, Name: name}, s.turn.begin)
	}
	return true, nil
}

// StreamRelease is [driver.CallerRuns].StreamRelease.
func (d hosted) StreamRelease(h driver.StreamHandle) error {
	t, err := d.leave(h, nil)
	if err == nil && t.let != nil {
		t.outcome.Ran(nil)
		t.let()
	}
	return err
}

// StreamContinue is [driver.CallerRuns].StreamContinue.
func (d hosted) StreamContinue(h driver.StreamHandle, rest func() error) error {
	const op = "continue"
	if rest == nil {
		return driver.Errorf(driver.ErrInvalidArgument, name, op, "no function")
	}
	x := &function{f: rest}
	t, err := d.leave(h, func(s *stream) error {
		err := s.behind(op)
		if err == nil {
			x.s = s
			s.queued.Add(1)
		}
		return err
	})
	if err != nil {
		return err
	}
	x.name, x.outcome, x.let = t.name, t.outcome, t.let
	go x.run()
	return nil
}

// leave ends the caller's turn, unless last, which is called before, fails.
func (d hosted) leave(h driver.StreamHandle, last func(s *stream) error) (turn, error) {
	const op = "leave"
	s, err := d.stream(op, h)
	if err != nil {
		return turn{}, err
	}
	defer s.Unlock()
	if !s.turn.on {
		return turn{}, driver.Errorf(driver.ErrInvalidArgument, s.b.Name, op, "stream %#x was not entered", uintptr(h))
	}
	if last != nil {
		if err := last(s); err != nil {
			return turn{}, err
		}
	}
	t := s.turn
	t.traced.Ran(t.begin, false)
	s.turn = turn{}
	return t, nil
}
