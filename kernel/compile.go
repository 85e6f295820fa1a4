package kernel

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// CompileError is a generated source that a compiler refused.
type CompileError struct {
	Spec   Spec
	Source string // the whole text
	Log    string // of the compiler

	cause error
}

// Unwrap is the device's error.
func (e *CompileError) Unwrap() error { return e.cause }

// Error has the compiler's log, and the lines of the source that it's about with three before and after each.
func (e *CompileError) Error() string {
	return fmt.Sprintf("kernel: %v doesn't compile:\n%s\n%s", e.Spec, e.Log, e.excerpt())
}

var logLine = regexp.MustCompile(`(?m)(?:\.c[lu]|<source>|\d|\w):?\(?(\d+)(?:\)|:\d+):? ?:?.*error`)

func (e *CompileError) excerpt() string {
	lines := strings.Split(e.Source, "\n")
	show := map[int]bool{}
	bad := map[int]bool{}
	for _, m := range logLine.FindAllStringSubmatch(e.Log, 8) {
		n, err := strconv.Atoi(m[1])
		if err != nil || n < 1 || n > len(lines) {
			continue
		}
		bad[n] = true
		for k := n - 3; k <= n+3; k++ {
			show[k] = true
		}
	}
	var b strings.Builder
	for k, line := range lines {
		if len(bad) > 0 && !show[k+1] {
			continue
		}
		mark := ' '
		if bad[k+1] {
			mark = '>'
		}
		fmt.Fprintf(&b, "%c%4d  %s\n", mark, k+1, line)
	}
	return b.String()
}
