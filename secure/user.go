package secure

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"
)

// ErrOtherUser says that the other end of a connection is another user's, or on another host.
var ErrOtherUser = errors.New("the other end is not a process of the same user on this host")

// A OtherUserError says whose the other end of a connection within this host is. It matches ErrOtherUser.
type OtherUserError struct {
	UID int
	PID int // 0 if the kernel doesn't tell
}

func (e *OtherUserError) Error() string {
	pid := ""
	if e.PID > 0 {
		pid = fmt.Sprintf(", pid %d", e.PID)
	}
	return fmt.Sprintf("the other end is a process of another user (uid %d%s), not of this one's (uid %d)", e.UID, pid,
		os.Geteuid())
}

// Is reports that it's an ErrOtherUser.
func (e *OtherUserError) Is(target error) bool { return target == ErrOtherUser }

func sameUser(uid, pid int) error {
	if uid != os.Geteuid() {
		return &OtherUserError{UID: uid, PID: pid}
	}
	return nil
}

// SameUser returns nil if the other end of a connection is a process of this user on this host, an ErrOtherUser if it
// isn't, and another error if the kernel doesn't tell. It takes Unix connections, at either end, and TCP connections
// that this end has accepted, of which only Linux tells.
func SameUser(c net.Conn) error {
	if !SameHost(c) {
		return ErrOtherUser
	}
	if u, ok := c.(*net.UnixConn); ok {
		uid, pid, err := Peer(u)
		if err != nil {
			return err
		}
		return sameUser(uid, pid)
	}
	here, there, err := endpoints(c)
	if err != nil {
		return err
	}
	uid, err := tcpOwner(there, here)
	if err != nil {
		return err
	}
	return sameUser(uid, 0)
}

// ServedBySameUser is SameUser for a TCP connection that this end has made. The other end may not have accepted it
// yet, so it checks the owner of the listener.
func ServedBySameUser(c net.Conn) error {
	if !SameHost(c) {
		return ErrOtherUser
	}
	here, there, err := endpoints(c)
	if err != nil {
		return err
	}
	uid, err := PortOwner(there)
	if errors.Is(err, syscall.ENOENT) { // it doesn't listen any more, but has accepted
		uid, err = tcpOwner(there, here)
	}
	if err != nil {
		return err
	}
	return sameUser(uid, 0)
}

// endpoints returns the addresses of a TCP connection.
func endpoints(c net.Conn) (here, there netip.AddrPort, err error) {
	here, err1 := netip.ParseAddrPort(c.LocalAddr().String())
	there, err2 := netip.ParseAddrPort(c.RemoteAddr().String())
	return here, there, errors.Join(err1, err2)
}

// Peer asks the kernel for the user and the process at the other end of a connection, as they were when it connected,
// or listened.
func Peer(c *net.UnixConn) (uid, pid int, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, 0, err
	}
	if e := raw.Control(func(fd uintptr) { uid, pid, err = credentials(int(fd)) }); e != nil {
		return 0, 0, e
	}
	return uid, pid, err
}

// PortOwner returns the user whose process listens at a TCP address of this host. Only Linux tells.
func PortOwner(at netip.AddrPort) (uid int, err error) {
	return tcpOwner(at, unspecified(at))
}

// unspecified is what a listener at an address is connected to.
func unspecified(at netip.AddrPort) netip.AddrPort {
	if at.Addr().Unmap().Is6() {
		return netip.AddrPortFrom(netip.IPv6Unspecified(), 0)
	}
	return netip.AddrPortFrom(netip.IPv4Unspecified(), 0)
}
