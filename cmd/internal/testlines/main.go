// Command testlines shows what `go test -json` says as few lines: one a package, as go test itself prints it, and all
// that a failed test or package has said. Which tests were left out, and why, is appended to a file, to be shown in the
// end.
//
//	go test -json ./... | go run ./cmd/internal/testlines out/left-out
//
// It fails if a test did, or a package.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
)

// An event is a line of go test -json: see go doc test2json.
type event struct {
	Action, Package, ImportPath, Test, Output string
}

// A name is a test's, or with an empty test a package's.
type name struct{ pkg, test string }

// A report has the output so far of tests that are still running, and the skipped tests with their reasons.
type report struct {
	said   map[name][]string
	left   map[string][]name
	failed bool
}

var (
	result = regexp.MustCompile(`^(ok  |FAIL|---|\?   )\s`)
	where  = regexp.MustCompile(`^\s*\S+\.go:\d+: `)
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: go test -json ... | testlines FILE")
		os.Exit(2)
	}
	r := report{said: map[name][]string{}, left: map[string][]name{}}
	err := r.read(os.Stdin, os.Stdout)
	if err == nil {
		err = r.append(os.Args[1])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "testlines:", err)
		os.Exit(1)
	}
	if r.failed {
		os.Exit(1)
	}
}

// read shows the events of a run as they come. A line that isn't an event is shown unchanged.
func (r *report) read(from io.Reader, to io.Writer) error {
	lines := bufio.NewReader(from)
	for {
		line, err := lines.ReadString('\n')
		var e event
		if json.Unmarshal([]byte(line), &e) == nil {
			r.note(e, to)
		} else if line != "" {
			fmt.Fprint(to, line)
		}
		if err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
	}
}

func (r *report) note(e event, to io.Writer) {
	n := name{e.Package, e.Test}
	switch e.Action {
	case "output":
		if e.Test == "" && result.MatchString(e.Output) && !strings.HasPrefix(e.Output, "?") {
			fmt.Fprint(to, e.Output)
		} else {
			r.said[n] = append(r.said[n], e.Output)
		}
	case "build-output":
		fmt.Fprint(to, e.Output)
	case "pass":
		delete(r.said, n)
	case "skip":
		if e.Test != "" {
			why := reason(r.said[n])
			r.left[why] = append(r.left[why], n)
		}
		delete(r.said, n)
	case "fail":
		r.failed = true
		for _, text := range r.said[n] {
			fmt.Fprint(to, text)
		}
		delete(r.said, n)
		if e.Test == "" { // with tests that have not ended: a panic is in what one of them says
			r.unended(e.Package, to)
		}
	}
}

// unended shows what tests of a package have said that neither passed nor failed.
func (r *report) unended(pkg string, to io.Writer) {
	var names []name
	for n := range r.said {
		if n.pkg == pkg {
			names = append(names, n)
		}
	}
	slices.SortFunc(names, func(a, b name) int { return strings.Compare(a.test, b.test) })
	for _, n := range names {
		fmt.Fprint(to, strings.Join(r.said[n], ""))
		delete(r.said, n)
	}
}

// reason is what a test that skips itself says last, without the line of its file.
func reason(said []string) string {
	for _, text := range slices.Backward(said) {
		if at := where.FindString(text); at != "" {
			return strings.TrimPrefix(strings.TrimSpace(text[len(at):]), "left out: ")
		}
	}
	return "it doesn't say why"
}

// append writes a line for each reason to the end of the file.
func (r *report) append(path string) error {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o666)
	if err != nil {
		return err
	}
	whys := make([]string, 0, len(r.left))
	for why := range r.left {
		whys = append(whys, why)
	}
	slices.Sort(whys)
	for _, why := range whys {
		names := r.left[why]
		one := fmt.Sprintf("%s of %s", names[0].test, names[0].pkg)
		if len(names) > 1 {
			one = fmt.Sprintf("%d tests, such as %s", len(names), one)
		}
		fmt.Fprintf(f, "left out: %s: %s\n", why, one)
	}
	return f.Close()
}
