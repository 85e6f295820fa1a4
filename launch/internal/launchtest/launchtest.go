// Package launchtest is what the tests of launchers share.
package launchtest

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/launch/internal/process"
)

// Self is the test binary as a command.
func Self() []string { return []string{os.Args[0]} }

// Buffer collects output and lets a test wait for it.
type Buffer struct {
	mu   sync.Mutex
	data bytes.Buffer
	more chan struct{}
}

// NewBuffer is empty.
func NewBuffer() *Buffer { return &Buffer{more: make(chan struct{}, 1)} }

// Write implements io.Writer.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case b.more <- struct{}{}:
	default:
	}
	return b.data.Write(p)
}

// String is what has been written.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.data.String()
}

// Await waits until text has been written n times.
func (b *Buffer) Await(t testing.TB, text string, n int) {
	t.Helper()
	deadline := time.After(20 * time.Second)
	for strings.Count(b.String(), text) < n {
		select {
		case <-b.more:
		case <-deadline:
			t.Fatalf("%q was not written %d times:\n%s", text, n, b)
		}
	}
}

// Lines returns the written lines that begin with prefix, without it.
func (b *Buffer) Lines(prefix string) []string {
	var out []string
	for line := range strings.Lines(b.String()) {
		if rest, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), prefix); ok {
			out = append(out, rest)
		}
	}
	return out
}

// WantFailure is an error as the failure that it must be.
func WantFailure(t testing.TB, err error) *process.Failure {
	t.Helper()
	f, ok := errors.AsType[*process.Failure](err)
	if !ok {
		t.Fatalf("got %v, want a failure", err)
	}
	return f
}

// WantText finds the parts in a text.
func WantText(t testing.TB, text string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(text, p) {
			t.Errorf("no %q in:\n%s", p, text)
		}
	}
}
