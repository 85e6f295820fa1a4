//go:build !chorus_portable

package bootstrap

import (
	"crypto/rand"
	"net"
)

// abstractSockets says that sockets may have names that are no files and can be listed, and are gone with their
// processes.
const abstractSockets = true

// localListenerPlace is where listenSeat listens.
const localListenerPlace = "the abstract name space"

// listenLocal listens at a socket of this host with a random name, which no other process can take
// first.
func listenLocal() (net.Listener, error) { return net.Listen("unix", "@chorus-seat-"+rand.Text()) }

func isLocalName(name string) bool { return name[0] == '@' }
