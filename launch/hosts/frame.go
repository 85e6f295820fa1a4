package hosts

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
)

// A frame is what a launcher on another host and the process that started it send each other: its kind, the length of
// what follows in four bytes, and that.
type frame struct {
	kind frameKind
	data []byte
}

type frameKind byte

const (
	// To the launcher.
	frameOrders   frameKind = 'O' // Orders, as JSON; the first
	frameInput    frameKind = 'I' // a piece of standard input, for rank 0; empty: its end
	frameSignal   frameKind = 'S' // a signal's number
	frameCanceled frameKind = 'C' // the Failure by which the job ends, as JSON

	// From the launcher.
	frameStdout  frameKind = '1' // whole lines for standard output
	frameStderr  frameKind = '2' // the same for standard error
	frameServing frameKind = 'A' // the endpoint of the rendezvous, which the launcher serves
	frameBegun   frameKind = 'R' // the job has begun
	frameMore    frameKind = 'M' // the last piece of input has been taken
	frameEnd     frameKind = 'E' // ending, as JSON; the last

	// Both ways.
	frameBeat frameKind = 'B' // the sender is alive
)

// frameMagic begins what the launcher sends. Before it there may be text that the login shell prints. The number is that
// of this protocol.
const (
	frameMagic      = frameMagicBegin + "2\n"
	frameMagicBegin = "\x00chorus node "
)

const (
	maxFrame = 16 << 20
	maxNoise = 64 << 10 // bytes before frameMagic
)

// frameWriter writes frames. Its methods may be called from any goroutine.
type frameWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (f *frameWriter) write(kind frameKind, data []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, err := f.w.Write(appendFrame(nil, kind, data))
	return err
}

func appendFrame(to []byte, kind frameKind, data []byte) []byte {
	to = binary.BigEndian.AppendUint32(append(to, byte(kind)), uint32(len(data)))
	return append(to, data...)
}

// frameOutput is a writer whose data are frames of one kind.
type frameOutput struct {
	to   *frameWriter
	kind frameKind
}

// Write implements io.Writer.
func (o *frameOutput) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		n := min(len(rest), maxFrame)
		if err := o.to.write(o.kind, rest[:n]); err != nil {
			return 0, err
		}
		rest = rest[n:]
	}
	return len(p), nil
}

// readFrame reads one frame. The error is io.EOF if there is none.
func readFrame(r *bufio.Reader) (frame, error) {
	var head [5]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return frame{}, err
	}
	n := binary.BigEndian.Uint32(head[1:])
	if n > maxFrame {
		return frame{}, fmt.Errorf("a frame of %d bytes, more than %d", n, maxFrame)
	}
	var b bytes.Buffer // grows with what has come
	if _, err := io.CopyN(&b, r, int64(n)); err != nil {
		return frame{}, fmt.Errorf("a frame ends early: %w", err)
	}
	return frame{frameKind(head[0]), b.Bytes()}, nil
}

// awaitMagic reads to the end of frameMagic, and returns what was before it.
func awaitMagic(r *bufio.Reader) (noise []byte, err error) {
	for !bytes.HasSuffix(noise, []byte(frameMagic)) {
		c, err := r.ReadByte()
		if err != nil {
			return noise, err
		}
		noise = append(noise, c)
		if c == '\n' && !bytes.HasSuffix(noise, []byte(frameMagic)) && bytes.Contains(noise, []byte(frameMagicBegin)) {
			return nil, errors.New("chorus there is of another version than here")
		}
		if len(noise) > maxNoise+len(frameMagic) {
			return noise, errors.New("it prints other text than chorus does")
		}
	}
	return noise[:len(noise)-len(frameMagic)], nil
}
