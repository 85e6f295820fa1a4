package zmtp

import (
	"bufio"
	"encoding/binary"
	"io"
	"net"

	"github.com/chorus-comms/chorus/internal/wire"
)

// A frame begins with its flags and its length: of one byte, or of eight.
const (
	flagMore    = 1
	flagLong    = 2
	flagCommand = 4

	maxFrames = 64 // of a message
)

// message is one that has arrived: frames, or a command.
type message struct {
	frames  [][]byte
	command bool
}

// readMessage reads a message of at most limit bytes.
func readMessage(r *bufio.Reader, limit int) (m message, err error) {
	for first := true; ; first = false {
		flags, err := r.ReadByte()
		if err != nil {
			if !first {
				err = noEOF(err)
			}
			return m, err
		}
		if flags&^(flagMore|flagLong|flagCommand) != 0 || flags&flagCommand != 0 && (flags&flagMore != 0 || !first) {
			return m, broken("a frame with flags %#x", flags)
		}
		if len(m.frames) == maxFrames {
			return m, broken("a message of more than %d frames", maxFrames)
		}
		body, err := readBody(r, flags, limit)
		if err != nil {
			return m, noEOF(err)
		}
		limit -= len(body)
		m.frames = append(m.frames, body)
		m.command = flags&flagCommand != 0
		if flags&flagMore == 0 {
			return m, nil
		}
	}
}

// readBody reads a frame's length and what follows.
func readBody(r *bufio.Reader, flags byte, limit int) ([]byte, error) {
	var n uint64
	if flags&flagLong != 0 {
		var wide [8]byte
		if _, err := io.ReadFull(r, wide[:]); err != nil {
			return nil, err
		}
		n = binary.BigEndian.Uint64(wide[:])
	} else {
		short, err := r.ReadByte()
		if err != nil {
			return nil, err
		}
		n = uint64(short)
	}
	if n > uint64(limit) {
		return nil, broken("a frame of %d bytes, where %d are permitted", n, limit)
	}
	return wire.ReadN(r, int(n))
}

// noEOF makes the end of input within a message an error of its own.
func noEOF(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// encode returns a message as it's written. The frames are part of it.
func encode(frames ...[]byte) net.Buffers {
	out := make(net.Buffers, 0, 2*len(frames))
	for i, f := range frames {
		var flags byte
		if i < len(frames)-1 {
			flags = flagMore
		}
		out = append(out, header(flags, len(f)))
		if len(f) > 0 {
			out = append(out, f)
		}
	}
	return out
}

func header(flags byte, n int) []byte {
	if n <= 255 {
		return []byte{flags, byte(n)}
	}
	return binary.BigEndian.AppendUint64([]byte{flags | flagLong}, uint64(n))
}

// encodeCommand returns a command as it's written.
func encodeCommand(name string, body []byte) []byte {
	b := header(flagCommand, 1+len(name)+len(body))
	b = append(b, byte(len(name)))
	return append(append(b, name...), body...)
}

// parseCommand takes a command apart.
func parseCommand(b []byte) (name string, body []byte, err error) {
	if len(b) == 0 || int(b[0]) > len(b)-1 {
		return "", nil, broken("a command of %d bytes", len(b))
	}
	n := 1 + int(b[0])
	return string(b[1:n]), b[n:], nil
}
