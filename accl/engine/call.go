package engine

import (
	"sync"
	"time"
	"unsafe"

	"github.com/chorus-comms/chorus/accl/abi"
)

// Call is a call under way.
type Call struct {
	abi.Call
	words      abi.Call  // as they came
	began      time.Time // guarded by the engine's lock, as comm is
	engine     *Engine
	controller *Controller
	comm       *communicator
	path       *datapath
	status     abi.Status
	streamed   bool // an operand is a stream
	cycles     uint64
	waiter     waiter
	wait       func(<-chan struct{}) error // how the caller that runs it waits; nil if a goroutine runs it

	done     chan struct{}
	dropped  chan struct{} // closed when the call is to end
	dropOnce sync.Once

	scratch [2][]byte
	tail    []byte // of a message that isn't full yet
	header  abi.Header
	puts    uint32 // messages of the instruction to a stream
	dst     [1]unsafe.Pointer
	src     [2]unsafe.Pointer
}

// Done is closed when the call is done.
func (c *Call) Done() <-chan struct{} { return c.done }

// Wait waits for the call and returns its status.
func (c *Call) Wait() abi.Status {
	<-c.done
	return c.status
}

// Cycles says how long the call has taken, when it's done.
func (c *Call) Cycles() uint64 { return c.cycles }

// Drop ends the call, whatever it waits for, with NotReady: as a reset does, which drops all. It returns at once.
func (c *Call) Drop() {
	c.dropOnce.Do(func() {
		close(c.dropped)
		x := &c.engine.inbox
		x.mu.Lock()
		c.waiter.wake()
		x.mu.Unlock()
		if c.controller.withdraw(c) { // else it would be done only when those before it are
			c.fail(abi.NotReady)
			c.finish(time.Now())
		}
	})
}

// fail notes an error. The call moves no more data.
func (c *Call) fail(s abi.Status) { c.status |= s }

func (c *Call) ok() bool { return c.status == 0 }

// run carries the call out.
func (c *Call) run() {
	start := time.Now()
	c.engine.mu.Lock()
	c.began = start
	c.engine.mu.Unlock()
	select {
	case <-c.dropped:
		c.fail(abi.NotReady)
	default:
		c.dispatch()
	}
	c.finish(start)
}

func (c *Call) finish(start time.Time) {
	e := c.engine
	c.cycles = uint64(time.Since(start)) / abi.CycleNS
	e.mu.Lock()
	delete(e.calls, c)
	e.remember(c)
	c.comm = nil
	e.mu.Unlock()
	e.exch.store(abi.PerfCounter, uint32(c.cycles))
	e.exch.store(abi.ReturnValue, uint32(c.status))
	c.path, c.scratch, c.tail = nil, [2][]byte{}, nil
	close(c.done)
}

// needs says what of a call's words a scenario looks at.
type needs uint8

const (
	needsComm needs = 1 << iota
	needsPath
	needsRoot
)

// program is what the firmware does for a scenario.
type program struct {
	run   func(*Call)
	needs needs
}

var firmware map[abi.Scenario]program

func init() {
	firmware = map[abi.Scenario]program{
		abi.Config:        {(*Call).config, 0},
		abi.Copy:          {(*Call).copy, needsPath},
		abi.Combine:       {(*Call).combine, needsPath},
		abi.Send:          {(*Call).send, needsComm | needsPath | needsRoot},
		abi.Recv:          {(*Call).recv, needsComm | needsPath | needsRoot},
		abi.Bcast:         {(*Call).bcast, needsComm | needsPath | needsRoot},
		abi.Scatter:       {(*Call).scatter, needsComm | needsPath | needsRoot},
		abi.Gather:        {(*Call).gather, needsComm | needsPath | needsRoot},
		abi.Reduce:        {(*Call).reduce, needsComm | needsPath | needsRoot},
		abi.Allgather:     {(*Call).allgather, needsComm | needsPath},
		abi.Allreduce:     {(*Call).allreduce, needsComm | needsPath},
		abi.ReduceScatter: {(*Call).reduceScatter, needsComm | needsPath},
		abi.Barrier:       {(*Call).barrier, needsComm},
		abi.Alltoall:      {(*Call).alltoall, needsComm | needsPath},
		abi.Nop:           {func(*Call) {}, 0},
	}
}

// maxStreamed is how many bytes of a rank a call takes from a stream, or gives to one, at most.
const maxStreamed = 1 << 30

func (c *Call) dispatch() {
	f, known := firmware[c.Scenario]
	if !known {
		c.fail(abi.CollectiveNotImplemented)
		return
	}
	if f.needs&needsComm != 0 {
		comm := c.engine.communicator(c.Comm)
		c.engine.mu.Lock()
		c.comm = comm
		c.engine.mu.Unlock()
		if c.comm == nil || f.needs&needsRoot != 0 && int64(c.Root) >= int64(c.comm.size()) {
			c.fail(abi.CollectiveNotImplemented)
			return
		}
	}
	if c.Scenario != abi.Send && c.Scenario != abi.Recv {
		c.Tag = abi.TagAny // of the messages of a collective, whatever its words say
	}
	if f.needs&needsPath != 0 {
		var bad abi.Status
		if c.path, bad = c.engine.datapath(c.ArithConfig); bad != 0 {
			c.fail(bad)
			return
		}
	}
	if c.Stream != 0 {
		if c.path != nil && uint64(c.Count)*uint64(c.path.size(false)) > maxStreamed {
			c.fail(abi.DMASize)
			return
		}
		c.streamed = true
		defer c.stage()()
	}
	f.run(c)
}

// rendezvous reports whether so many elements of each rank go by rendezvous. All ranks come to the same answer.
func (c *Call) rendezvous(count int) bool {
	return c.canRendezvous() && uint64(count)*uint64(c.path.size(false)) > uint64(c.engine.maxEager.Load())
}

// canRendezvous reports whether elements may go by rendezvous, however few they are.
func (c *Call) canRendezvous() bool {
	return c.engine.cfg.Protocol == abi.RDMA && c.Compression == 0 && !c.streamed
}

// direct reports whether all ranks' engines are Chorus's, and may reduce as ACCL's can't.
func (c *Call) direct() bool { return c.size() <= int(c.engine.exch.load(abi.DirectMaxRanks)) }

// ranks of a call, as loops name them.
func (c *Call) me() int         { return c.comm.Local }
func (c *Call) size() int       { return c.comm.size() }
func (c *Call) after(n int) int { return ((c.me()+n)%c.size() + c.size()) % c.size() }
func (c *Call) root() int       { return int(c.Root) }
func (c *Call) others() int     { return c.size() - 1 }
func (c *Call) count() int      { return int(c.Count) }
func (c *Call) isRoot() bool    { return c.me() == c.root() }

// other is the i-th of the ranks without this one, in their order.
func (c *Call) other(i int) int {
	if i < c.me() {
		return i
	}
	return i + 1
}
