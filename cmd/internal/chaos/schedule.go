package chaos

import (
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/internal/wire"
)

// A virtual round nearly repeats from its seed: one processor runs all its goroutines, nothing is collected meanwhile,
// and the order of arrival is drawn. Two timers of one instant, and a select of which two cases are ready, are still
// the runtime's to decide.

// alone makes the process one that carries out virtual rounds, and returns what is to be called between two of them.
func alone() (between func()) {
	runtime.GOMAXPROCS(1)
	debug.SetGCPercent(-1)
	rounds := 0
	return func() {
		if rounds++; rounds%roundsPerCollection == 0 {
			runtime.GC()
		}
	}
}

// roundsPerCollection bounds the garbage of a process that carries out virtual rounds to a few hundred megabytes.
const roundsPerCollection = 64

// drawn returns number n of those that a rank draws while it carries out its part; at least 0. what tells apart what
// they are for.
func (in *injector) drawn(what, n uint64) int {
	h := wire.HashStart
	for _, v := range [...]uint64{in.p.Seed, uint64(in.rank), what, n} {
		h = wire.HashAdd(h, v)
	}
	return int(h >> 33)
}

const (
	drawnArrival = iota
	drawnTurn
)

// arrive lets a rank of a virtual round come to step k at a nanosecond of its own: without that all come to it at the
// same instant, and with them their deadlines.
func (in *injector) arrive(k int) {
	time.Sleep(time.Duration(in.drawn(drawnArrival, uint64(k))%32*in.p.Size + in.rank + 1))
}

// restless is a rank's fabric mem that yields to other goroutines in the middle of its calls, at moments that depend on
// the seed. A fault.Wrap goes around it, so that it yields between the steps of that one, too.
type restless struct {
	fabric.Messenger
	fabric.Placer
	fabric.Sharer
	in    *injector
	calls atomic.Uint64
}

// turn lets the others have a turn, or several.
func (f *restless) turn() {
	if f.in.p.Unrest == 0 {
		return
	}
	for n := f.in.drawn(drawnTurn, f.calls.Add(1)) % 16; n > 0 && n <= f.in.p.Unrest; n-- {
		runtime.Gosched()
	}
}

// Send implements fabric.Fabric.
func (f *restless) Send(m *fabric.Msg) {
	f.turn()
	f.Messenger.Send(m)
}

// Recv implements fabric.Fabric.
func (f *restless) Recv(m *fabric.Msg) {
	f.turn()
	f.Messenger.Recv(m)
}

// Wait implements fabric.Fabric.
func (f *restless) Wait(m *fabric.Msg, w *fabric.Waiter) error {
	err := f.Messenger.Wait(m, w)
	f.turn()
	return err
}

// Cancel implements fabric.Fabric.
func (f *restless) Cancel(m *fabric.Msg) {
	f.turn()
	f.Messenger.Cancel(m)
}

// Control implements fabric.Messenger.
func (f *restless) Control(peer int, payload []byte) error {
	f.turn()
	return f.Messenger.Control(peer, payload)
}

// Kill ends the rank as a crash does.
func (f *restless) Kill(cause error) {
	f.Messenger.(interface{ Kill(cause error) }).Kill(cause)
}
