package comm

import (
	"context"
	"errors"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"

	"github.com/chorus-comms/chorus/tensor"
)

// OpInfo describes an operation to hooks.
type OpInfo struct {
	ID      uint64 // counts this communicator's operations on this rank
	Comm    string
	Kind    Kind
	Seq     uint64 // in completion hooks: the collective's sequence number
	In, Out *tensor.Tensor
	Ins     []*tensor.Tensor
	Outs    []*tensor.Tensor
	Root    int
	Peer    int
	Tag     int
	Reduce  Reduction
	Async   bool
	// Algorithm is what carried the operation out; in completion hooks.
	Algorithm string
	// Context is that of the call, in pre-hooks. It may have ended; in the runs of a graph it's that of the capture.
	Context context.Context
}

// PreHook runs before an operation starts; an error keeps it from starting and
// is returned by it. Hooks of collectives run one at a time, within their communicator's
// order of operations: a hook that waits for a collective, Split or Finalize of the same
// communicator waits for ever. A hook that panics, or ends its goroutine, breaks the communicator: [PanicError].
type PreHook func(OpInfo) error

// CompletionHook runs when an operation is done, with its error.
type CompletionHook func(OpInfo, error)

// AbortHook runs once, when the communicator breaks, with the first cause.
type AbortHook func(error)

// Hook is a registered hook.
type Hook struct {
	once   sync.Once
	remove func()
}

// Remove takes the hook away; operations that have begun may still call it. It
// does nothing the second time.
func (h *Hook) Remove() { h.once.Do(h.remove) }

type hookSet struct {
	pre      []*PreHook
	complete []*CompletionHook
}

// RegisterPreHook adds a hook that runs before each operation, in the order of registration. It panics if f is nil.
func (c *Comm) RegisterPreHook(f PreHook) *Hook {
	if f == nil {
		panic("chorus: RegisterPreHook of nil")
	}
	p := &f
	c.changeHooks(func(s *hookSet) { s.pre = append(slices.Clone(s.pre), p) })
	return &Hook{remove: func() {
		c.changeHooks(func(s *hookSet) {
			s.pre = slices.DeleteFunc(slices.Clone(s.pre), func(x *PreHook) bool { return x == p })
		})
	}}
}

// RegisterCompletionHook adds a hook that runs after each operation, on the goroutine that completed it. It panics if f
// is nil.
func (c *Comm) RegisterCompletionHook(f CompletionHook) *Hook {
	if f == nil {
		panic("chorus: RegisterCompletionHook of nil")
	}
	p := &f
	c.changeHooks(func(s *hookSet) { s.complete = append(slices.Clone(s.complete), p) })
	return &Hook{remove: func() {
		c.changeHooks(func(s *hookSet) {
			s.complete = slices.DeleteFunc(slices.Clone(s.complete), func(x *CompletionHook) bool { return x == p })
		})
	}}
}

// RegisterAbortHook adds a hook for the moment at which the communicator breaks. If it's broken already the hook runs
// soon. It runs on a goroutine of its own; if it panics there, that's logged ([WithLogger]) with its stack.
// RegisterAbortHook itself panics if f is nil.
func (c *Comm) RegisterAbortHook(f AbortHook) *Hook {
	if f == nil {
		panic("chorus: RegisterAbortHook of nil")
	}
	at, log := c.at(""), c.log
	removed := make(chan struct{})
	broken, ended, b := c.b.Broken(), c.finalizer.done, c.b
	go func() {
		select {
		case <-removed:
			return
		case <-ended:
		case <-broken:
		}
		// Finalize breaks the communicator, too, in its way.
		cause := b.Cause()
		if cause == nil || errors.Is(cause, ErrFinalized) {
			return
		}
		select {
		case <-removed:
		default:
			runAbortHook(at, log, f, cause)
		}
	}()
	return &Hook{remove: func() { close(removed) }}
}

// runAbortHook keeps a panic of the hook, whose goroutine has no caller, from the process.
func runAbortHook(at Where, log *slog.Logger, f AbortHook, cause error) {
	returned := false
	defer func() {
		if !returned {
			e := &PanicError{Where: at, Hook: hookName("abort hook", f), Value: recover(), Stack: debug.Stack(), Err: cause}
			log.Error(e.Error(), "stack", string(e.Stack))
		}
	}()
	f(cause)
	returned = true
}

func (c *Comm) changeHooks(change func(*hookSet)) {
	c.hooksMu.Lock()
	defer c.hooksMu.Unlock()
	var s hookSet
	if old := c.hooks.Load(); old != nil {
		s = *old
	}
	change(&s)
	if len(s.pre)+len(s.complete) == 0 {
		c.hooks.Store(nil)
		return
	}
	c.hooks.Store(&s)
}

func (c *Comm) info(o *call) OpInfo {
	info := OpInfo{ID: o.id, Comm: c.name, Kind: o.Kind, Seq: o.Seq, In: o.In, Out: o.Out, Ins: o.Ins, Outs: o.Outs,
		Root: o.Root, Peer: o.Peer, Tag: o.Tag, Reduce: o.Reduce, Async: o.work != nil, Algorithm: o.Op.Algorithm,
		Context: o.Ctx}
	if g := o.originals; g != nil {
		info.In, info.Out, info.Ins, info.Outs, info.Reduce.FactorTensor, info.Async = g.in, g.out, g.ins, g.outs, g.factor,
			g.async
		info.Context = g.ctx
	}
	return info
}

// before runs the pre-hooks, if there are any. If one of them refuses the operation, the others don't run.
func (c *Comm) before(o *call) error {
	h := c.hooks.Load()
	if h == nil {
		return nil
	}
	o.hooks, o.id, o.plain = h, c.ids.Add(1), false
	info := c.info(o)
	for _, f := range h.pre {
		o.running.hook = f
		err := (*f)(info)
		o.running.hook = nil
		if err != nil {
			if !o.Kind.PointToPoint() {
				c.refused(o.Kind.String(), err)
			}
			return err
		}
	}
	return nil
}

// completed runs the completion hooks that there were when the operation began.
func (c *Comm) completed(o *call, err error) {
	if len(o.hooks.complete) == 0 {
		return
	}
	info := c.info(o)
	for _, f := range o.hooks.complete {
		o.running = running{f, err}
		(*f)(info, err)
	}
	o.running = running{}
}
