// Package zmtp is ZeroMQ's wire protocol (ZMTP 3.0, https://rfc.zeromq.org/spec/23) over TCP, without a mechanism of
// security: the sockets REP, REQ, PUB and SUB, for peers that needn't be well-behaved.
//
//	rep, err := zmtp.ListenRep("127.0.0.1:5500", zmtp.Options{MaxMessage: 1 << 20})
//	rep.Serve(func(question []byte) (answer []byte) { return question })
//
//	req, err := zmtp.DialReq(ctx, "127.0.0.1:5500", zmtp.Options{})
//	answer, err := req.Do([]byte("hello"), 10*time.Second)
//
// The other side may be libzmq's or anybody else's. conn.go is a connection and its greetings, frame.go its messages,
// listener.go what listening sockets share.
//
// Invariants: memory grows with the bytes that have arrived, not with the announced size. A greeting, and data that a
// peer doesn't read, have a deadline. One connection costs the others nothing but its share of the work. No bytes make
// a parser panic. Close returns when all goroutines of the socket have ended, whatever its peers do.
package zmtp

import (
	"errors"
	"fmt"
	"net"
	"time"
)

// Options are what a socket permits its peers. The zero value permits every peer, and messages of 1 MiB.
type Options struct {
	// MaxMessage bounds the bytes of a message that arrives, all its frames together; 0: 1 MiB.
	MaxMessage int
	// Admit, if not nil, says why the process at the other end of a new connection is turned away, before anything is
	// read from it.
	Admit func(net.Conn) error
	// Log, if not nil, is called for connections that were refused or broke the protocol.
	Log func(error)
}

func (o Options) maxMessage() int {
	if o.MaxMessage > 0 {
		return o.MaxMessage
	}
	return 1 << 20
}

func (o Options) log(err error) {
	if o.Log != nil {
		o.Log(err)
	}
}

// protocolError says that the other end breaks the protocol, or is none to talk to: trying again doesn't help.
type protocolError struct{ text string }

func (e *protocolError) Error() string { return "zmtp: " + e.text }

func broken(format string, args ...any) error { return &protocolError{fmt.Sprintf(format, args...)} }

// ErrClosed says that the socket was closed at this end.
var ErrClosed = errors.New("zmtp: the socket is closed")

const (
	// greetLimit is how long a peer may take for its greeting.
	greetLimit = 10 * time.Second
	// stuck is how long a peer may take to read a portion of what is written to it.
	stuck   = 10 * time.Second
	portion = 1 << 20
	// maxConns are the connections of one listening socket.
	maxConns = 4096
)
