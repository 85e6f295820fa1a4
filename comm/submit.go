package comm

import (
	"github.com/chorus-comms/chorus/comm/backend"
)

// Op is an operation as a value, for Submit.
type Op = backend.Op

// Submit runs an operation that is given as a value, or issues it if w is not nil. It does what the
// method of that kind does, for programs that get operations as data, such as bindings to other
// languages. The caller sets Kind and the fields that the kind uses. Ctx nil, Timeout 0 and Hints
// nil mean the communicator's; other Hints are added to the communicator's. Splits count rows, as
// in AllToAllVSingle.
//
// op belongs to the operation until it's done; then Seq, From and Algorithm are
// set. A synchronous Submit allocates nothing, unless there are hints, or a device's engine is to go on with it; Over
// says that none is.
func (c *Comm) Submit(op *Op, w *Work) error {
	if !op.Kind.Valid() {
		return c.invalid("submit", "there is no operation %d", op.Kind)
	}
	if op.Kind.PointToPoint() {
		r := c.message(op.Ctx, op.Kind, nil)
		c.adopt(&r.only, op, w)
		return c.pointToPoint(r)
	}
	o := c.begin()
	c.adopt(o, op, w)
	return c.collective(op.Ctx, op.Kind, o, nil)
}

// adopt fills a call from an operation. Fields that its kind doesn't use are dropped, and so are the root's
// elsewhere, so that no code further down looks at one by mistake.
func (c *Comm) adopt(o *call, op *Op, w *Work) {
	o.value, o.Stream, o.work, op.Over = op, op.Stream, w, false
	row := op.Kind.Operation()
	if row.Root {
		o.Root = op.Root
	}
	if row.Peer {
		o.Peer, o.Tag, o.Op.From = op.Peer, op.Tag, op.From
	}
	if row.Reduces {
		o.Reduce = op.Reduce
	}
	if row.Takes(c.rank, o.Root) {
		if row.In == backend.List {
			o.Ins = op.Ins
		} else {
			o.In = op.In
		}
	}
	if row.Gives(c.rank, o.Root) {
		if row.Out == backend.List {
			o.Outs = op.Outs
		} else {
			o.Out = op.Out
		}
	}
	if row.Splits() {
		o.InSplits, o.OutSplits = op.InSplits, op.OutSplits
	}
	if op.Timeout != 0 {
		o.Timeout = op.Timeout
	}
	o.Site = op.Site
	if op.Hints != nil { // going over a map takes a while even if there's none
		if h := c.hints.Load(); h != nil && o.Hints == nil {
			o.Hints = *h
		}
		for k, v := range op.Hints {
			Hint(k, v)(o)
		}
	}
}

// report passes on how a call has ended: to the value that was given to Submit, to what From names, and to the rank's
// dump.
func (c *Comm) report(o *call, err error) {
	if o.value != nil {
		o.value.Seq, o.value.From, o.value.Algorithm = o.Seq, o.Op.From, o.Op.Algorithm
	}
	if o.from != nil && err == nil {
		*o.from = o.Op.From
	}
	if err != nil {
		c.failed(err)
	}
}
