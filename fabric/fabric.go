package fabric

import (
	"cmp"
	"context"
	"runtime"
	"time"
	"unsafe"

	"github.com/chorus-comms/chorus/secure"
)

// Fabric is one rank's links to the other ranks of a job: all that a fabric must have. All methods may be
// called from any goroutine.
type Fabric interface {
	// Rank and Size place this rank; they never change.
	Rank() int
	Size() int

	// Send posts m.Buf to m.Peer and returns at once. The buffer may not be
	// written until m is done. A message to oneself is allowed.
	Send(m *Msg)
	// Recv posts a receive of at most m.Len bytes from m.Peer, which may be
	// AnySource, into m.Buf. The buffer may not be touched until m is done.
	// Shorter messages are allowed (m.N tells); a longer one is refused with
	// *TruncatedError and leaves the buffer as it was. Messages still to come from, or
	// go to, a peer that died or closed fail with *PeerError. In the class Collective a message
	// whose description isn't its receive's is refused with *MismatchError.
	Recv(m *Msg)
	// Wait drives progress until m is done, and returns m.Err; or returns w's
	// reason to give up, with m still posted.
	Wait(m *Msg, w *Waiter) error
	// Cancel withdraws a message. If it's already under way, Cancel waits until
	// the fabric no longer touches its buffer. Afterwards m is done.
	Cancel(m *Msg)

	// Close says goodbye to the peers and frees all resources. Messages still
	// posted complete with ErrClosed. A peer that closes is not lost.
	Close(ctx context.Context) error
}

// Announcer is a Fabric that reports events outside of posted messages. The Matcher of package transport does it for
// a fabric.
type Announcer interface {
	Fabric
	// Handle installs the receiver of events. It must be called before the
	// first Send, Recv or Space.
	Handle(h Handler)
	// Announce says which collective a communicator is in: a message of another
	// operation under the same number is then reported to the Handler even if
	// nothing is posted that it would match. Announced returns what was said of one of the
	// communicator's last operations, 256 at least. Forget ends a communicator.
	Announce(comm uint32, tag uint64, desc *Desc)
	Announced(comm uint32, tag uint64) (desc Desc, known bool)
	Forget(comm uint32)
}

// Messenger is an Announcer with a way for control payloads beside that of messages. transport.Extend makes one of any
// Fabric, whose control payloads are messages like others.
type Messenger interface {
	Announcer
	// Control sends a small out-of-band payload (at most MaxControl bytes) to
	// the peer's Handler. It doesn't wait for the peer and overtakes posted messages
	// where it can. Close doesn't withdraw it.
	Control(peer int, payload []byte) error
}

// Sharer is implemented by fabrics whose ranks of one host share memory.
type Sharer interface {
	// Hosts returns for each rank the number of its host, as plan.Topology
	// defines it; ranks with equal numbers share memory.
	Hosts() []int
	// Space opens the shared memory of communicator comm for members, which are
	// ascending ranks of this host including this one. Every member must call
	// it with equal arguments. stageBytes of scratch are set up per member.
	Space(ctx context.Context, comm uint32, members []int, stageBytes int) (*Space, error)
}

// Placer is implemented by fabrics that know where memory lies that peers can map.
type Placer interface {
	// Place returns the place of n bytes at p, or the zero Place if peers cannot
	// map all of them. It doesn't allocate.
	Place(p unsafe.Pointer, n int) Place
}

// Connector is implemented by fabrics that connect two ranks when the first message between them is sent.
type Connector interface {
	// Connect begins to connect to a peer, or to all of them for AnySource, unless there is a link already. It returns
	// at once. A wait calls it for the peer of its message: without a link the peer's death would go unnoticed.
	Connect(peer int)
}

// Handler receives what happens outside of posted messages. Its methods are
// called on the fabric's goroutines and must not block.
type Handler interface {
	// PeerLost reports that a peer died or its link broke. Called at most once per peer.
	PeerLost(peer int, err error)
	// PeerLeft reports that a peer has closed its fabric, which isn't a fault. Called at most once per peer, and not
	// after PeerLost.
	PeerLeft(peer int)
	// Mismatch reports that peer sent a collective message whose description
	// differs from what this rank announced under the same key.
	Mismatch(peer int, key Key, local, remote Desc)
	// Control delivers a payload sent by the peer's Control. The slice is the handler's.
	Control(peer int, payload []byte)
}

// MaxControl is the largest control payload in bytes.
const MaxControl = 4096

// Config is what a fabric needs to open its links.
type Config struct {
	Rank, Size int
	// Exchange gives every rank's payload to every rank, in rank order. It
	// returns an error that names the missing ranks if they don't appear in time.
	Exchange func(ctx context.Context, payload []byte) ([][]byte, error)
	// HostID identifies the memory domain of this rank: equal for ranks that can share memory.
	HostID string
	// Cores is how many cores the ranks of this host may use together, which may be bound to different ones; 0: as many
	// as this process.
	Cores int
	// Rendezvous is a host name or address that the route to the peers is chosen by; may be empty.
	Rendezvous string
	// Security protects the links that leave the process: a connecting rank proves that it knows the job's secret,
	// where there is one.
	Security secure.Policy
	// Timeout bounds opening and every connect; 0 means DefaultTimeout.
	Timeout time.Duration
	// Options are the fabric's own settings, by name; an unknown name is an error.
	Options map[string]string
	// Defaults are settings for whichever fabric has them: those that this one doesn't know are left out, and Options
	// win.
	Defaults map[string]string
}

// HostCores returns Cores, or what it is by default.
func (c Config) HostCores() int { return cmp.Or(c.Cores, runtime.NumCPU()) }

// DefaultTimeout bounds what has no deadline of its own.
const DefaultTimeout = 600 * time.Second
