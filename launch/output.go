package launch

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
	drainTime = 2 * time.Second
)

// console is the launcher's own output. One lock for both streams keeps lines whole even where both are one terminal.
type console struct {
	mu       sync.Mutex
	out, err io.Writer
	name     string       // of the launcher, in its messages; empty: there is only one
	lost     *OutputError // the first; nil if all could be written
}

// OutputError says that output of the ranks, or a message about them, could not be written, and to what.
type OutputError struct{ Err error }

func (e *OutputError) Error() string { return fmt.Sprintf("launch: output is lost: %v", e.Err) }

// Unwrap returns what writing said.
func (e *OutputError) Unwrap() error { return e.Err }

// write writes to one of the console's streams. The caller holds c.mu.
func (c *console) write(w io.Writer, text []byte) {
	_, err := w.Write(text)
	if err == nil || !c.lose(err) {
		return
	}
	if w != c.err {
		fmt.Fprintf(c.err, "chorus: %v: what the ranks write there is lost\n", err)
	}
}

// lose notes that output could not be written, and reports whether it's the first time. The caller holds c.mu.
func (c *console) lose(err error) bool {
	if c.lost != nil {
		return false
	}
	c.lost = &OutputError{err}
	return true
}

// failure is a *OutputError if output was lost, and else nil.
func (c *console) failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lost == nil {
		return nil
	}
	return c.lost
}

// printf writes a message of the launcher. Every line of it gets the prefix, and empty ones are left out.
func (c *console) printf(format string, args ...any) {
	prefix := "chorus: "
	if c.name != "" {
		prefix += c.name + ": "
	}
	var b bytes.Buffer
	for line := range strings.Lines(plain.Text(fmt.Sprintf(format, args...))) {
		if line = strings.TrimRight(line, "\n"); line != "" {
			fmt.Fprintf(&b, "%s%s\n", prefix, line)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.write(c.err, b.Bytes())
}

// lineWriter passes whole lines on to the console, each after the prefix. A carriage return ends a line as well, so
// that a progress bar is seen while it moves.
type lineWriter struct {
	console *console
	w       io.Writer
	prefix  string
	foreign bool   // what it shows isn't a program's own output: it's made plain
	pending []byte // the beginning of a line
	out     []byte // scratch
	skipLF  bool   // the last line ended with a carriage return; a line feed now belongs to it
}

func (l *lineWriter) Write(p []byte) (int, error) {
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
func (l *lineWriter) emit(text []byte) {
	l.out = append(l.out, l.prefix...)
	if l.foreign {
		l.out = append(l.out, plain.Line(string(l.pending)+string(text))...)
	} else {
		l.out = append(append(l.out, l.pending...), text...)
	}
	l.out = append(l.out, '\n')
	l.pending = l.pending[:0]
}

func (l *lineWriter) flush() {
	if len(l.out) == 0 {
		return
	}
	l.console.mu.Lock()
	defer l.console.mu.Unlock()
	l.console.write(l.w, l.out)
	l.out = l.out[:0]
}

// close shows a last line that has no end.
func (l *lineWriter) close() {
	if len(l.pending) > 0 {
		l.emit(nil)
	}
	l.flush()
}

// stream carries one output stream of a rank from its pipe to where it should go.
type stream struct {
	r, w *os.File // w belongs to the child
	line *lineWriter
	file *os.File
	tail *tail
	log  *console // gets a message when the log file cannot be written
	done chan struct{}
}

// copy runs until the pipe ends, or the deadline that drain sets.
func (s *stream) copy() {
	defer close(s.done)
	from := &pipeReader{f: s.r}
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		s.pass(buf[:n])
		if err != nil {
			break
		}
	}
	if s.line != nil {
		s.line.close()
	}
	s.endFile(nil)
	s.r.Close()
}

// pipeReader reads a pipe to its end, or, when others hold it beyond the file's deadline, to the end of what was in it
// at the deadline.
type pipeReader struct {
	f    *os.File
	late bool // the deadline has passed
	left int  // bytes that were in it then
}

// Read implements io.Reader.
func (r *pipeReader) Read(p []byte) (int, error) {
	if !r.late {
		n, err := r.f.Read(p)
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
		r.late, r.left = true, bytesIn(r.f)
		r.f.SetReadDeadline(time.Time{}) // an expired deadline hides bytes that are there
	}
	if r.left == 0 {
		return 0, io.EOF
	}
	n, err := r.f.Read(p[:min(r.left, len(p))])
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

func (s *stream) pass(p []byte) {
	if len(p) == 0 {
		return
	}
	if s.line != nil {
		s.line.Write(p)
	}
	if s.tail != nil {
		s.tail.Write(p)
	}
	if s.file != nil {
		if _, err := s.file.Write(p); err != nil {
			s.endFile(err)
		}
	}
}

// endFile closes the log file, which has failed with err if that isn't nil. Some file systems say only then that there
// is no room.
func (s *stream) endFile(err error) {
	if s.file == nil {
		return
	}
	if e := s.file.Close(); err == nil {
		err = e
	}
	s.file = nil
	if err != nil {
		s.log.printf("%v: no more is written there", err)
		s.log.mu.Lock()
		s.log.lose(err)
		s.log.mu.Unlock()
	}
}

// drain gives the stream time to end after the rank is gone.
func (s *stream) drain() {
	s.r.SetReadDeadline(time.Now().Add(drainTime))
	<-s.done
}
