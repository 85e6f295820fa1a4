package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// The comments between which a page holds the report.
const (
	docsBegin = "<!-- compare: begin -->\n"
	docsEnd   = "<!-- compare: end -->\n"
)

// writePlots draws one plot for each placement, to PREFIX-near.svg and the like.
func (r *report) writePlots(prefix string) error {
	for _, where := range poolBursts(r.Bursts).placements() {
		f, err := os.Create(prefix + "-" + where + ".svg")
		if err != nil {
			return err
		}
		err = r.plot(where).Write(f)
		if e := f.Close(); err == nil {
			err = e
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// writeDocs replaces a page's report, and draws the plots beside it.
func (r *report) writeDocs(page string) error {
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	before, rest, ok := strings.Cut(string(text), docsBegin)
	_, after, ok2 := strings.Cut(rest, docsEnd)
	if !ok || !ok2 {
		return fmt.Errorf("%s lacks the lines %q and %q", page, strings.TrimSpace(docsBegin), strings.TrimSpace(docsEnd))
	}
	var b strings.Builder
	b.WriteString(before + docsBegin + "\n")
	r.writeText(&b)
	b.WriteString("\n")
	for _, where := range poolBursts(r.Bursts).placements() {
		fmt.Fprintf(&b, "![All-reduce, cores %s: the time over the size](compare-%s.svg)\n", where, where)
	}
	b.WriteString("\n" + docsEnd + after)
	if err := os.WriteFile(page, []byte(b.String()), 0o644); err != nil {
		return err
	}
	return r.writePlots(filepath.Join(filepath.Dir(page), "compare"))
}
