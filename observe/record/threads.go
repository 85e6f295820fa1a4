package record

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/chorus-comms/chorus/internal/sys"
)

// Thread is a thread of a program in another language, with its stack.
type Thread struct {
	Main   bool    `json:"main,omitempty"`
	Frames []Frame `json:"frames"` // innermost first
}

// Interpreter tells of a program in Python what the library can't know.
type Interpreter interface {
	// Stacks returns the stacks of all threads as Python's faulthandler prints them, whatever these do, and the number of
	// the main thread.
	Stacks() (text string, main uint64)
	// Inner lists the directories of what is between the program and the library, and of Python itself: modules' own, or,
	// with a slash at the end, those that hold modules.
	Inner() []string
}

// interpreter is the process's; nil if it has none, or hasn't registered it.
var interpreter Interpreter

// SetInterpreter has dumps tell where the threads of a Python program are. It's called before the first communicator is
// made.
func SetInterpreter(i Interpreter) { interpreter = i }

// threads returns where the threads of the program are, if it's in another language that tells.
func threads() []Thread {
	if interpreter == nil {
		return nil
	}
	text, main := interpreter.Stacks()
	all := parseThreads(text, main, interpreter.Inner())
	quote(all)
	return all
}

// parseThreads reads what faulthandler prints. Threads without frames, which are none of the program's, are left out.
func parseThreads(text string, main uint64, inner []string) []Thread {
	var all []Thread
	dir, _ := os.Getwd()
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		switch head, name, in := strings.Cut(strings.TrimPrefix(line, `  File "`), " in "); {
		case strings.HasPrefix(line, "Thread 0x"), strings.HasPrefix(line, "Current thread 0x"):
			_, number, _ := strings.Cut(line, "0x")
			number, _, _ = strings.Cut(number, " ")
			n, err := strconv.ParseUint(number, 16, 64)
			all = append(all, Thread{Main: err == nil && n == main})
		case len(all) > 0 && strings.HasPrefix(line, `  File "`) && in:
			file, number, _ := strings.Cut(head, `", line `)
			n, err := strconv.Atoi(number)
			if err != nil { // it's unknown
				n = 0
			}
			t := &all[len(all)-1]
			t.Frames = append(t.Frames, frameOf(dir, file, n, name, inner))
		}
	}
	return slices.DeleteFunc(all, func(t Thread) bool { return len(t.Frames) == 0 })
}

// frameOf makes a frame: of the program, with its file from the working directory on, or of a module in between, with
// its full name.
func frameOf(dir, file string, line int, name string, inner []string) Frame {
	if frozen, ok := strings.CutPrefix(file, "<frozen "); ok {
		return Frame{Name: strings.TrimSuffix(frozen, ">") + "." + name, File: file, Line: line, Inner: true}
	}
	for _, d := range inner {
		root := d
		if !strings.HasSuffix(d, "/") {
			root = filepath.Dir(d) + "/"
			d += "/"
		}
		if rest, ok := strings.CutPrefix(file, root); ok && strings.HasPrefix(file, d) && !strings.HasPrefix(rest,
			"site-packages/") && !strings.HasPrefix(rest, "dist-packages/") {
			module := strings.TrimSuffix(strings.TrimSuffix(rest, ".py"), "/__init__")
			return Frame{Name: strings.ReplaceAll(module, "/", ".") + "." + name, File: file, Line: line, Inner: true}
		}
	}
	if rest, ok := strings.CutPrefix(file, dir+"/"); ok {
		file = rest
	}
	return Frame{Name: name, File: file, Line: line}
}

// quoteLimit bounds for how long source files are read: the program may hang because of them.
const quoteLimit = 200 * time.Millisecond

// quote adds the program's own text to the frames where its threads are, if they aren't in another function of
// Python's.
func quote(all []Thread) {
	texts := make(chan []string, 1)
	var frames []*Frame
	for i := range all {
		if f := &all[i].Frames[0]; !f.Inner {
			frames = append(frames, f)
		}
	}
	if len(frames) == 0 {
		return
	}
	places := make([]Frame, len(frames))
	for i, f := range frames {
		places[i] = *f
	}
	go func() {
		found := make([]string, len(places))
		for i, f := range places {
			found[i] = sourceLine(f.File, f.Line)
		}
		texts <- found
	}()
	select {
	case found := <-texts:
		for i, f := range frames {
			f.Text = found[i]
		}
	case <-time.After(quoteLimit):
	}
}

// sourceLine returns a line of a file without what surrounds it; empty if it can't be had.
func sourceLine(path string, number int) string {
	f, _, err := sys.OpenRegular(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	s := bufio.NewScanner(f)
	for n := 1; s.Scan(); n++ {
		if n == number {
			return strings.TrimSpace(s.Text())
		}
	}
	return ""
}

var (
	called   = regexp.MustCompile(`([A-Za-z_][\w.]*)\s*\(`)
	keywords = []string{"and", "assert", "await", "def", "class", "del", "elif", "for", "if", "in", "is", "not", "or",
		"print", "return", "while", "with", "yield"}
)

// longestText is how much of a line is shown, in bytes.
const longestText = 60

// calls says what a line calls: the one function that it does, or the whole of it.
func calls(text string) string {
	var names []string
	for _, m := range called.FindAllStringSubmatch(text, -1) {
		if !slices.Contains(keywords, m[1]) && !slices.Contains(names, m[1]) {
			names = append(names, m[1])
		}
	}
	switch {
	case len(names) == 1:
		return names[0]
	case text == "":
		return ""
	case len(text) > longestText:
		return "`" + strings.ToValidUTF8(text[:longestText], "") + "...`"
	}
	return "`" + text + "`"
}

// InProgram returns where a rank of a Python program is. It takes the thread from which it has called its last
// operation, or else the main one. There it returns the program's own innermost function, and the function that this
// has called.
func InProgram(all []Thread, last *Entry) (does, at string) {
	best, score := -1, 0
	for i, t := range all {
		n := 0
		if t.Main {
			n = 1
		}
		for _, f := range t.Frames {
			if last != nil && slices.ContainsFunc(last.Frames,
				func(l Frame) bool { return f.File == l.File && strings.HasSuffix(l.Name, f.Name) }) {
				n += 2
			}
		}
		if n > score {
			best, score = i, n
		}
	}
	if best < 0 {
		return "busy elsewhere", ""
	}
	frames := all[best].Frames
	i := slices.IndexFunc(frames, func(f Frame) bool { return !f.Inner })
	if i < 0 {
		return frames[0].Name, ""
	}
	f := frames[i]
	what := calls(f.Text)
	if i > 0 {
		what = frames[i-1].Name
	}
	if what == "" {
		return "in " + f.Name, f.Place()
	}
	return what + " in " + f.Name, f.Place()
}

// After says in short which operation a rank of a Python program called last, and where.
func After(last *Entry) string {
	if last == nil {
		return ""
	}
	s := last.Chorus.Op
	if last.Seq != 0 {
		s += fmt.Sprintf(" #%d", last.Seq)
	}
	if len(last.Frames) > 0 {
		s += " (" + last.Frames[0].Place() + ")"
	}
	return s
}

// Place is a frame's file and line.
func (f Frame) Place() string { return shortFile(f.File) + ":" + strconv.Itoa(f.Line) }
