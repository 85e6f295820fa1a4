package main

import (
	"fmt"
	"os"
	"sync"

	"golang.org/x/term"
)

// stdout is the standard output of a command. It remembers the first error, so that the command fails even where what
// writes a table looks at none.
type stdout struct {
	file *os.File
	mu   sync.Mutex
	err  error
}

// Write implements io.Writer.
func (o *stdout) Write(p []byte) (int, error) {
	n, err := o.file.Write(p)
	o.mu.Lock()
	defer o.mu.Unlock()
	if err != nil && o.err == nil {
		o.err = fmt.Errorf("standard output: %w", err)
	}
	return n, err
}

// lost returns the first error.
func (o *stdout) lost() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}

// live reports whether the output is shown on a terminal that can move its cursor.
func (o *stdout) live() bool { return term.IsTerminal(int(o.file.Fd())) && os.Getenv("TERM") != "dumb" }
