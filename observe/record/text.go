package record

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/internal/plain"
)

// Party is one or more ranks at one place of the program.
type Party struct {
	Ranks []int  `json:"ranks"`
	Does  string `json:"does"`         // the operation it's in, or what else it does
	At    string `json:"at,omitempty"` // file:line (function)

	After string `json:"after,omitempty"` // the operation before, of a Python program, and its file:line

	Waited float64 `json:"waited_s,omitempty"` // the longest of them, in seconds
}

func (p Party) String() string {
	s := RankNames(p.Ranks) + ": " + p.Does
	s += p.where()
	if p.Waited > 0 {
		s += fmt.Sprintf(", for %.3f s", p.Waited)
	}
	return plain.Line(s)
}

// where says at which place a party is.
func (p Party) where() string {
	switch {
	case p.At == "":
		return ""
	case p.After != "":
		return fmt.Sprintf(" (%s), after %s", p.At, p.After)
	}
	return ", at " + p.At
}

// RankNames says which ranks these are: "rank 3", "ranks 0-2".
func RankNames(ranks []int) string {
	if len(ranks) == 1 {
		return fmt.Sprintf("rank %d", ranks[0])
	}
	return "ranks " + backend.Ranks(ranks)
}

// Call describes an entry's operation in full, as the errors of communicators do.
func Call(e *Entry) string {
	d := &e.Chorus
	var parts []string
	if d.DType != "" {
		n := e.InSizes[0][0]
		if n == 0 {
			n = e.OutSizes[0][0]
		}
		parts = append(parts, fmt.Sprintf("%s[%d]", d.DType, n))
	}
	switch kind := backend.KindNamed(d.Op); {
	case kind.Operation().Root:
		parts = append(parts, fmt.Sprintf("root %d", d.Root))
	case kind == backend.Send:
		parts = append(parts, fmt.Sprintf("to %d", *d.Peer))
	case kind == backend.Recv:
		from := "any rank"
		if *d.Peer >= 0 {
			from = fmt.Sprint(*d.Peer)
		}
		parts = append(parts, "from "+from)
	}
	if d.Tag != 0 {
		parts = append(parts, fmt.Sprintf("tag %d", d.Tag))
	}
	if d.Reduce != "" {
		parts = append(parts, d.Reduce)
	}
	if len(parts) == 0 {
		return d.Op
	}
	return d.Op + "(" + strings.Join(parts, ", ") + ")"
}

// Numbered is Call with the operation's number.
func Numbered(e *Entry, seq uint64) string {
	if seq == 0 {
		return Call(e)
	}
	return fmt.Sprintf("%s #%d", Call(e), seq)
}

// CallSite says where an operation was called.
func CallSite(frames []Frame) string {
	if len(frames) == 0 {
		return ""
	}
	f := frames[0]
	return fmt.Sprintf("%s (%s)", f.Place(), shortName(f.Name))
}

// shortFile keeps the last two parts of a path.
func shortFile(path string) string {
	dir, file := filepath.Split(path)
	if !filepath.IsAbs(path) && strings.Count(path, "/") < 2 {
		return path
	}
	return filepath.Join(filepath.Base(dir), file)
}

// shortName keeps a function's name from its package's on.
func shortName(name string) string { return name[strings.LastIndexByte(name, '/')+1:] }
