package secure

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// credentials asks the kernel for the user and the process at the other end of a Unix connection.
func credentials(fd int) (uid, pid int, err error) {
	cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
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

// tcpOwner asks the kernel whose the socket of this host is that has one address and is connected to the other, or
// listens if that is none (sock_diag(7)).
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
	if err := unix.Sendto(fd, unsafe.Slice((*byte)(unsafe.Pointer(&r)), unsafe.Sizeof(r)), 0,
		&unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
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
	case a.socket.sourcePort != r.socket.sourcePort || a.socket.destPort != r.socket.destPort:
		// Its family may be the other one: PyTorch's sockets are of IPv6, for either kind of address.
		return 0, errors.New("sock_diag: an answer about another socket")
	}
	return int(a.uid), nil
}
