package accl

import (
	"context"
	"fmt"

	"github.com/chorus-comms/chorus/accl/abi"
)

// Option changes a call.
type Option func(*call)

// call is one that is being made.
type call struct {
	words    abi.Call
	comm     *Communicator
	queue    Queue // instead of the communicator's
	compress abi.DataType
	from, to bool // operands are on the device, results stay there
	async    **Request
	wait     func(<-chan struct{}) error
	after    []*Request
	ins      []*Buffer
	outs     []*Buffer
}

// On makes a call one of a communicator.
func On(c *Communicator) Option { return func(x *call) { x.comm = c } }

// Tag marks a message. Without it any tag will do.
func Tag(tag uint32) Option { return func(x *call) { x.words.Tag = tag } }

// Compress sends elements in a smaller type.
func Compress(t abi.DataType) Option { return func(x *call) { x.compress = t } }

// FromDevice says that the operands are up to date on the device.
func FromDevice() Option { return func(x *call) { x.from = true } }

// ToDevice says that the results are wanted on the device alone.
func ToDevice() Option { return func(x *call) { x.to = true } }

// Async has a call return when it has begun; what is left of it is the Request's.
func Async(r **Request) Option { return func(x *call) { x.async = r } }

// Waits says how the caller of a synchronous call waits for what a channel's closing tells. The call is dropped when
// that returns an error, and the engine of this process, which has nothing else to do, may use the caller's goroutine.
// The call's context isn't looked at.
func Waits(wait func(<-chan struct{}) error) Option { return func(x *call) { x.wait = wait } }

// After has a call begin when some others are done.
func After(r ...*Request) Option { return func(x *call) { x.after = append(x.after, r...) } }

// side is an operand and what a call does with it.
type side struct {
	operand  Operand
	slot     int // address: 0, 1 or 2
	blocks   int // of count elements; 0: it isn't looked at
	in, out  bool
	small    abi.CompressionFlags
	stream   abi.StreamFlags
	hostFlag abi.HostFlags
}

// given is the operand; nil if it's a buffer that isn't there.
func given(o Operand) Operand {
	if b, ok := o.(*Buffer); ok && b == nil {
		return nil
	}
	return o
}

func op0(o Operand, blocks int) side {
	return side{operand: given(o), slot: 0, blocks: blocks, in: true, small: abi.Op0Compressed, stream: abi.Op0Stream,
		hostFlag: abi.Op0Host}
}

func op1(o Operand) side {
	return side{operand: given(o), slot: 1, blocks: 1, in: true, small: abi.Op1Compressed, hostFlag: abi.Op1Host}
}

func res(o Operand, blocks int) side {
	return side{operand: given(o), slot: 2, blocks: blocks, out: true, small: abi.ResCompressed, stream: abi.ResStream,
		hostFlag: abi.ResHost}
}

// begin makes a call of some operands.
func (d *Driver) begin(ctx context.Context, scenario abi.Scenario, count, root int, sides []side, opts []Option) error {
	c := &call{comm: d.world}
	c.words = abi.Call{Scenario: scenario, Count: uint32(count), Root: uint32(root), Tag: abi.TagAny}
	for _, o := range opts {
		o(c)
	}
	return d.prepared(ctx, c, sides)
}

// prepared fills the words of a call from its operands, and starts it.
func (d *Driver) prepared(ctx context.Context, c *call, sides []side) error {
	w := &c.words
	bad := func(format string, args ...any) error {
		return fmt.Errorf("accl: %v: %s", w.Scenario, fmt.Sprintf(format, args...))
	}
	if int(w.Root) >= c.comm.size {
		return bad("rank %d of %d", int32(w.Root), c.comm.size)
	}
	if int32(w.Count) < 0 {
		return bad("%d elements", int32(w.Count))
	}
	if w.Scenario == abi.Barrier {
		return d.start(ctx, c)
	}
	if err := d.compression(c, sides); err != nil {
		return bad("%v", err)
	}
	for _, s := range sides {
		if s.operand == nil || s.blocks == 0 {
			if s.blocks > 0 {
				return bad("operand %d is missing", s.slot)
			}
			continue
		}
		b, isBuffer := s.operand.(*Buffer)
		if !isBuffer {
			if s.stream == 0 {
				return bad("operand %d can't be a stream", s.slot)
			}
			w.Stream |= s.stream
			continue
		}
		if b.Len() < s.blocks*int(w.Count) {
			return bad("operand %d has %d elements; it takes %d", s.slot, b.Len(), s.blocks*int(w.Count))
		}
		w.Addr[s.slot] = b.addr
		if b.at.Host {
			w.Host |= s.hostFlag
		}
		part := b.Slice(0, s.blocks*int(w.Count))
		if s.in {
			c.ins = append(c.ins, part)
		}
		if s.out {
			c.outs = append(c.outs, part)
		}
	}
	if w.Count == 0 {
		return d.nothing(c)
	}
	return d.start(ctx, c)
}

// compression chooses the arithmetic configuration, and says which operands have the smaller type.
func (d *Driver) compression(c *call, sides []side) error {
	var types []abi.DataType
	for _, s := range sides {
		if s.operand == nil {
			continue
		}
		if t := s.operand.dataType(); len(types) == 0 || t != types[0] && (len(types) == 1 || t != types[1]) {
			types = append(types, t)
		}
	}
	var pair abi.Types
	switch {
	case len(types) == 0:
		return fmt.Errorf("no operands")
	case len(types) > 2:
		return fmt.Errorf("operands of %v", types)
	case len(types) == 2 && types[0].Size() < types[1].Size():
		pair = abi.Types{Uncompressed: types[1], Compressed: types[0]}
	case len(types) == 2:
		pair = abi.Types{Uncompressed: types[0], Compressed: types[1]}
	case c.compress != abi.None:
		pair = abi.Types{Uncompressed: types[0], Compressed: c.compress}
	default:
		pair = abi.Types{Uncompressed: types[0], Compressed: types[0]}
	}
	if c.compress != abi.None {
		if pair.Compressed != c.compress {
			return fmt.Errorf("operands of %v can't go over the wire as %v", types, c.compress)
		}
		if pair.Compressed != pair.Uncompressed {
			c.words.Compression |= abi.EthCompressed
		}
	}
	at, known := d.config[pair]
	if !known {
		return fmt.Errorf("the engine has no way from %v to %v", pair.Uncompressed, pair.Compressed)
	}
	c.words.ArithConfig = at
	if pair.Compressed != pair.Uncompressed {
		for _, s := range sides {
			if s.operand != nil && s.operand.dataType() == pair.Compressed {
				c.words.Compression |= s.small
			}
		}
	}
	return nil
}
