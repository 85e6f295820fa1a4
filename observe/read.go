package observe

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"

	"github.com/chorus-comms/chorus/comm/backend"
)

// Parse reads a dump. Where it has more than last entries it may leave out the older ones; 0 means all.
func Parse(data []byte, last int) (*Dump, error) {
	d := new(Dump)
	head, lines, ok := cut(data)
	if !ok || last == 0 {
		head, lines = data, nil
	}
	if err := json.Unmarshal(head, d); err != nil {
		return nil, fmt.Errorf("observe: not a dump: %w", err)
	}
	if ok && last > 0 {
		for i := 0; i < last && len(lines) > 0; i++ {
			at := bytes.LastIndexByte(lines, '\n') + 1
			var e Entry
			if err := json.Unmarshal(bytes.TrimSuffix(lines[at:], []byte(",")), &e); err != nil {
				return nil, fmt.Errorf("observe: an entry of a dump: %w", err)
			}
			d.Entries = append(d.Entries, e)
			lines = lines[:max(at-1, 0)]
		}
		slices.Reverse(d.Entries)
	}
	return d, d.check()
}

// cut divides a dump, as Rank writes it, into a dump without entries and the lines of the entries.
func cut(data []byte) (head, lines []byte, ok bool) {
	first, lines, ok := bytes.Cut(data, []byte("\n"))
	if !ok || !bytes.HasSuffix(first, []byte(entriesMark)) {
		return nil, nil, false
	}
	lines, ok = bytes.CutSuffix(bytes.TrimRight(lines, "\n"), []byte(endMark))
	return append(slices.Clip(first), endMark...), bytes.TrimRight(lines, "\n"), ok
}

// maxRanks is more than a job has; Explain takes memory for each of them.
const maxRanks = 1 << 22

// check refuses what no rank writes, so that whoever uses the dump need not.
func (d *Dump) check() error {
	h := &d.Chorus
	if h.Format != Format {
		return fmt.Errorf("observe: a dump of format %d; this program reads %d", h.Format, Format)
	}
	if h.Size < 1 || h.Size > maxRanks || h.Rank < 0 || h.Rank >= h.Size {
		return fmt.Errorf("observe: a dump of rank %d of %d", h.Rank, h.Size)
	}
	for i := range h.Comms {
		c := &h.Comms[i]
		if c.Rank < 0 || c.Rank >= len(c.Members) || c.Members[c.Rank] != h.Rank {
			return fmt.Errorf("observe: rank %d is not rank %d of communicator %q", h.Rank, c.Rank, c.Name)
		}
		for _, m := range c.Members {
			if m < 0 || m >= h.Size {
				return fmt.Errorf("observe: communicator %q has a member %d", c.Name, m)
			}
		}
	}
	for i := range d.Entries {
		if err := d.Entries[i].check(h); err != nil {
			return err
		}
	}
	return nil
}

// check refuses an operation that lacks what every recorder writes: a communicator, the sizes of its tensors, and a
// message's peer.
func (e *Entry) check(h *Header) error {
	d := &e.Chorus
	switch {
	case d.Comm < 0 || d.Comm >= len(h.Comms):
		return errors.New("observe: an entry of a communicator that the dump doesn't have")
	case len(e.InSizes) == 0 || len(e.InSizes[0]) == 0 || len(e.OutSizes) == 0 || len(e.OutSizes[0]) == 0:
		return fmt.Errorf("observe: an entry of %q without sizes", d.Op)
	case d.Peer == nil && (e.PointToPoint || d.Op == backend.Send.String() || d.Op == backend.Recv.String()):
		return fmt.Errorf("observe: an entry of %q without a peer", d.Op)
	}
	return nil
}

// ReadFile reads the dump in a file. See Parse for last.
func ReadFile(path string, last int) (*Dump, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("observe: %w", err)
	}
	d, err := Parse(data, last)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return d, nil
}

// matching returns the paths of a directory's files whose names match a pattern. The directory's own name is none.
func matching(dir, pattern string) ([]string, error) {
	paths, err := fs.Glob(os.DirFS(dir), pattern)
	for i, name := range paths {
		paths[i] = filepath.Join(dir, name)
	}
	return paths, err
}

// ReadDir reads all dumps of a directory, in the order of the ranks. They must be of one job. If some can't be read, it
// returns the others and an error that says which.
func ReadDir(dir string, last int) ([]*Dump, error) {
	paths, err := matching(dir, "*_rank_*.json")
	if err != nil {
		return nil, fmt.Errorf("observe: %w", err)
	}
	if len(paths) == 0 {
		if _, err := os.Stat(dir); err != nil {
			return nil, fmt.Errorf("observe: %w", err)
		}
		return nil, fmt.Errorf("observe: no dumps, *_rank_N.json, in %s", dir)
	}
	dumps := make([]*Dump, len(paths))
	errs := make([]error, len(paths))
	next := make(chan int, len(paths))
	for i := range paths {
		next <- i
	}
	close(next)
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for i := range next {
				dumps[i], errs[i] = ReadFile(paths[i], last)
			}
		})
	}
	wg.Wait()
	dumps = slices.DeleteFunc(dumps, func(d *Dump) bool { return d == nil })
	if len(dumps) == 0 {
		return nil, errors.Join(errs...)
	}
	slices.SortFunc(dumps, func(a, b *Dump) int { return a.Chorus.Rank - b.Chorus.Rank })
	for i, d := range dumps[1:] {
		a, b := &dumps[i].Chorus, &d.Chorus
		switch {
		case a.Job != b.Job || a.Size != b.Size:
			return nil, fmt.Errorf("observe: %s has dumps of more than one job: %q of %d ranks, %q of %d", dir, a.Job, a.Size,
				b.Job, b.Size)
		case a.Rank == b.Rank:
			return nil, fmt.Errorf("observe: %s has two dumps of rank %d", dir, a.Rank)
		}
	}
	return dumps, errors.Join(errs...)
}
