package secure

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ErrStranger says that the other end of a connection is another user's, or on another host.
var ErrStranger = errors.New("the other end is not a process of the same user on this host")

// A StrangerError says whose the other end of a connection within this host is. It matches ErrStranger.
type StrangerError struct {
	UID int
	PID int // 0 if the kernel doesn't tell
}

func (e *StrangerError) Error() string {
	pid := ""
	if e.PID > 0 {
		pid = fmt.Sprintf(", pid %d", e.PID)
	}
	return fmt.Sprintf("the other end is a process of another user (uid %d%s), not of this one's (uid %d)", e.UID, pid, os.Geteuid())
}

// Is reports that it's an ErrStranger.
func (e *StrangerError) Is(target error) bool { return target == ErrStranger }

func sameUser(uid, pid int) error {
	if uid != os.Geteuid() {
		return &StrangerError{UID: uid, PID: pid}
	}
	return nil
}

// SameUser returns nil if the other end of a connection is a process of this user on this host, an ErrStranger if it isn't, and another
// error if the kernel doesn't tell. It takes Unix connections, at either end, and TCP connections that this end has accepted.
func SameUser(c net.Conn) error {
	if !SameHost(c) {
		return ErrStranger
	}
	if u, ok := c.(*net.UnixConn); ok {
		uid, pid, err := Peer(u)
		if err != nil {
			return err
		}
		return sameUser(uid, pid)
	}
	here, there, err := ends(c)
	if err != nil {
		return err
	}
	uid, err := tcpOwner(there, here)
	if err != nil {
		return err
	}
	return sameUser(uid, 0)
}

// ServedBySameUser is SameUser for a TCP connection that this end has made, whose other end nobody may have accepted yet: it asks whose the
// listener is.
func ServedBySameUser(c net.Conn) error {
	if !SameHost(c) {
		return ErrStranger
	}
	here, there, err := ends(c)
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

// ends returns the addresses of a TCP connection.
func ends(c net.Conn) (here, there netip.AddrPort, err error) {
	here, err1 := netip.ParseAddrPort(c.LocalAddr().String())
	there, err2 := netip.ParseAddrPort(c.RemoteAddr().String())
	return here, there, errors.Join(err1, err2)
}

// Peer asks the kernel for the user and the process at the other end of a connection, as they were when it connected, or listened.
func Peer(c *net.UnixConn) (uid, pid int, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, 0, err
	}
	var cred *unix.Ucred
	if e := raw.Control(func(fd uintptr) {
		cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); e != nil {
		return 0, 0, e
	}
	if err != nil {
		return 0, 0, os.NewSyscallError("getsockopt", err)
	}
	return int(cred.Uid), int(cred.Pid), nil
}

// A socket's addresses, as the kernel's inet_diag.h has them.
type diagSocket struct {
	sourcePort, destPort [2]byte // network order
	source, dest         [16]byte
	iface                uint32
	cookie               [2]uint32
}

// diagRequest is struct inet_diag_req_v2 behind its netlink header.
type diagRequest struct {
	header   unix.NlMsghdr
	family   uint8
	protocol uint8
	ext, pad uint8
	states   uint32
	socket   diagSocket
}

// diagAnswer is struct inet_diag_msg behind its netlink header.
type diagAnswer struct {
	header                        unix.NlMsghdr
	family, state, timer, retrans uint8
	socket                        diagSocket
	expires, rqueue, wqueue       uint32
	uid, inode                    uint32
}

const sockDiagByFamily = 20

// tcpOwner asks the kernel whose the socket of this host is that has one address and is connected to the other, or listens if that is none
// (sock_diag(7)).
func tcpOwner(of, to netip.AddrPort) (uid int, err error) {
	r := diagRequest{
		header:   unix.NlMsghdr{Len: uint32(unsafe.Sizeof(diagRequest{})), Type: sockDiagByFamily, Flags: unix.NLM_F_REQUEST},
		family:   unix.AF_INET,
		protocol: unix.IPPROTO_TCP,
		states:   1<<1 | 1<<10, // established, listening
		socket:   diagSocket{cookie: [2]uint32{^uint32(0), ^uint32(0)}},
	}
	put := func(a netip.AddrPort, port *[2]byte, addr *[16]byte) {
		binary.BigEndian.PutUint16(port[:], a.Port())
		ip := a.Addr().Unmap().WithZone("")
		if ip.Is6() {
			r.family = unix.AF_INET6
		}
		copy(addr[:], ip.AsSlice())
	}
	put(of, &r.socket.sourcePort, &r.socket.source)
	put(to, &r.socket.destPort, &r.socket.dest)

	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return 0, os.NewSyscallError("socket", err)
	}
	defer unix.Close(fd)
	unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 1})
	if err := unix.Sendto(fd, unsafe.Slice((*byte)(unsafe.Pointer(&r)), unsafe.Sizeof(r)), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return 0, os.NewSyscallError("sendto", err)
	}
	var a diagAnswer
	b := unsafe.Slice((*byte)(unsafe.Pointer(&a)), unsafe.Sizeof(a))
	n, _, err := unix.Recvfrom(fd, b, 0)
	switch {
	case err != nil:
		return 0, os.NewSyscallError("recvfrom", err)
	case n >= 20 && a.header.Type == unix.NLMSG_ERROR:
		code := -int32(binary.NativeEndian.Uint32(b[16:])) // struct nlmsgerr
		return 0, os.NewSyscallError("sock_diag", syscall.Errno(code))
	case n < len(b) || a.header.Type != sockDiagByFamily:
		return 0, fmt.Errorf("sock_diag: an answer of type %d with %d bytes", a.header.Type, n)
	case a.socket.sourcePort != r.socket.sourcePort || a.socket.destPort != r.socket.destPort: // its family may be the other one: PyTorch's sockets are of IPv6, for either kind of address
		return 0, errors.New("sock_diag: an answer about another socket")
	}
	return int(a.uid), nil
}

// PortOwner returns the user whose process listens at a TCP address of this host.
func PortOwner(at netip.AddrPort) (uid int, err error) {
	return tcpOwner(at, nowhere(at))
}

// nowhere is what a listener at an address is connected to.
func nowhere(at netip.AddrPort) netip.AddrPort {
	if at.Addr().Unmap().Is6() {
		return netip.AddrPortFrom(netip.IPv6Unspecified(), 0)
	}
	return netip.AddrPortFrom(netip.IPv4Unspecified(), 0)
}
