package loader

import (
	"context"
	"errors"
	"runtime"
	"sync"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/kernel/text"
)

// ErrCompiling is the cause of the error of a kernel that is being compiled.
var ErrCompiling = errors.New("it is being compiled")

// ahead compiles kernels while the program goes on.
type ahead struct {
	room chan struct{} // for as many as there are cores

	mu    sync.Mutex
	going int
	idle  chan struct{} // closed when none is going
}

// CompileAhead has the loader compile kernels beside the program from now on, several at once. A plan that needs one
// which isn't ready is refused, by a [*CompileError], and the caller computes it in another way. Users' functions are
// waited for, as there's no other way, and so are kernels of graphs. It's called before the loader is used.
func (l *Loader) CompileAhead() {
	l.ahead = &ahead{room: make(chan struct{}, runtime.GOMAXPROCS(0))}
}

// Settle waits for kernels that are being compiled beside the program.
func (l *Loader) Settle(ctx context.Context) error {
	if l.ahead == nil {
		return nil
	}
	l.ahead.mu.Lock()
	idle, going := l.ahead.idle, l.ahead.going
	l.ahead.mu.Unlock()
	if going == 0 {
		return nil
	}
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		kind := device.ErrCanceled
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			kind = device.ErrTimeout
		}
		return device.Errorf(kind, l.dev.Name(), "compile kernels", "%d are not ready: %w", going, context.Cause(ctx))
	}
}

// begin counts a kernel, and end one less.
func (a *ahead) begin() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.going++; a.going == 1 {
		a.idle = make(chan struct{})
	}
}

func (a *ahead) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.going--; a.going == 0 {
		close(a.idle)
	}
}

// Prepare loads the kernels of a plan, before any of its runs is enqueued. Those that must be compiled are compiled at
// the same time.
func (l *Loader) Prepare(s *device.Stream, calls []Call) error {
	var missing []text.Spec
	for k := range calls {
		c := &calls[k]
		if l.Does(&c.Library) {
			continue
		}
		spec, _, _ := l.Fit(c, 0)
		if k := l.kernel(spec); !k.done.Load() {
			missing = append(missing, spec)
		} else if k.err != nil {
			return k.err
		}
	}
	if len(missing) == 0 {
		return nil
	}
	if l.ahead != nil && !s.Capturing() {
		if late := l.compileAhead(missing); late != nil {
			return &CompileError{Spec: *late, Log: ErrCompiling.Error(), cause: ErrCompiling}
		}
	}
	errs := make([]error, len(missing))
	var all sync.WaitGroup
	for k, spec := range missing[1:] {
		all.Go(func() { _, errs[k+1] = l.Function(spec) })
	}
	_, errs[0] = l.Function(missing[0])
	all.Wait()
	for k, err := range errs {
		if errors.Is(err, errRoom) && l.kernel(missing[k]).room.Load() > 0 {
			return l.Prepare(s, calls) // in smaller blocks, where the calls allow them
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// compileAhead begins to compile kernels, and returns one that isn't ready; nil if all are users' functions.
func (l *Loader) compileAhead(specs []text.Spec) (late *text.Spec) {
	for k := range specs {
		if text.IsUser(specs[k].Op) {
			continue
		}
		late = &specs[k]
		if l.kernel(*late).begun.Swap(true) {
			continue
		}
		l.ahead.begin()
		go func(spec text.Spec) {
			defer l.ahead.end()
			l.ahead.room <- struct{}{}
			defer func() { <-l.ahead.room }()
			_, _ = l.Function(spec) // the error is the next call's
		}(*late)
	}
	return late
}
