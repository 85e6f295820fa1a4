package process

import (
	"bytes"
	"slices"
	"strings"
	"sync"
)

const (
	tailLines = 20  // lines of standard error that a failure quotes
	tailWidth = 500 // bytes of each
)

// Tail keeps the last lines that were written to it, and the last one that tells why a Go program died: goroutine dumps
// are long, and the reason stands before them.
type Tail struct {
	mu       sync.Mutex
	lines    []string
	pending  []byte
	reason   string
	distance int // lines since the reason
}

func (t *Tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for rest := p; len(rest) > 0; {
		i := bytes.IndexByte(rest, '\n')
		if i < 0 {
			t.extend(rest)
			break
		}
		t.extend(rest[:i])
		t.end()
		rest = rest[i+1:]
	}
	return len(p), nil
}

func (t *Tail) extend(text []byte) {
	if room := tailWidth + 1 - len(t.pending); room > 0 {
		t.pending = append(t.pending, text[:min(len(text), room)]...)
	}
}

func (t *Tail) end() {
	line := string(t.pending)
	if len(line) > tailWidth {
		line = line[:tailWidth] + "..."
	}
	line = strings.ToValidUTF8(strings.TrimRight(line, "\r"), "?")
	if len(t.lines) == tailLines {
		t.lines = append(t.lines[:0], t.lines[1:]...)
	}
	t.lines = append(t.lines, line)
	t.distance++
	if strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ") {
		t.reason, t.distance = line, 1
	}
	t.pending = t.pending[:0]
}

// Last returns the lines so far, an unfinished one included, after the reason if it is not among them.
func (t *Tail) Last() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.pending) > 0 {
		t.end()
	}
	if t.reason != "" && t.distance > tailLines {
		return append([]string{t.reason, "..."}, t.lines...)
	}
	return slices.Clone(t.lines)
}
