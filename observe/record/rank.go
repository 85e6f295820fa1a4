package record

import (
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Settings say what is recorded and where dumps go.
type Settings struct {
	Entries int    // operations that each communicator's recorder keeps; 0: none, and nothing is ever dumped
	Dir     string // where dumps go at the first failure and at SIGUSR1; empty: nowhere
	Attempt int    // how often the launcher had started the ranks again
}

// processBegan is when the process began, or loaded the library.
var processBegan = time.Now()

// Rank is one rank of a job in this process, with the recorders of its communicators. They are what a dump holds.
type Rank struct {
	Settings
	job        string
	rank, size int
	name       string // of its files

	first  sync.Mutex
	dumped occasion // of the first failure; guarded by first
	panics atomic.Bool
	raised atomic.Pointer[Raised]
	status *statusServer // nil without a directory
	mu     sync.Mutex
	comms  []*Recorder
	ended  []*Recorder // those that were closed after the rank had raised
}

// ranks are those of this process. There are several where ranks are goroutines.
var ranks struct {
	sync.Mutex
	all       []*Rank
	listening bool
}

// Open makes the recorder of a communicator that was not split off another, and whose ranks are therefore the job's. It
// returns nil if nothing is to be recorded. Communicators of the same job and rank share their dump.
func Open(s Settings, job, name string, rank, size int) *Recorder {
	if s.Entries == 0 {
		return nil
	}
	members := make([]int, size)
	for m := range members {
		members[m] = m
	}
	return rankOf(s, job, rank, size, func(r *Rank) bool { return !r.has(name) }).add(name, rank, members)
}

// OpenPart is Open of a communicator of some of a job's ranks that was not split off another. Members lists them, by
// rank of the communicator, of which this is rank me; the job has size ranks.
func OpenPart(s Settings, job, name string, me int, members []int, size int) *Recorder {
	if s.Entries == 0 {
		return nil
	}
	return rankOf(s, job, members[me], size, func(*Rank) bool { return true }).add(name, me, members)
}

// rankOf returns a rank of this process that takes the communicator to be opened, or a new one.
func rankOf(s Settings, job string, rank, size int, takes func(*Rank) bool) *Rank {
	ranks.Lock()
	defer ranks.Unlock()
	i := slices.IndexFunc(ranks.all, func(r *Rank) bool {
		return r.job == job && r.rank == rank && r.size == size && r.Settings == s && takes(r)
	})
	if i < 0 {
		i = len(ranks.all)
		r := &Rank{Settings: s, job: job, rank: rank, size: size, name: FileName(job, rank)}
		if s.Dir != "" {
			r.status = r.openStatusServer()
		}
		ranks.all = append(ranks.all, r)
	}
	if s.Dir != "" && !ranks.listening {
		ranks.listening = true
		listen()
	}
	return ranks.all[i]
}

// has reports whether the rank has a communicator of this name. One process can hold two ranks 0 of as many worlds
// called "world"; that distinguishes them.
func (r *Rank) has(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.comms, func(c *Recorder) bool { return c.name == name })
}

// recorders returns those of the rank's communicators.
func (r *Rank) recorders() []*Recorder {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Concat(r.ended, r.comms)
}

func (r *Rank) add(name string, me int, members []int) *Recorder {
	rec := newRecorder(r, name, me, members, r.Entries)
	r.mu.Lock()
	for _, c := range r.comms {
		if c.name == name && slices.Equal(c.members, members) {
			rec.nth = max(rec.nth, c.nth+1)
		}
	}
	r.comms = append(r.comms, rec)
	r.mu.Unlock()
	return rec
}

// Rank is the rank of the job whose dumps hold the recorder.
func (r *Recorder) Rank() *Rank { return r.rank }

// Split makes the recorder of a communicator that was split off this one's; group lists its members by ranks of this
// one.
func (r *Recorder) Split(name string, me int, group []int) *Recorder {
	if r == nil {
		return nil
	}
	members := make([]int, len(group))
	for i, m := range group {
		members[i] = r.members[m]
	}
	return r.rank.add(name, me, members)
}

// Close ends the recorder with its communicator: later dumps don't hold it, unless the rank's program is ending by an
// exception. A dump that is asked for in the middle of that replaces the one of the exception, and is to tell as much.
func (r *Recorder) Close() {
	if r == nil {
		return
	}
	ranks.Lock()
	defer ranks.Unlock()
	k := r.rank
	k.mu.Lock()
	k.comms = slices.DeleteFunc(k.comms, func(c *Recorder) bool { return c == r })
	if k.raised.Load() != nil {
		k.ended = append(k.ended, r)
	}
	last := len(k.comms) == 0
	k.mu.Unlock()
	if last {
		ranks.all = slices.DeleteFunc(ranks.all, func(x *Rank) bool { return x == k })
		k.status.close()
	}
}

// embedded reports whether this is a library in a process of another language.
var embedded atomic.Bool

// EmbeddedInHost says that this is a library in a process of another language, whose handler of SIGUSR1 is left alone
// if it has one.
func EmbeddedInHost() { embedded.Store(true) }

// handled reports whether the process has a handler of a signal. Go programs have one of all.
func handled(s syscall.Signal) bool {
	text, _ := os.ReadFile("/proc/self/status")
	_, mask, ok := strings.Cut(string(text), "\nSigCgt:")
	if !ok {
		return false
	}
	mask, _, _ = strings.Cut(mask, "\n")
	bits, err := strconv.ParseUint(strings.TrimSpace(mask), 16, 64)
	return err == nil && bits>>(s-1)&1 != 0
}

// listen dumps all ranks at each SIGUSR1, for as long as the process lives. Nothing else in Go that is notified of the
// signal misses it.
func listen() {
	if embedded.Load() && handled(syscall.SIGUSR1) {
		return
	}
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGUSR1)
	go func() {
		for range c {
			for _, r := range all() {
				if r.Dir != "" {
					r.dump(r.Dir, "SIGUSR1")
				}
			}
		}
	}()
}

func all() []*Rank {
	ranks.Lock()
	defer ranks.Unlock()
	return slices.Clone(ranks.all)
}

// occasion is when a rank is dumped at its first failure: when it learns of it, and again, in place of that dump, when
// an operation has returned it or the program ends by it. The rank may be stuck and that never happen; if it does, the
// dump tells of this operation, too, and where in the program it is. A message that is late breaks nothing, so that its
// dump gives way to that of a failure.
type occasion int

const (
	late occasion = iota + 1
	learned
	returned
)

// failed dumps the rank at its first failure. All callers return when the dump is written.
func (r *Rank) failed(o occasion) {
	if r.Dir == "" {
		return
	}
	r.first.Lock()
	defer r.first.Unlock()
	if r.dumped < o {
		r.dumped = o
		r.dump(r.Dir, "failure")
	}
}

// Panicked records that the rank's program ends by a panic, and has the rank dumped if that is its first failure.
func (r *Recorder) Panicked() {
	if r != nil {
		r.rank.panics.Store(true)
		r.rank.failed(returned)
	}
}

// Raise records that the process's program ends by an exception, and has its ranks dumped if that is their first
// failure.
func Raise(x Raised) {
	for _, r := range all() {
		r.raised.Store(&x)
		r.failed(returned)
	}
}

// Watches reports whether a goroutine should wait for the communicator to break, and call Failed even if no operation
// is under way.
func (r *Recorder) Watches() bool { return r != nil && r.rank.Dir != "" }

// DumpAll writes the dump of every rank of this process into dir, which is made if need be, and returns the files'
// paths. It may be called at any time, whatever the communicators are doing.
func DumpAll(dir string) ([]string, error) {
	var files []string
	for _, r := range all() {
		path, err := r.dump(dir, "request")
		if err != nil {
			return files, err
		}
		files = append(files, path)
	}
	return files, nil
}
