package comm

import (
	"cmp"
	"context"
	"errors"
	"math"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/tensor"
)

// stagedExecutor carries out operations on a device whose memory engines of the process can't touch: as the host's, on
// copies in pinned memory. No stream waits for other ranks meanwhile, which would hold up the streams that share a queue
// of the hardware with it. So a call, or the wait for its Work, ends when the results are on the device. Captured
// operations are functions in the graph, as elsewhere.
type stagedExecutor struct{ *streamExecutor }

func (x stagedExecutor) carryOut(o *call) error {
	if !o.onDevice {
		return x.hostExecutor.carryOut(o)
	}
	c := x.c
	o = c.detach(o)
	t := x.taskOf(o)
	s, err := x.current(t.ctx, t.stream)
	switch {
	case err != nil:
	case o.onWindow != nil:
		return c.untouchable(t.op, s.Device())
	case s.Capturing():
		return x.enqueueCall(o)
	}
	calls := []*call{o}
	if o.round != nil {
		calls = o.round.calls
	}
	for y := o.next; y != nil; y = y.next {
		calls = append(calls, y)
	}
	for i := 0; i < len(calls) && err == nil; i++ {
		err = newStage(c, calls[i], s, t.work != nil)
	}
	if o.round != nil {
		err = loadAll(calls, err)
	}
	switch {
	case err != nil:
		if err = c.deviceError(t.op, err); t.kind == ofCollectives {
			c.placement.Load().refuse(o, err)
		}
	case o.round != nil:
		err = x.runRound(o.round)
	default:
		err = x.runQueued(o)
	}
	if err != nil { // none is under way
		for _, y := range calls {
			y.stage.end()
		}
	}
	return err
}

// AwaitsStream reports whether asynchronous operations of a kind on the device wait in their call for the current
// stream's work. Sends do on memory that engines of the process can't touch: they are posted in the order of their
// calls.
func (c *Comm) AwaitsStream(k Kind) bool {
	d := c.dev()
	return d != nil && d.staged && k == backend.Send
}

// loadAll loads the copies of messages, before they are posted in the order of their calls.
func loadAll(calls []*call, err error) error {
	for _, y := range calls {
		if err == nil {
			err = y.stage.load(y)
		}
	}
	return err
}

// results are due behind operations on a stream: each copies one's results back.
type results []func() error

// reach replaces an operation's tensors by what the backend can touch, and notes that s uses them. That are views of the
// memory, or else copies, which s makes before.
func (r *results) reach(c *Comm, o *call, s *device.Stream) error {
	o.keepOriginals()
	if s.HostKernels() {
		return o.Replace(engineView(s))
	}
	y := &stage{c: c, on: s, copies: map[*tensor.Tensor]*tensor.Tensor{}}
	*r = append(*r, func() error { return y.out(o) })
	err := o.Replace(func(t *tensor.Tensor) (*tensor.Tensor, error) { return t, t.UsedBy(s) })
	if err == nil {
		err = y.in(o)
	}
	return err
}

// enqueue enqueues the copies.
func (r results) enqueue() (err error) {
	for _, f := range r {
		err = errors.Join(err, f())
	}
	return err
}

// untouchable is the error of an operation on a window that has to do with memory of a device that engines of the
// process can't touch.
func (c *Comm) untouchable(op string, d *device.Device) error {
	return &UnsupportedError{Where: c.at(op), Detail: "the process can't touch the memory of " + d.Name() +
		": windows, and what is put there or got, are of host memory"}
}

// stage is what an operation has on a device whose memory engines of the process can't touch. A nil one is none.
type stage struct {
	c        *Comm
	behind   device.Event   // what the caller's stream had
	on       *device.Stream // of copies under way; nil: there are none
	releases []func() error // of the tensors' memory, which is kept until the end
	copies   map[*tensor.Tensor]*tensor.Tensor
	pieces   *pieces // of one whose backend is at work meanwhile; or nil
	ended    bool
}

// newStage gives an operation its stage, behind what s has.
func newStage(c *Comm, o *call, s *device.Stream, async bool) error {
	x := &stage{c: c, copies: map[*tensor.Tensor]*tensor.Tensor{}}
	o.stage = x
	o.keepOriginals()
	if o.value != nil {
		o.value.Over = !async
	}
	if async && !o.Kind.PointToPoint() {
		o.Ctx = context.Background() // the caller's is for the call; a message that it ends with is withdrawn
	}
	hold := func(t *tensor.Tensor) (*tensor.Tensor, error) {
		x.releases = append(x.releases, t.Hold())
		return t, nil
	}
	return errors.Join(s.Record(&x.behind), o.Replace(hold))
}

// load replaces the tensors of an operation by copies, which have the elements of those that it reads when it returns:
// behind what the caller's stream had, with whose error it fails. A receive is posted before that is done.
func (x *stage) load(o *call) error {
	return x.abortable(o, func(ctx context.Context) (err error) {
		if o.Kind == backend.Recv {
			_, err = x.behind.Query()
		} else {
			err = awaitEvent(ctx, &x.behind)
		}
		if err != nil {
			return err
		}
		if x.pieces = x.inPieces(o); x.pieces != nil {
			return x.in(o)
		}
		return errors.Join(x.in(o), x.settle(ctx))
	})
}

// abortable runs what waits for the device, with a context that also ends when the communicator breaks.
func (x *stage) abortable(o *call, f func(context.Context) error) error {
	ctx, cancel := untilClosed(o.Ctx, x.c.b.Broken())
	defer cancel()
	err := f(ctx)
	switch cause := x.c.b.Cause(); {
	case err == nil:
	case cause != nil:
		return cause
	case o.Ctx.Err() != nil:
		return &CanceledError{Where: x.c.at(o.Kind.String()), Err: context.Cause(o.Ctx)}
	}
	return err
}

// in replaces the tensors of an operation by copies in pinned memory, and enqueues the copying of those that it reads.
func (x *stage) in(o *call) error {
	reads := append([]*tensor.Tensor{o.In, o.Reduce.FactorTensor}, o.Ins...)
	if x.source(o) {
		reads = append(reads, o.Out)
	}
	if err := o.Replace(x.copyOf); err != nil {
		return err
	}
	return x.move(reads, func(t, c device.Ptr, n int) error {
		if x.pieces != nil {
			return x.pieces.bring(t, c, n)
		}
		return x.on.Copy(c, t, n)
	})
}

// out enqueues the copying of the results to the device. Splits may leave the end of an output as it was.
func (x *stage) out(o *call) error {
	g := o.originals
	if !x.gives(o) {
		return nil
	}
	most := math.MaxInt
	if o.Kind.Operation().Splits() {
		most = 0
		for _, n := range o.OutSplits {
			most += n * g.out.DType().Size()
		}
	}
	if most == 0 {
		return nil
	}
	return x.move(append([]*tensor.Tensor{g.out}, g.outs...),
		func(t, c device.Ptr, n int) error { return x.on.Copy(t, c, min(n, most)) })
}

// gives reports whether the operation has a result on this rank that goes to the device.
func (x *stage) gives(o *call) bool {
	return o.Kind.Operation().Gives(x.c.rank, o.Root) && !x.source(o)
}

// source reports whether the output is what the rank puts in.
func (x *stage) source(o *call) bool { return o.Kind == backend.Broadcast && o.Root == x.c.rank }

// copyOf is a tensor's copy, without the elements.
func (x *stage) copyOf(t *tensor.Tensor) (*tensor.Tensor, error) {
	if c := x.copies[t]; c != nil || t.OnHost() {
		return cmp.Or(c, t), nil
	}
	c, err := tensor.EmptyPinned(x.c.dev().dev.Runtime(), t.DType(), t.Shape()...)
	if err == nil {
		x.copies[t] = c
	}
	return c, err
}

// move moves the elements of tensors that have copies, each once, by f. The tensors may have been freed: their memory
// is held.
func (x *stage) move(list []*tensor.Tensor, f func(t, c device.Ptr, n int) error) (err error) {
	done := map[*tensor.Tensor]bool{}
	for _, t := range list {
		c := x.copies[t]
		if c == nil || c.NBytes() == 0 || done[t] || err != nil {
			continue
		}
		if done[t] = true; x.on == nil {
			d := x.c.dev()
			if x.on, err = takeStream(d.dev, d.priority); err != nil {
				return err
			}
		}
		err = f(device.Ptr(uintptr(t.Pointer())), device.Ptr(uintptr(c.Pointer())), c.NBytes())
	}
	return err
}

// settle waits for the copies, and gives their stream back. If ctx ends first they go on.
func (x *stage) settle(ctx context.Context) error {
	if x.on == nil {
		return nil
	}
	err := x.on.Synchronize(ctx)
	done, failed := x.on.Query()
	if failed != nil {
		_ = x.on.Recover(context.Background()) // the same error
	}
	if done || failed != nil {
		putStream(x.on)
		x.on = nil
	}
	return err
}

// finish is due when the backend is done with the operation, which ended with err. The results go to the device, and
// then the copies go. Those of one that has failed go when nothing refers to them.
func (x *stage) finish(o *call, err error) error {
	if x == nil {
		return err
	}
	defer x.end()
	if err == nil {
		err = x.c.deviceError(o.Kind.String(), x.deliver(o))
	}
	if err != nil {
		return x.pieces.stopped(err)
	}
	for _, c := range x.copies {
		c.Free()
	}
	return nil
}

// deliver has the results go to the device, behind what the caller's stream had, and waits for that.
func (x *stage) deliver(o *call) (err error) {
	if done, failed := x.behind.Query(); done || failed != nil { // also if the communicator is broken by now
		err = failed
	} else {
		err = x.abortable(o, func(ctx context.Context) error { return awaitEvent(ctx, &x.behind) })
	}
	switch {
	case err != nil:
		return err
	case x.pieces != nil:
		return x.pieces.rest()
	}
	return errors.Join(x.out(o), x.settle(context.Background()))
}

// end gives back what the operation has, once copies that are under way are done.
func (x *stage) end() {
	if x == nil || x.ended {
		return
	}
	x.ended = true
	if x.on != nil || x.pieces.going() { // a queue of the hardware may hold them up for long
		go x.giveBack()
		return
	}
	x.giveBack()
}

func (x *stage) giveBack() {
	_ = x.settle(context.Background())
	x.pieces.end()
	for _, release := range x.releases {
		_ = release() // an error would be one of a driver that was closed
	}
	_ = x.behind.Close()
}

// executeQueued is execute for a call in the lane's queue.
func (c *Comm) executeQueued(o *call) error {
	if o.stage == nil {
		return c.execute(o)
	}
	err := c.deviceError(o.Kind.String(), o.stage.load(o))
	if err == nil {
		return c.execute(o)
	}
	if c.b.Cause() == nil {
		c.refused(o.Kind.String(), err)
	}
	return c.finish(o, err)
}
