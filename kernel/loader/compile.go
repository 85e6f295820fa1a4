package loader

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/chorus-comms/chorus/internal/plain"
	"github.com/chorus-comms/chorus/kernel/text"
)

// CompileError is a generated source that a compiler refused, or that the device has no compiler for.
type CompileError struct {
	Spec   text.Spec
	Source string // the whole text
	Log    string // of the compiler

	cause error
}

// Unwrap is the device's error.
func (e *CompileError) Unwrap() error { return e.cause }

// Error has the compiler's log, then the lines of the source that the log names, with three before and after each.
func (e *CompileError) Error() string {
	text := fmt.Sprintf("kernel: %v doesn't compile:\n%s", e.Spec, plain.Text(strings.TrimRight(e.Log, "\n")))
	if lines := e.excerpt(); lines != "" {
		text += "\n" + lines
	}
	return text
}

// logLine finds the number of a line before the word error, and behind it, as PoCL has it.
var logLine = regexp.MustCompile(`(?m)[\w>][:(](\d+)(?:\)|:\d+):? ?:?.*error|error: [^\s:]+:(\d+):\d+[: ]`)

func (e *CompileError) excerpt() string {
	lines := strings.Split(e.Source, "\n")
	show := map[int]bool{}
	bad := map[int]bool{}
	for _, m := range logLine.FindAllStringSubmatch(e.Log, 8) {
		n, err := strconv.Atoi(m[1] + m[2])
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
		if !show[k+1] {
			continue
		}
		mark := ' '
		if bad[k+1] {
			mark = '>'
		}
		fmt.Fprintf(&b, "%c%4d  %s\n", mark, k+1, line)
	}
	return strings.TrimRight(b.String(), "\n")
}
