//go:build !linux || chorus_portable

package tcp

import "golang.org/x/sys/unix"

// The calls of vectored.
const (
	readv = iota
	writev
)

// vectored calls readv or writev once. The socket never blocks.
func (t *transfer) vectored(call, fd int) (int, error) {
	var pieces [2][]byte
	n := 0
	for _, piece := range [2][]byte{t.a, t.b} {
		if len(piece) > 0 {
			pieces[n] = piece
			n++
		}
	}
	for {
		var done int
		var err error
		if call == readv { // by name, so that nothing escapes
			done, err = unix.Readv(fd, pieces[:n])
		} else {
			done, err = unix.Writev(fd, pieces[:n])
		}
		switch err {
		case nil:
			return done, nil
		case unix.EINTR:
		case unix.EAGAIN:
			return 0, errWouldBlock
		default:
			return 0, err
		}
	}
}
