package shm

import (
	"net"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// connected returns the two ends of a socket as links have it.
func connected(t *testing.T) (ends [2]*net.UnixConn) {
	t.Helper()
	for i, fd := range socketPair(t, unix.SOCK_SEQPACKET) {
		f := os.NewFile(uintptr(fd), "end of a link")
		c, err := net.FileConn(f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		ends[i] = c.(*net.UnixConn)
		t.Cleanup(func() { c.Close() })
	}
	return ends
}

// A message reaches the peer although its sender is stopped right after send.
func TestSentAtOnce(t *testing.T) {
	ends := connected(t)
	raw, err := ends[1].SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	l := newLink(ends[0])
	buf := make([]byte, maxPacket)
	for i := range 1000 {
		if err := l.send([]byte{1, byte(i)}, -1); err != nil {
			t.Fatal(err)
		}
		var n int
		raw.Read(func(fd uintptr) bool {
			n, _, _, _, err = unix.Recvmsg(int(fd), buf, nil, unix.MSG_DONTWAIT)
			return true
		})
		if err != nil || n != 2 || buf[1] != byte(i) {
			t.Fatalf("packet %d isn't there: %d bytes, %v", i, n, err)
		}
	}
}

// Data that the socket doesn't take is sent later, in order, with its descriptors.
func TestSentLater(t *testing.T) {
	checkLeaks(t)
	ends := connected(t)
	l := newLink(ends[0])
	const packets = 3000
	for i := range packets {
		fd := -1
		if i%100 == 99 {
			var err error
			if fd, err = unix.Dup(0); err != nil {
				t.Fatal(err)
			}
		}
		if err := l.send(fields{Kind: frameOffer, Comm: uint32(i), Size: 1}.encode(nil), fd); err != nil {
			t.Fatal(err)
		}
		if fd >= 0 {
			unix.Close(fd) // it stayed ours; a packet that waits has one of its own
		}
	}
	if l.mu.Lock(); !l.writing {
		t.Error("the socket took everything: nothing was queued")
	}
	l.mu.Unlock()
	buf, oob := make([]byte, maxPacket), make([]byte, 128)
	for i := range packets {
		n, on, _, _, err := ends[1].ReadMsgUnix(buf, oob)
		if err != nil {
			t.Fatal(err)
		}
		fds, err := descriptors(oob[:on])
		if err != nil || len(fds) != map[bool]int{true: 1}[i%100 == 99] {
			t.Fatalf("packet %d came with descriptors %v, %v", i, fds, err)
		}
		for _, fd := range fds {
			unix.Close(fd)
		}
		want := fields{Kind: frameOffer, Comm: uint32(i), Size: 1}.encode(nil)
		if string(buf[:n]) != string(want) {
			t.Fatalf("packet %d is %x, not %x", i, buf[:n], want)
		}
	}
}
