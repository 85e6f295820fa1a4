package accl

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/chorus-comms/chorus/accl"
	"github.com/chorus-comms/chorus/accl/abi"
	"github.com/chorus-comms/chorus/accl/engine"
	"github.com/chorus-comms/chorus/accl/wire"
	"github.com/chorus-comms/chorus/bootstrap"
	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/comm/backend/base"
	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/observe/record"
	"github.com/chorus-comms/chorus/store"
)

// Name is the name under which the backend is registered.
const Name = "accl"

func init() { backend.Register(Name, open, compress) }

func open(ctx context.Context, c backend.Config) (backend.Backend, error) {
	b, err := begin(ctx, c)
	if err != nil {
		return nil, err
	}
	return b, nil
}

// rank is a rank's part of a communicator, whose operations its engine carries out.
type rank struct {
	*base.Runner
	link *link
}

// Traffic implements backend.TrafficCounter. It has the collectives of the engine for all communicators of the rank.
func (x *rank) Traffic() backend.Traffic {
	t := x.Runner.Traffic()
	if n := x.link.count.Load(); x.link.staged {
		t.Staged += n
	} else {
		t.Mapped += n
	}
	return t
}

// EngineCalls implements record.Engines.
func (x *rank) EngineCalls() []record.EngineCall { return x.link.calls(x.Number()) }

// Split implements backend.Backend.
func (x *rank) Split(ctx context.Context, name string, list []int, timeout time.Duration,
	hints map[string]string) (backend.Backend, error) {
	b, err := x.Runner.Split(ctx, name, list, timeout, hints)
	if part, ok := b.(*base.Runner); ok {
		b = &rank{part, x.link}
	}
	return b, err
}

// begin begins a rank's part of the communicator of all ranks.
func begin(ctx context.Context, c backend.Config) (*rank, error) {
	o, err := optionsOf(c.Hints)
	if err == nil && c.Size > maxWorld {
		err = fmt.Errorf("a world of %d; %s has a stream for each of %d ranks at most", c.Size, Name, maxWorld)
	}
	at := backend.Where{Comm: c.Name, Reporter: c.Rank, Op: "new"}
	if err != nil {
		return nil, &backend.InvalidArgumentError{Where: at, Detail: err.Error()}
	}
	if o.card != "" {
		return nil, &backend.UnsupportedError{Where: at, Detail: onCard(o.card)}
	}
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	l, err := connect(ctx, &c, o)
	if err != nil {
		return nil, err
	}
	if c.Size > 1 { // an engine that is being set up forgets what has come
		if o.emulator > 0 {
			_, err = c.Exchange(ctx, nil)
		} else {
			_, err = bootstrap.Exchange(ctx, store.NewPrefix("ready", c.Store), c.Rank, c.Size, nil)
		}
		if err != nil {
			l.shut(err)
			return nil, err
		}
	}
	return &rank{base.NewRunner(c, base.RunnerConfig{Fabric: l, Own: l.own, Memory: l.memory,
		Capabilities: backend.Capabilities{Name: Name, Devices: []string{"cpu"}, Windows: true, SharedMem: l.shares(),
			Abort: true, AnySource: true, Tags: true, InProcess: true, MaxWorld: maxWorld}}), l}, nil
}

// connect sets up this rank's engine in the network of all.
func connect(ctx context.Context, c *backend.Config, o options) (*link, error) {
	if o.emulator > 0 {
		return dial(ctx, c, o)
	}
	net, err := meet(ctx, c, o)
	if err != nil {
		return nil, err
	}
	session := uint32(c.Rank)
	l := newLink(c.Rank, c.Size)
	l.leave, l.network, l.staged = net.leave, net.network, o.config.Staged
	lost := func(peer uint32, cause error) {
		if errors.Is(cause, fabric.ErrLeft) {
			l.Match.Left(int(peer))
		} else {
			l.Match.Lost(int(peer), cause)
		}
	}
	e := engine.New(engine.Config{Session: session, Protocol: o.protocol, Network: net.network, Lost: lost})
	l.engine = e
	net.attach(e, lost)
	o.place(c)
	if l.driver, err = accl.New(ctx, accl.InProcess(e), o.config); err != nil {
		l.leave(err)
		e.Close()
		return nil, err
	}
	l.driver.Device().Attach(l.arrive)
	return l, nil
}

// place says in the driver's configuration which engines there are.
func (o *options) place(c *backend.Config) {
	o.config.Local = c.Rank
	o.config.ArithConfigs = map[abi.Types]abi.ArithConfig{{Uncompressed: abi.Int8, Compressed: abi.Int8}: abi.Bytes}
	for r := range uint32(c.Size) {
		rank := abi.Rank{IP: 0x7F000001, Session: r, MaxSegmentSize: uint32(o.segment)}
		if o.emulator > 0 {
			rank.Port = uint32(o.emulator) + r
		}
		o.config.Ranks = append(o.config.Ranks, rank)
	}
}

// dial sets up this rank's engine behind the sockets of an emulator.
func dial(ctx context.Context, c *backend.Config, o options) (*link, error) {
	dev, err := wire.Dial(ctx, c.Size, c.Rank, o.emulator)
	if err != nil {
		return nil, err
	}
	l := newLink(c.Rank, c.Size)
	l.leave, l.staged = func(error) {}, true
	o.place(c)
	if l.driver, err = accl.New(ctx, dev, o.config); err != nil {
		return nil, errors.Join(err, dev.Close())
	}
	dev.Attach(l.arrive)
	dev.OnGone(l.Match.Close)
	dev.Watch(l.Match.Lost)
	// There's no signal that the engine's kernel has this rank as a subscriber: it has once a message arrives that the
	// rank sends itself.
	for range time.Tick(10 * time.Millisecond) {
		if err = l.put(c.Rank, hello, fabric.Key{}, &fabric.Desc{}, nil); err == nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			return nil, errors.Join(err, l.driver.Close())
		}
		if l.heard.Load() {
			break
		}
	}
	return l, nil
}

// shut ends this rank's part without a message to the others.
func (l *link) shut(cause error) {
	l.leave(cause)
	l.driver.Close()
}

var _ fabric.Messenger = (*link)(nil)
