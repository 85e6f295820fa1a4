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

// Which fields of an Op a kind uses.
const (
	usesIn = 1 << iota
	usesOut
	usesIns
	usesOuts
	usesRoot
	usesPeer
	usesReduce
	usesSplits
)

var uses = [...]uint8{
	backend.Send: usesIn | usesPeer, backend.Recv: usesOut | usesPeer,
	backend.Broadcast: usesOut | usesRoot, backend.AllReduce: usesIn | usesOut | usesReduce, backend.Reduce: usesIn | usesOut | usesRoot | usesReduce,
	backend.AllGather: usesIn | usesOuts, backend.AllGatherSingle: usesIn | usesOut, backend.AllGatherV: usesIn | usesOuts,
	backend.ReduceScatter: usesIns | usesOut | usesReduce, backend.ReduceScatterSingle: usesIn | usesOut | usesReduce, backend.ReduceScatterV: usesIns | usesOut | usesReduce,
	backend.AllToAll: usesIns | usesOuts, backend.AllToAllSingle: usesIn | usesOut, backend.AllToAllVSingle: usesIn | usesOut | usesSplits,
	backend.Barrier: 0, backend.Scatter: usesIns | usesOut | usesRoot, backend.Gather: usesIn | usesOuts | usesRoot, backend.GatherSingle: usesIn | usesOut | usesRoot,
}

// adopt fills a call from an operation. What its kind doesn't use is dropped, and so is what only the root uses elsewhere: nobody
// further down looks at a field by mistake.
func (c *Comm) adopt(o *call, op *Op, w *Work) {
	o.value, o.work = op, w
	u := uses[op.Kind]
	if u&usesIn != 0 {
		o.In = op.In
	}
	if u&usesOut != 0 {
		o.Out = op.Out
	}
	if u&usesIns != 0 {
		o.Ins = op.Ins
	}
	if u&usesOuts != 0 {
		o.Outs = op.Outs
	}
	if u&usesRoot != 0 {
		o.Root = op.Root
	}
	if u&usesPeer != 0 {
		o.Peer, o.Tag = op.Peer, op.Tag
	}
	if u&usesReduce != 0 {
		o.Reduce = op.Reduce
	}
	if u&usesSplits != 0 {
		o.InSplits, o.OutSplits = op.InSplits, op.OutSplits
	}
	if op.Timeout != 0 {
		o.Timeout = op.Timeout
	}
	o.Site = op.Site
	if op.Hints != nil { // going over a map takes a while even if there's none
		for k, v := range op.Hints {
			Hint(k, v)(o)
		}
	}
	if c.rank == o.Root {
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
	polling := false
	defer func() {
		if polling {
			value := recover()
			c.panicked(o.Kind.String(), nil, value)
			<-w.done
			if value != nil {
				panic(value)
			}
		}
	}()
	for {
		select {
		case <-w.done:
			return w.err
		case <-tick.C:
			polling = true
			err := p.Poll()
			polling = false
			if err != nil {
				c.Abort(err)
				<-w.done
				return w.err
			}
		}
	}
}
