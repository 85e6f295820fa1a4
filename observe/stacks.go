package observe

import (
	"strconv"
	"strings"

	"github.com/chorus-comms/chorus/observe/record"
)

// goroutine is one stack of Header.Stacks.
type goroutine struct {
	state  string // "chan receive, 3 minutes"
	frames []Frame
}

// parseStacks reads the Go runtime's dump of goroutines. It leaves out goroutines that it doesn't understand.
func parseStacks(text string) []goroutine {
	var all []goroutine
	for _, block := range strings.Split(text, "\n\n") {
		lines := strings.Split(block, "\n")
		rest, ok := strings.CutPrefix(lines[0], "goroutine ")
		_, state, open := strings.Cut(rest, " [")
		state, closed := strings.CutSuffix(state, "]:")
		if !ok || !open || !closed {
			continue
		}
		g := goroutine{state: state}
		for i := 1; i+1 < len(lines); i += 2 {
			name := lines[i]
			if strings.HasPrefix(name, "created by ") {
				break
			}
			if p := strings.LastIndexByte(name, '('); p > 0 {
				name = name[:p]
			}
			file, _, _ := strings.Cut(strings.TrimSpace(lines[i+1]), " +0x")
			colon := strings.LastIndexByte(file, ':')
			if colon < 0 {
				break
			}
			n, err := strconv.Atoi(file[colon+1:])
			if err != nil {
				break
			}
			g.frames = append(g.frames, Frame{Name: name, File: file[:colon], Line: n})
		}
		all = append(all, g)
	}
	return all
}

// whereabouts returns where a rank is that should be in an operation. It takes the goroutine that runs the functions
// from which the rank's last operation was called, or else that of main. There it takes the innermost function that
// isn't one of the standard library's waits.
func whereabouts(d *Dump, last *Entry) (does, at string) {
	gs := parseStacks(d.Chorus.Stacks)
	best, score := -1, 0
	for i, g := range gs {
		n := 0
		for _, f := range g.frames {
			if last != nil {
				for _, l := range last.Frames {
					if f.Name == l.Name && l.Name != "testing.tRunner" {
						n += 2
					}
				}
			}
			if f.Name == "main.main" {
				n++
			}
		}
		if n > score {
			best, score = i, n
		}
	}
	if best < 0 {
		return "busy elsewhere", ""
	}
	g := gs[best]
	for _, f := range g.frames {
		if !waits(f.Name) {
			return "busy elsewhere [" + g.state + "]", record.CallSite([]Frame{f})
		}
	}
	return "busy elsewhere [" + g.state + "]", ""
}

// waits reports whether a function belongs to the packages in which a program waits, or computes for its caller.
func waits(name string) bool {
	if record.Internal(name) || name == "panic" {
		return true
	}
	for _, p := range []string{"runtime.", "sync.", "time.", "syscall.", "internal/", "os.", "net.", "io.", "bufio.",
		"context."} {
		if strings.HasPrefix(name, p) {
			return true
		}
	}
	return false
}
