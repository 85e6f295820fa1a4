package comm

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/fabric"
)

// pieceBytes is how much of a large operand is copied at a time: as much as takes a PCIe bus some 0.2 ms, beside which
// an event and its wait count for nothing. A backend's chunks are smaller.
var pieceBytes = 4 << 20

// pieces are the operands of a large operation that are copied while the backend is at work on those before. The floor
// is one copy down, and one up, of each byte; an event for each piece that comes, with one wait, and two waits at the
// end. A result of which the operation leaves nothing final before its end goes with one copy. Both copies in pinned
// memory are as large as the operands. The backend has one plan for the whole call, as on ranks without pieces and on
// the host, so that the bits are the same.
type pieces struct {
	*stage
	o        *call
	come     []*device.Event // by the number of the piece
	here     int             // pieces that have come
	to, from device.Ptr      // the result and its copy
	bytes    int             // of the result; 0: there's none
	gone     int             // bytes of it that are on their way
	up       *stage          // of the copies up, with a stream of its own; nil: there are none
	err      error           // of a copy up
	until    time.Time       // when the operation's time is over, from the first wait on; zero: never
}

// inPieces returns the pieces of an operation that has large operands, and whose backend heeds them; else nil.
func (x *stage) inPieces(o *call) *pieces {
	b, ok := x.c.b.(backend.Piecewise)
	if t := o.First(); t == nil || t.NBytes() <= pieceBytes || !ok || !b.InPieces(&o.Op) {
		return nil
	}
	p := &pieces{stage: x, o: o}
	o.Pieces = p
	return p
}

// bring enqueues the copying of what the operation reads, with an event behind each piece.
func (p *pieces) bring(from, to device.Ptr, n int) error {
	for at := 0; at < n; at += pieceBytes {
		e := new(device.Event)
		p.come = append(p.come, e)
		if err := errors.Join(p.on.Copy(to+device.Ptr(at), from+device.Ptr(at), min(pieceBytes, n-at)),
			p.on.Record(e)); err != nil {
			return err
		}
	}
	return nil
}

// Await implements backend.Pieces. It fails when the operation's time is over, as the backend's own waits do.
func (p *pieces) Await(bytes int) error {
	last := min((bytes+pieceBytes-1)/pieceBytes, len(p.come))
	if last <= p.here {
		return nil
	}
	if p.until.IsZero() && p.o.Timeout > 0 {
		p.until = time.Now().Add(p.o.Timeout)
	}
	err := p.abortable(p.o, func(ctx context.Context) error {
		if !p.until.IsZero() {
			var cancel context.CancelFunc
			ctx, cancel = context.WithDeadline(ctx, p.until)
			defer cancel()
		}
		err := awaitEvent(ctx, p.come[last-1])
		if err != nil && ctx.Err() == context.DeadlineExceeded {
			return fabric.ErrTimeout
		}
		return err
	})
	if err == nil {
		p.here = last
	}
	return err
}

// Final implements backend.Pieces. Whole pieces go, of what has come.
func (p *pieces) Final(bytes int) {
	if bytes = min(bytes, p.result()); len(p.come) > 0 {
		bytes = min(bytes, p.here*pieceBytes)
	}
	p.send(bytes - bytes%pieceBytes)
}

// result finds the result, and returns how many bytes it has.
func (p *pieces) result() int {
	if p.bytes == 0 && p.gives(p.o) {
		t := p.o.originals.out
		c := p.copies[t]
		p.to, p.from, p.bytes = device.Ptr(uintptr(t.Pointer())), device.Ptr(uintptr(c.Pointer())), c.NBytes()
	}
	return p.bytes
}

// send enqueues the copying of the result up to so many bytes.
func (p *pieces) send(upto int) {
	if upto <= p.gone || p.err != nil {
		return
	}
	if p.up == nil {
		d := p.c.dev()
		s, err := takeStream(d.dev, d.priority)
		if p.err = err; err != nil {
			return
		}
		p.up = &stage{c: p.c, on: s}
	}
	at := device.Ptr(p.gone)
	p.err = p.up.on.Copy(p.to+at, p.from+at, upto-p.gone)
	p.gone = upto
}

// rest has all of the result go, and waits for that, when the backend is done.
func (p *pieces) rest() error {
	err := p.settle(context.Background()) // what has come and isn't needed
	if err == nil {
		p.send(p.result())
		err = p.err
	}
	if p.up != nil {
		err = errors.Join(err, p.up.settle(context.Background()))
	}
	return err
}

// settleTime bounds how long a failed operation waits for the copies of its result.
const settleTime = time.Second

// stopped is due when the operation has failed with err. It returns when no copy writes to the result any more, which
// the caller may then reuse. If that takes too long the error says so, and the memory is kept until then.
func (p *pieces) stopped(err error) error {
	if !p.going() {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), settleTime)
	defer cancel()
	if _ = p.up.settle(ctx); !p.going() {
		return err
	}
	ranks := []int{p.c.rank}
	if e, ok := err.(*UnsettledError); ok {
		ranks = append(ranks, e.Ranks...)
		slices.Sort(ranks)
		err = e.Err
	}
	return &UnsettledError{Err: err, Ranks: ranks}
}

// going reports whether copies up may be under way. Nil pieces have none.
func (p *pieces) going() bool { return p != nil && p.up != nil && p.up.on != nil }

// end gives back what the pieces have, when copies are done.
func (p *pieces) end() {
	if p.going() {
		_ = p.up.settle(context.Background())
	}
	if p != nil {
		for _, e := range p.come {
			_ = e.Close()
		}
	}
}
