// Package myfabric is a fabric written outside of Chorus: unix sockets between
// the processes of one host.
//
//	import _ "example.com/thirdparty/myfabric"
//
//	c, err := comm.New(ctx, comm.WithFabric("unix"))
//
// It has what a fabric must have, and nothing else: Send, Recv, Wait, Cancel and Close. The backend sends its control
// payloads as messages. Package transport pairs messages, and exchanges the names of the sockets; so this fabric can
// also be the near half of "auto", by the hint "fabric.near".
//
// Every two ranks have a connection, and every rank one to itself. A goroutine
// writes what was posted, another reads whatever comes and keeps it until it's
// asked for, and sends a receipt for what is large.
// The sockets have abstract names, so nothing is left in the file system.
//
// open.go connects the ranks, link.go moves frames, unix.go is the fabric.Fabric.
//
// Invariants: a reader never waits for its own rank, so that no two ranks can block each other by sending at once. A
// frame's header is checked before it's used. Only processes of the same user are admitted.
package myfabric
