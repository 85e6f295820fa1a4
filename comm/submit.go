package comm

import (
	"time"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/fabric"
)

// Op is an operation as a value, for Submit.
type Op = backend.Op

// Submit runs an operation that is given as a value, or issues it if w is not
// nil: what the method of its kind does, for programs that get operations as data,
// such as bindings to other languages. The caller sets Kind and the fields that
// the kind uses; Ctx nil, Timeout 0 and Hints nil mean the communicator's, and
// other Hints come on top of these. Splits count rows, as in AllToAllVSingle.
//
// op belongs to the operation until it's done; then Seq, From and Algorithm are
// set. A synchronous Submit allocates nothing, unless there are hints.
func (c *Comm) Submit(op *Op, w *Work) error {
	if op.Kind < backend.Send || op.Kind > backend.GatherSingle {
		return c.invalid("submit", "there is no operation %d", op.Kind)
	}
	if op.Kind.PointToPoint() {
		o := c.transfer(op.Ctx, op.Kind, nil)
		c.adopt(o, op, w)
		return c.pointToPoint(o)
	}
	o := c.begin(op.Ctx, op.Kind, nil)
	c.adopt(o, op, w)
	return c.collective(o)
}

// adopt fills a call from an operation; what only the root uses is dropped elsewhere.
func (c *Comm) adopt(o *call, op *Op, w *Work) {
	o.value, o.work = op, w
	o.In, o.Out, o.Ins, o.Outs = op.In, op.Out, op.Ins, op.Outs
	o.Root, o.Peer, o.Tag, o.Reduce = op.Root, op.Peer, op.Tag, op.Reduce
	o.InSplits, o.OutSplits = op.InSplits, op.OutSplits
	if op.Timeout != 0 {
		o.Timeout = op.Timeout
	}
	for k, v := range op.Hints {
		Hint(k, v)(o)
	}
	if o.Hints != nil {
		o.Algo = o.Hints["algorithm"]
	}
	if c.rank == op.Root {
		return
	}
	switch op.Kind {
	case backend.Reduce, backend.GatherSingle:
		o.Out = nil
	case backend.Gather:
		o.Outs = nil
	case backend.Scatter:
		o.Ins = nil
	}
}

// report gives the results of an operation to whoever passed it to Submit.
func (o *call) report() {
	if o.value != nil {
		o.value.Seq, o.value.From, o.value.Algorithm = o.Seq, o.Op.From, o.Op.Algorithm
	}
}

// attend waits for a synchronous collective that had to queue. Its turn comes when
// those before it are done, so that giving it up means giving up the communicator.
func (c *Comm) attend(o *call, w *Work) error {
	p, ok := o.Ctx.(fabric.Poller)
	if !ok {
		<-w.done
		return w.err
	}
	tick := time.NewTicker(fabric.PollInterval)
	defer tick.Stop()
	for {
		select {
		case <-w.done:
			return w.err
		case <-tick.C:
			if err := p.Poll(); err != nil {
				c.Abort(err)
				<-w.done
				return w.err
			}
		}
	}
}
