package transport

import (
	"maps"

	"github.com/chorus-comms/chorus/fabric"
)

// This file is what a Matcher knows of its peers, and tells its Handler.

// Handle installs the receiver of mismatches, losses and control payloads, and
// passes it the events from before there was one.
func (x *Matcher) Handle(h fabric.Handler) {
	x.mu.Lock()
	first := x.handler == nil
	x.handler = h
	controls := x.controls
	x.controls = nil
	lost := maps.Clone(x.lost)
	x.mu.Unlock()
	if h == nil || !first {
		return
	}
	for _, c := range controls {
		h.Control(c.from, c.payload)
	}
	for peer, err := range lost {
		tell(h, peer, err)
	}
}

// tell passes a peer's end to a handler.
func tell(h fabric.Handler, peer int, err error) {
	if e, ok := err.(*fabric.PeerError); ok && e.Err == fabric.ErrLeft {
		h.PeerLeft(peer)
		return
	}
	h.PeerLost(peer, err)
}

type control struct {
	from    int
	payload []byte
}

// maxEarlyControls bounds what is kept for a handler that isn't there yet.
const maxEarlyControls = 4096

// Control passes a control payload, which is the handler's from then on, or
// keeps it until there is a handler.
func (x *Matcher) Control(from int, payload []byte) {
	x.mu.Lock()
	h := x.handler
	if h == nil && x.closed == nil && len(x.controls) < maxEarlyControls {
		x.controls = append(x.controls, control{from, payload})
	}
	x.mu.Unlock()
	if h != nil {
		h.Control(from, payload)
	}
}

// Lost fails all receives that wait for the peer, and those posted later. The
// handler is called once. Messages that have arrived whole can still be received.
func (x *Matcher) Lost(peer int, err error) { x.gone(peer, err) }

// Left is Lost for a peer that has closed its fabric: messages that still wait for it fail with ErrLeft.
func (x *Matcher) Left(peer int) { x.gone(peer, fabric.ErrLeft) }

func (x *Matcher) gone(peer int, err error) {
	x.mu.Lock()
	if x.closed != nil || x.lost[peer] != nil {
		x.mu.Unlock()
		return
	}
	perr := &fabric.PeerError{Peer: peer, Err: err}
	x.lost[peer] = perr
	if x.first == nil {
		x.first = perr
	}
	fail := x.posted.take(func(k matchKey, _ *fabric.Msg) bool { return k.from == peer })
	var anyone []*fabric.Msg
	if len(x.lost) >= x.size-1 {
		anyone = x.anyone.take(func(fabric.Key, *fabric.Msg) bool { return true })
	}
	h, first := x.handler, x.first
	x.mu.Unlock()
	for _, m := range fail {
		m.Complete(0, peer, perr)
	}
	for _, m := range anyone { // which the first that went may have been to send
		m.Complete(0, peer, first)
	}
	if h != nil {
		tell(h, peer, perr)
	}
}

// LostError returns the *PeerError of a peer that is lost or has left, or nil.
func (x *Matcher) LostError(peer int) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.lost[peer]
}
