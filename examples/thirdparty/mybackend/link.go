package mybackend

import (
	"context"
	"encoding/binary"
	"errors"

	"example.com/thirdparty/mylib"

	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/fabric/transport"
)

// link is the library's messages as a fabric.Fabric. A message's description is the head of the library's.
type link struct{ lib *mylib.Comm }

func (l link) Rank() int                       { return l.lib.Rank() }
func (l link) Size() int                       { return l.lib.Size() }
func (l link) Close(ctx context.Context) error { return translate(l.lib.Close(ctx)) }

// ofLibrary is the class of the library's own collectives: none of fabric's.
const ofLibrary fabric.Class = 0xff

func tagOf(k fabric.Key) (t mylib.Tag) {
	binary.LittleEndian.PutUint32(t[:], k.Comm)
	t[4] = byte(k.Class)
	binary.LittleEndian.PutUint64(t[8:], k.Tag)
	return t
}

// Send implements fabric.Fabric.
func (l link) Send(m *fabric.Msg) {
	r := &mylib.Request{Peer: m.Peer, Tag: tagOf(m.Key), Head: m.Desc[:], Body: m.Bytes()}
	r.Done = func(n, _ int, err error) { m.Complete(n, m.Peer, translate(err)) }
	m.PrivP = r
	l.lib.Send(r)
}

// Recv implements fabric.Fabric.
func (l link) Recv(m *fabric.Msg) {
	r := &mylib.Request{Peer: m.Peer, Tag: tagOf(m.Key), Head: m.Sent[:], Body: m.Bytes()}
	r.Done = func(n, from int, err error) {
		switch {
		case err != nil:
			n, err = 0, translate(err)
		case m.Key.Class == fabric.Collective && m.Sent != m.Desc:
			n, err = 0, &fabric.MismatchError{Peer: from, Local: m.Desc, Remote: m.Sent}
		case n > m.Len:
			n, err = 0, &fabric.TruncatedError{Peer: from, Sent: n, Capacity: m.Len}
		}
		m.Complete(n, from, err)
	}
	m.PrivP = r
	l.lib.Recv(r)
}

// Wait implements fabric.Fabric.
func (l link) Wait(m *fabric.Msg, w *fabric.Waiter) error {
	if err := w.Block(m.Done); err != nil {
		return err
	}
	return m.Err
}

// Cancel implements fabric.Fabric.
func (l link) Cancel(m *fabric.Msg) {
	l.lib.Cancel(m.PrivP.(*mylib.Request))
	transport.AwaitDone(m, 0)
}

// translate gives the library's errors the meaning that they have for a fabric.
func translate(err error) error {
	var gone *mylib.GoneError
	switch {
	case errors.As(err, &gone) && gone.Left:
		return &fabric.PeerError{Peer: gone.Peer, Err: fabric.ErrLeft}
	case errors.As(err, &gone):
		return &fabric.PeerError{Peer: gone.Peer, Err: gone.Err}
	case errors.Is(err, mylib.ErrCanceled):
		return fabric.ErrCanceled
	case errors.Is(err, mylib.ErrClosed):
		return fabric.ErrClosed
	}
	return err
}
