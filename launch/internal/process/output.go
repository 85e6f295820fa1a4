package process

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chorus-comms/chorus/internal/plain"
)

const (
	maxLine = 1 << 20 // a line is shown in pieces rather than more than this kept of it

	// How long to wait for output after a rank is gone, when a process that left the rank's process group holds the pipe.
	DrainTime = 2 * time.Second
)

// Console is the launcher's own output. One lock for both streams keeps lines whole even where both are one terminal.
type Console struct {
	mu       sync.Mutex
	Out, Err io.Writer
	Name     string       // of the launcher, in its messages; empty: there is only one
	lost     *OutputError // the first; nil if all could be written
}

// OutputError says that output of the ranks, or a message about them, could not be written, and to what.
type OutputError struct{ Err error }

func (e *OutputError) Error() string { return fmt.Sprintf("launch: output is lost: %v", e.Err) }

// Unwrap returns what writing said.
func (e *OutputError) Unwrap() error { return e.Err }

// Print writes whole lines to one of the console's streams.
func (c *Console) Print(w io.Writer, text []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.write(w, text)
}

// write writes to one of the console's streams. The caller holds c.mu.
func (c *Console) write(w io.Writer, text []byte) {
	_, err := w.Write(text)
	if err == nil || !c.lose(err) {
		return
	}
	if w != c.Err {
		fmt.Fprintf(c.Err, "chorus: %v: what the ranks write there is lost\n", err)
	}
}

// lose notes that output could not be written, and reports whether it's the first time. The caller holds c.mu.
func (c *Console) lose(err error) bool {
	if c.lost != nil {
		return false
	}
	c.lost = &OutputError{err}
	return true
}

// Failure is a *OutputError if output was lost, and else nil.
func (c *Console) Failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lost == nil {
		return nil
	}
	return c.lost
}

// Printf writes a message of the launcher. Every line of it gets the prefix, and empty ones are left out.
func (c *Console) Printf(format string, args ...any) {
	prefix := "chorus: "
	if c.Name != "" {
		prefix += c.Name + ": "
	}
	var b bytes.Buffer
	for line := range strings.Lines(plain.Text(fmt.Sprintf(format, args...))) {
		if line = strings.TrimRight(line, "\n"); line != "" {
			fmt.Fprintf(&b, "%s%s\n", prefix, line)
		}
	}
	c.Print(c.Err, b.Bytes())
}

// LineWriter passes whole lines on to the console, each after the prefix. A carriage return ends a line as well, so
// that a progress bar is seen while it moves.
type LineWriter struct {
	Console *Console
	W       io.Writer
	Prefix  string
	Foreign bool   // what it shows isn't a program's own output: it's made plain
	pending []byte // the beginning of a line
	out     []byte // scratch
	skipLF  bool   // the last line ended with a carriage return; a line feed now belongs to it
}

func (l *LineWriter) Write(p []byte) (int, error) {
	l.out = l.out[:0]
	for rest := p; len(rest) > 0; {
		if l.skipLF && rest[0] == '\n' {
			rest = rest[1:]
		}
		l.skipLF = false
		i := bytes.IndexAny(rest, "\r\n")
		if i < 0 {
			n := min(len(rest), maxLine-len(l.pending))
			l.pending = append(l.pending, rest[:n]...)
			rest = rest[n:]
			if len(l.pending) == maxLine {
				l.emit(nil)
			}
			continue
		}
		l.skipLF = rest[i] == '\r'
		l.emit(rest[:i])
		rest = rest[i+1:]
	}
	l.flush()
	return len(p), nil
}

// emit ends the pending line with text.
func (l *LineWriter) emit(text []byte) {
	l.out = append(l.out, l.Prefix...)
	if l.Foreign {
		l.out = append(l.out, plain.Line(string(l.pending)+string(text))...)
	} else {
		l.out = append(append(l.out, l.pending...), text...)
	}
	l.out = append(l.out, '\n')
	l.pending = l.pending[:0]
}

func (l *LineWriter) flush() {
	if len(l.out) == 0 {
		return
	}
	l.Console.Print(l.W, l.out)
	l.out = l.out[:0]
}

// Close shows a last line that has no end.
func (l *LineWriter) Close() {
	if len(l.pending) > 0 {
		l.emit(nil)
	}
	l.flush()
}

// Stream carries one output stream of a rank from its pipe to where it should go.
type Stream struct {
	R, W *os.File // w belongs to the child
	Line *LineWriter
	File *os.File
	Tail *Tail
	Log  *Console // gets a message when the log file cannot be written
	Done chan struct{}
}

// Copy runs until the pipe ends, or the deadline that drain sets.
func (s *Stream) Copy() {
	defer close(s.Done)
	from := &PipeReader{F: s.R}
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		s.pass(buf[:n])
		if err != nil {
			break
		}
	}
	if s.Line != nil {
		s.Line.Close()
	}
	s.endFile(nil)
	s.R.Close()
}

// PipeReader reads a pipe to its end, or, when others hold it beyond the file's deadline, to the end of what was in it
// at the deadline.
type PipeReader struct {
	F    *os.File
	late bool // the deadline has passed
	left int  // bytes that were in it then
}

// Read implements io.Reader.
func (r *PipeReader) Read(p []byte) (int, error) {
	if !r.late {
		n, err := r.F.Read(p)
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
		r.late, r.left = true, bytesIn(r.F)
		r.F.SetReadDeadline(time.Time{}) // an expired deadline hides bytes that are there
	}
	if r.left == 0 {
		return 0, io.EOF
	}
	n, err := r.F.Read(p[:min(r.left, len(p))])
	r.left -= n
	return n, err
}

// bytesIn returns how many bytes a pipe holds.
func bytesIn(f *os.File) (n int) {
	if raw, err := f.SyscallConn(); err == nil {
		raw.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), bytesInPipe) })
	}
	return n
}

func (s *Stream) pass(p []byte) {
	if len(p) == 0 {
		return
	}
	if s.Line != nil {
		s.Line.Write(p)
	}
	if s.Tail != nil {
		s.Tail.Write(p)
	}
	if s.File != nil {
		if _, err := s.File.Write(p); err != nil {
			s.endFile(err)
		}
	}
}

// endFile closes the log file, which has failed with err if that isn't nil. Some file systems say only then that there
// is no room.
func (s *Stream) endFile(err error) {
	if s.File == nil {
		return
	}
	if e := s.File.Close(); err == nil {
		err = e
	}
	s.File = nil
	if err != nil {
		s.Log.Printf("%v: no more is written there", err)
		s.Log.mu.Lock()
		s.Log.lose(err)
		s.Log.mu.Unlock()
	}
}

// drain gives the stream time to end after the rank is gone.
func (s *Stream) drain() {
	s.R.SetReadDeadline(time.Now().Add(DrainTime))
	<-s.Done
}

// Abandon undoes what has opened the stream for a process that did not start.
func (s *Stream) Abandon() {
	s.R.Close()
	s.W.Close()
	s.File.Close() // a nil file only says so
}
