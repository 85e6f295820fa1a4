package loader

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// Compiling tells a person at a terminal that kernels are being compiled, of all loaders of the process.
var Compiling Progress

// Progress says how many kernels have been compiled, if it takes long. The zero value says nothing.
type Progress struct {
	mu          sync.Mutex
	out         io.Writer
	done, going int
	begun, last time.Time // of the first one, and when one ended last
	said        time.Time // when it was said last; zero: not yet
	timer       *time.Timer
}

const (
	progressAfter = 2 * time.Second  // from the first kernel to the first line; without a kernel for so long it's over
	progressEvery = 10 * time.Second // between lines
)

// Show lets lines go to a writer, the error output for example.
func (p *Progress) Show(out io.Writer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.out = out
}

// begin counts a kernel that is being compiled, until the function that it returns is called.
func (p *Progress) begin() (end func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.out == nil {
		return func() {}
	}
	if p.timer == nil {
		p.begun, p.said, p.done = time.Now(), time.Time{}, 0
		p.timer = time.AfterFunc(progressAfter, p.tick)
	}
	p.going++
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.going--
		p.done++
		p.last = time.Now()
	}
}

// tick says a line if it's time.
func (p *Progress) tick() {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	switch {
	case p.going == 0 && now.Sub(p.last) >= progressAfter:
		if !p.said.IsZero() {
			fmt.Fprintf(p.out, "chorus: compiled %d kernels in %v\n", p.done, p.last.Sub(p.begun).Round(time.Second))
		}
		p.timer = nil
		return
	case p.going > 0 && (p.said.IsZero() || now.Sub(p.said) >= progressEvery):
		off := ""
		if p.said.IsZero() {
			off = " (CHORUS_KERNEL_PROGRESS=0 turns this line off)"
		}
		fmt.Fprintf(p.out, "chorus: compiling kernels: %d done, %d under way%s\n", p.done, p.going, off)
		p.said = now
	}
	p.timer.Reset(progressAfter / 2)
}
