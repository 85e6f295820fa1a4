package record

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/dtype"
)

// stackLimit is how much of the goroutines' stacks a dump has.
const stackLimit = 64 << 10

// dump writes the rank's file: NAME_rank_N, in which NAME is the job's; whole or not at all.
func (r *Rank) dump(dir, reason string) (string, error) {
	d := r.Snapshot(reason)
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return "", fmt.Errorf("observe: %w", err)
	}
	f, err := os.CreateTemp(dir, unfinishedMark+r.name+"-*")
	if err != nil {
		return "", fmt.Errorf("observe: %w", err)
	}
	defer os.Remove(f.Name())
	path := filepath.Join(dir, r.name+DumpSuffix)
	err = d.Write(f)
	err = errors.Join(err, f.Chmod(0o644), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return "", fmt.Errorf("observe: dump of rank %d: %w", r.rank, err)
	}
	return path, nil
}

// Parts of the names of a rank's files: of its dump, of its socket, and of a dump that isn't finished.
const (
	RankMark       = "_rank_"
	DumpSuffix     = ".json"
	SocketSuffix   = ".sock"
	unfinishedMark = ".dump-"
)

// FileName is the name of a rank's files, without what they end in.
func FileName(job string, rank int) string { return fmt.Sprint(CleanName(job), RankMark, rank) }

// CleanName is a job's name as the names of files have it.
func CleanName(job string) string {
	clean := strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '.' {
			return c
		}
		return '-'
	}, job)
	return cmp.Or(strings.TrimLeft(clean, "."), "job")
}

// NameOf is the name of a rank's files of which a path is one.
func NameOf(path string) string {
	return strings.TrimSuffix(strings.TrimSuffix(filepath.Base(path), SocketSuffix), DumpSuffix)
}

// The file is JSON with all but the entries on its first line and an entry on each line that follows, so that a
// reader may do with the last of them.
const (
	EntriesMark = `"entries":[`
	EndMark     = "]}"
)

// Write writes the dump as [Rank] does into files.
func (d *Dump) Write(f io.Writer) error {
	w := bufio.NewWriterSize(f, 1<<16)
	head := *d
	head.Entries = []Entry{}
	line, err := json.Marshal(&head)
	if err != nil {
		return err
	}
	w.Write(line[:len(line)-len(EndMark)])
	for i := range d.Entries {
		if i > 0 {
			w.WriteByte(',')
		}
		w.WriteByte('\n')
		if line, err = json.Marshal(&d.Entries[i]); err != nil {
			return err
		}
		w.Write(line)
	}
	w.WriteString("\n" + EndMark + "\n")
	return w.Flush()
}

// Snapshot returns the rank's dump as it is now. It needs no lock that an operation holds.
func (r *Rank) Snapshot(reason string) *Dump {
	l := calibrate()
	host, _ := os.Hostname()
	d := &Dump{Version: Version, Groups: map[string]Group{}, Chorus: Header{Format: Format, Job: r.job, Rank: r.rank,
		Size: r.size, Attempt: r.Attempt,
		Host: host, Pid: os.Getpid(), Started: processBegan.UnixNano(), Time: time.Now().UnixNano(), Reason: reason,
		Panics: r.panics.Load(), Raised: r.raised.Load(), Stacks: stacks(), Threads: threads()}}
	place := placer{}
	for i, c := range r.recorders() {
		st, entries := c.snapshot(i, l, place)
		d.Chorus.Comms = append(d.Chorus.Comms, st)
		d.Groups[c.name] = Group{Name: c.name, Desc: c.name, Ranks: "[" +
			strings.Trim(strings.ReplaceAll(fmt.Sprint(c.members), " ", ", "), "[]") + "]"}
		d.Entries = append(d.Entries, entries...)
	}
	slices.SortStableFunc(d.Entries, func(a, b Entry) int { return cmp.Compare(a.Created, b.Created) })
	return d
}

func stacks() string {
	buf := make([]byte, stackLimit)
	return string(buf[:runtime.Stack(buf, true)])
}

// snapshot returns the communicator's state and its operations, oldest first.
func (r *Recorder) snapshot(index int, l timeline, place placer) (CommState, []Entry) {
	st := CommState{Name: r.name, Rank: r.me, Members: r.members, Recorded: r.recorded()}
	if e := r.engine.Load(); e != nil {
		st.Engine = (*e).EngineCalls()
	}
	cells := slices.Collect(r.all())
	r.algos.Lock()
	algos := slices.Clone(r.algos.all) // after the operations, whose algorithms are among them therefore
	r.algos.Unlock()
	var entries []Entry
	for _, s := range cells {
		e := r.entry(&s, l, algos, place)
		e.Chorus.Comm = index
		if e.Chorus.Status == Done.String() && !e.PointToPoint {
			st.Done = max(st.Done, e.Seq)
		}
		entries = append(entries, e)
	}
	slices.SortStableFunc(entries, func(a, b Entry) int { return cmp.Compare(a.Created, b.Created) })
	for i := range entries {
		entries[i].Record = st.Recorded - min(st.Recorded, uint64(len(entries))) + uint64(i)
	}
	r.cold.Lock()
	defer r.cold.Unlock()
	st.Refused, st.RefusedAt = r.cold.refused, r.cold.after
	if r.cold.cause != nil {
		st.Failure = failure(r.cold.cause, r.cold.at)
	}
	return st, entries
}

// load copies a cell, unless it doesn't hold, or while it's copied no longer holds, the operation. It loads what is
// stored last first, and nothing that a state which it hasn't seen would have stored.
func (s *cell) load(id uint64) (c cell, ok bool) {
	if id == 0 || load(&s.published) != id {
		return c, false
	}
	if c.ended = load(&s.ended); c.ended != 0 {
		c.result = load(&s.result)
	}
	if c.started = load(&s.started); c.started|c.ended != 0 {
		c.seq = load(&s.seq)
	}
	c.what, c.tag, c.in, c.out, c.issued = load(&s.what), load(&s.tag), load(&s.in), load(&s.out), load(&s.issued)
	for i := range s.callers {
		c.callers[i] = atomic.LoadUintptr(&s.callers[i])
	}
	return c, load(&s.begun) == id
}

func (r *Recorder) entry(s *cell, l timeline, algos []string, place placer) Entry {
	e := Entry{Group: [2]string{r.name, r.name}, Created: l.at(s.issued), State: "scheduled",
		InSizes: [][]int{{int(s.in)}}, OutSizes: [][]int{{int(s.out)}}, Frames: place.frames(s.callers[:])}
	d := &e.Chorus
	status := Pending
	if s.ended != 0 {
		status = Status(s.result & 0xff)
	}
	d.Status, d.Async = status.String(), s.what&flagAsync != 0
	if s.what&flagSpecial != 0 {
		d.Op = specialNames[min(s.what&0xff, uint64(len(specialNames)-1))]
		e.Name = torchBackend + d.Op
	} else {
		kind := backend.Kind(s.what & 0xff)
		where := int(int32(s.what >> 32))
		d.Op, e.Name = kind.String(), torchBackend+kind.String()
		dt := dtype.DType(s.what >> 8 & 0xff)
		if dt != dtype.Invalid {
			d.DType = dt.String()
		}
		e.InDTypes = []string{torchDType(dt)}
		e.OutDTypes = e.InDTypes
		if red := backend.ReduceKind(s.what >> 16 & 0xff); red != 0 {
			d.Reduce = red.String()
		}
		e.PointToPoint = kind.PointToPoint()
		switch kind {
		case backend.Send:
			d.Peer, d.Tag = &where, int(s.tag)
			e.Name += fmt.Sprintf(" %d->%d", r.me, where)
		case backend.Recv:
			if from := int(int32(s.result >> 32)); where == backend.AnySource && status == Done {
				where = from
			}
			d.Peer, d.Tag = &where, int(s.tag)
			e.Name += fmt.Sprintf(" %d<-%d", r.me, where)
		default:
			d.Root = where
			e.Seq = s.seq
		}
	}
	if a := int(s.result >> 8 & 0xffffff); a > 0 && a <= len(algos) {
		d.Algorithm = algos[a-1]
	}
	e.Op = e.Seq
	if s.started != 0 {
		at := l.at(s.started)
		e.Started, e.State = &at, "started"
	}
	if s.ended > untimed {
		at := l.at(s.ended)
		e.Completed = &at
	}
	if status == Done {
		e.State, e.Retired = "completed", true
	}
	return e
}

// torchBackend stands before the names of operations: PyTorch's analyzer refuses names of backends that it doesn't
// know.
const torchBackend = "gloo:"

// torchDType is the name that PyTorch's recorder gives an element type.
func torchDType(d dtype.DType) string {
	switch d {
	case dtype.Float32:
		return "Float"
	case dtype.Float64:
		return "Double"
	case dtype.Float16:
		return "Half"
	case dtype.BFloat16:
		return "BFloat16"
	case dtype.Int64:
		return "Long"
	case dtype.Int32:
		return "Int"
	case dtype.Int16:
		return "Short"
	case dtype.Int8:
		return "Char"
	case dtype.Uint8:
		return "Byte"
	case dtype.Bool:
		return "Bool"
	case dtype.Invalid:
		return ""
	}
	return d.String()
}

// failure turns an error into what a dump says of it.
func failure(err error, at time.Time) *Failure {
	f := &Failure{Kind: statusOf(err).String(), Message: err.Error(), Time: at.UnixNano()}
	if w := interface{ At() backend.Where }(nil); errors.As(err, &w) {
		f.Op, f.Seq = w.At().Op, w.At().Seq
	}
	var lost *backend.PeerLostError
	var aborted *backend.AbortedError
	switch {
	case errors.As(err, &aborted): // whose reason may be an error of another communicator, with other ranks
		f.Peer = &aborted.By
		return f
	case errors.As(err, &lost):
		f.Peer = &lost.Peer
	}
	if a := interface{ Attended() *backend.Attendance }(nil); errors.As(err, &a) {
		f.Missing, f.Arrived, f.Refused, f.Doing = a.Attended().Missing, a.Attended().Arrived, a.Attended().Refused,
			a.Attended().Doing
	}
	return f
}
