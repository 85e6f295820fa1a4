package observe

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/internal/plain"
	"github.com/chorus-comms/chorus/internal/sys"
	"github.com/chorus-comms/chorus/observe/record"
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
	return d, checkDump(d)
}

// cut divides a dump, as Rank writes it, into a dump without entries and the lines of the entries.
func cut(data []byte) (head, lines []byte, ok bool) {
	first, lines, ok := bytes.Cut(data, []byte("\n"))
	if !ok || !bytes.HasSuffix(first, []byte(record.EntriesMark)) {
		return nil, nil, false
	}
	lines, ok = bytes.CutSuffix(bytes.TrimRight(lines, "\n"), []byte(record.EndMark))
	return append(slices.Clip(first), record.EndMark...), bytes.TrimRight(lines, "\n"), ok
}

// maxRanks is more than a job has; Explain takes memory for each of them.
const maxRanks = 1 << 22

// check refuses values that no rank writes, so that users of the dump need not.
func checkDump(d *Dump) error {
	h := &d.Chorus
	if h.Format != record.Format {
		return fmt.Errorf("observe: a dump of format %d; this program reads %d", h.Format, record.Format)
	}
	if h.Size < 1 || h.Size > maxRanks || h.Rank < 0 || h.Rank >= h.Size {
		return fmt.Errorf("observe: a dump of rank %d of %d", h.Rank, h.Size)
	}
	for i := range h.Comms {
		c := &h.Comms[i]
		if err := checkMembers(c.Name, c.Rank, c.Members, h.Rank, h.Size); err != nil {
			return err
		}
	}
	for i := range d.Entries {
		if err := checkEntry(&d.Entries[i], h); err != nil {
			return err
		}
	}
	return nil
}

// checkMembers refuses a communicator of a rank of a job which isn't among its members, or whose members aren't ranks.
func checkMembers(name string, me int, members []int, rank, size int) error {
	if me < 0 || me >= len(members) || members[me] != rank {
		return fmt.Errorf("observe: rank %d is not rank %d of communicator %q", rank, me, name)
	}
	for _, m := range members {
		if m < 0 || m >= size {
			return fmt.Errorf("observe: communicator %q has a member %d", name, m)
		}
	}
	return nil
}

// check refuses an operation that lacks what every recorder writes: a communicator, the sizes of its tensors, and a
// message's peer.
func checkEntry(e *Entry, h *Header) error {
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

const (
	// maxFile bounds the dumps that are read whole. It's more than the largest that a recorder of ordinary length makes.
	maxFile = 1 << 30
	// maxPart bounds what is read of the first line, and of the last operations, of a dump that isn't.
	maxPart = 32 << 20
)

// ReadFile reads the dump in a file. See Parse for last. It's an error if the file isn't a regular one, or is too large
// for a dump.
func ReadFile(path string, last int) (*Dump, error) {
	data, err := readFile(path, last)
	if err != nil {
		return nil, fmt.Errorf("observe: %s: %w", plain.Line(path), err)
	}
	d, err := Parse(data, last)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", plain.Line(path), err)
	}
	d.File = record.NameOf(path)
	return d, nil
}

// readFile returns what a file has; of a long one whose last operations are wanted, its first line and its end.
func readFile(path string, last int) ([]byte, error) {
	if last <= 0 {
		return sys.ReadRegular(path, maxFile)
	}
	f, size, err := sys.OpenRegular(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if size <= 2*maxPart {
		return io.ReadAll(io.LimitReader(f, 2*maxPart))
	}
	head, err := io.ReadAll(io.LimitReader(f, maxPart))
	if err != nil {
		return nil, err
	}
	line := bytes.IndexByte(head, '\n') + 1
	if line == 0 {
		return nil, fmt.Errorf("it's no dump: its first line has more than %d bytes", maxPart)
	}
	end, err := io.ReadAll(io.NewSectionReader(f, size-maxPart, maxPart))
	if err != nil {
		return nil, err
	}
	return append(head[:line:line], end[bytes.IndexByte(end, '\n')+1:]...), nil
}

// matching returns the paths of a directory's files whose names match a pattern. The directory's own name is none.
func matching(dir, pattern string) ([]string, error) {
	paths, err := fs.Glob(os.DirFS(dir), pattern)
	for i, name := range paths {
		paths[i] = filepath.Join(dir, name)
	}
	return paths, err
}

// Recorded reports whether ranks have dumped into a directory, or answer there.
func Recorded(dir string) bool {
	for _, suffix := range []string{record.DumpSuffix, record.SocketSuffix} {
		if paths, _ := matching(dir, "*"+record.RankMark+"*"+suffix); len(paths) > 0 {
			return true
		}
	}
	return false
}

// ReadDir reads the dumps of a directory that belong to the life of a job which has left the last one, in the order of
// the ranks. If some dumps can't be read, it returns the others and an error that says which.
func ReadDir(dir string, last int) ([]*Dump, error) {
	lives, err := ReadLives(dir, last)
	if len(lives) == 0 {
		return nil, err
	}
	return lives[0], err
}

// ReadLives reads all dumps of a directory. If some can't be read, it returns the others and an error that says which.
// There is at least one, or an error.
func ReadLives(dir string, last int) (Lives, error) {
	paths, err := matching(dir, "*"+record.RankMark+"*"+record.DumpSuffix)
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
	lives, err := livesOf(slices.DeleteFunc(dumps, func(d *Dump) bool { return d == nil }))
	return lives, errors.Join(append(errs, err)...)
}
