//go:build !linux || chorus_portable

package bootstrap

import (
	"errors"
	"net"
	"os"
	"path/filepath"
)

// abstractSockets says that sockets have files.
const abstractSockets = false

// localListenerPlace is where listenLocal listens.
const localListenerPlace = "the file system"

// A localListener is a listener at a socket in a directory of its own, which Close removes. It stays in TMPDIR
// if the process is killed.
type localListener struct {
	net.Listener
	dir string
}

// listenLocal listens at a socket of this host that only this user can reach.
func listenLocal() (net.Listener, error) {
	dir, err := os.MkdirTemp("", "chorus-seat-")
	if err != nil {
		return nil, err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, err
	}
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		os.Remove(dir)
		return nil, err
	}
	return localListener{l, dir}, nil
}

// Close ends the socket and removes its directory.
func (s localListener) Close() error { return errors.Join(s.Listener.Close(), os.RemoveAll(s.dir)) }

func isLocalName(name string) bool { return filepath.IsAbs(name) }
