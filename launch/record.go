package launch

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chorus-comms/chorus/launch/internal/process"
	"github.com/chorus-comms/chorus/launch/internal/rendezvous"
	"github.com/chorus-comms/chorus/observe"
	"github.com/chorus-comms/chorus/observe/record"
)

// dumpVariable tells the ranks where their flight records go.
const dumpVariable = "CHORUS_DUMP_DIR"

// JobsDir is where launchers of this user keep what their jobs record, each in a directory of the job's name.
func JobsDir() string { return filepath.Join(os.TempDir(), fmt.Sprintf("chorus-%d", os.Getuid())) }

// keepRecords is how long the records of a job that failed stay.
const keepRecords = 7 * 24 * time.Hour

// records is where the ranks of this node record what they do: in the directory that the environment names, or else in
// one of the job, which goes when the job ends well.
type records struct {
	dir  string   // of the job, in JobsDir; empty: nothing is kept there
	own  bool     // the ranks write there, and not to a directory of the user's, or nowhere
	lock *os.File // on the job's directory
}

// openRecords makes the job's directory. The error is no reason not to run the job.
func openRecords(jobs string, l label, given string) (r *records, err error) {
	r = &records{}
	if jobs == "" {
		return r, nil
	}
	if err := os.MkdirAll(jobs, 0o700); err != nil {
		return r, err
	}
	i, err := os.Lstat(jobs)
	if err != nil {
		return r, err
	}
	if st, ok := i.Sys().(*syscall.Stat_t); !i.IsDir() || ok && int(st.Uid) != os.Getuid() {
		return r, fmt.Errorf("%s belongs to another user; TMPDIR names another directory for temporary files", jobs)
	}
	prune(jobs)
	dir := filepath.Join(jobs, l.Job)
	if err = os.Mkdir(dir, 0o700); errors.Is(err, fs.ErrExist) { // a job of the same name, which may be running
		dir, err = os.MkdirTemp(jobs, l.Job+".*")
	}
	if err != nil {
		return r, err
	}
	lock, _ := process.Flock(dir, unix.LOCK_EX) // where there are no locks, prune goes by the time alone
	if err = l.write(dir); err == nil && given != "" {
		if given, err = filepath.Abs(given); err == nil {
			err = os.Symlink(given, filepath.Join(dir, givenName))
		}
	}
	if err != nil {
		lock.Close() // a nil file only says so
		os.RemoveAll(dir)
		return r, err
	}
	return &records{dir: dir, own: given == "", lock: lock}, nil
}

// prune removes what jobs left behind long ago. One that has run for so long has its directory's lock.
func prune(jobs string) {
	entries, _ := os.ReadDir(jobs)
	for _, e := range entries {
		path := filepath.Join(jobs, e.Name())
		if e.IsDir() {
			sweepJob(path)
		}
		i, err := e.Info()
		if err != nil || time.Since(i.ModTime()) <= keepRecords {
			continue
		}
		if e.IsDir() {
			l, err := process.Lock(path)
			if err != nil {
				continue
			}
			defer l.Close()
		}
		os.RemoveAll(path)
	}
}

// sweepJob removes the sockets of dead ranks from the directory of a job whose launcher has been killed, and the
// directory if they were all.
func sweepJob(dir string) {
	l, err := process.Lock(dir)
	if err != nil {
		return
	}
	defer l.Close()
	for _, attempt := range children(dir, isAttempt) {
		if record.Sweep(attempt, "") > 0 {
			os.Remove(attempt) // it was all
		}
	}
	if left := children(dir, func(string) bool { return true }); len(left) == 1 && filepath.Base(left[0]) == labelName {
		os.RemoveAll(dir)
	}
}

// attemptDir returns the directory of an attempt's records; empty if the ranks have one of the user's, or none.
func (r *records) attemptDir(number int) string {
	if !r.own {
		return ""
	}
	return filepath.Join(r.dir, fmt.Sprintf("attempt_%d", number))
}

// close removes the records of a job that ended well, and of one that didn't what killed ranks have left beside them;
// given is the user's directory.
func (r *records) close(well bool, job, given string) {
	if r == nil {
		return
	}
	switch {
	case r.dir == "":
	case well:
		os.RemoveAll(r.dir)
	case r.own:
		for _, attempt := range children(r.dir, isAttempt) {
			record.Sweep(attempt, "")
		}
	}
	if given != "" {
		record.Sweep(given, job)
	}
	r.lock.Close() // a nil file only says so
}

// Ended returns the name of the job whose records are in a directory that FindRecords returned, if its launcher has
// ended and that's known; else an empty string.
func Ended(jobs, dir string) string {
	if isAttempt(filepath.Base(dir)) {
		dir = filepath.Dir(dir)
	}
	if filepath.Dir(dir) != jobs {
		return "" // a directory of the user's
	}
	l, err := process.Flock(dir, unix.LOCK_SH|unix.LOCK_NB)
	if err != nil {
		return ""
	}
	l.Close()
	return filepath.Base(dir)
}

// children returns the paths of what is in a directory under names of a kind.
func children(dir string, kind func(name string) bool) (paths []string) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if kind(e.Name()) {
			paths = append(paths, filepath.Join(dir, e.Name()))
		}
	}
	return paths
}

// isAttempt tells the directories of attempts, in that of their job, by their names.
func isAttempt(name string) bool { return strings.HasPrefix(name, "attempt_") }

// newestAttempt goes from the directory of a job to that of its last attempt, or to the user's that it has instead.
func newestAttempt(dir string) string {
	if given, err := os.Readlink(filepath.Join(dir, givenName)); err == nil {
		return given
	}
	attempts := children(dir, isAttempt)
	if len(attempts) == 0 {
		return dir
	}
	return slices.MaxFunc(attempts, byTime)
}

func byTime(a, b string) int {
	at := func(path string) time.Time {
		i, err := os.Stat(path)
		if err != nil {
			return time.Time{}
		}
		return i.ModTime()
	}
	return at(a).Compare(at(b))
}

// dumpLimit bounds how long ranks have to write down what they do, before they are asked to end.
const dumpLimit = 2 * time.Second

// record has all ranks of this node write down what they do. They are asked by their sockets and not by SIGUSR1, which
// would kill a process that knows nothing of it.
func (a *attempt) record() {
	if a.dumps == "" || len(a.alive) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), dumpLimit)
	defer cancel()
	answers, _ := observe.AskDumps(ctx, a.dumps) // a rank that doesn't answer leaves no dump, and is reported so
	for _, x := range answers {
		if no, ok := errors.AsType[*observe.RefusedError](x.Err); ok {
			a.console.Printf("ranks can't record what they do: %v", ifFull(no, a.dumps))
			return
		}
	}
}

// report tells the peers that this node's ranks are dead, with what they have recorded in a directory, and says what
// the records of all ranks tell of the failure.
func (r *runner) report(s *rendezvous.Start, f *Failure, dir string, begun time.Time) {
	var dumps []*observe.Dump
	if dir != "" {
		lives, _ := observe.ReadLives(dir, explainLast) // ranks that are no programs of ours record nothing
		dumps = r.recorded(lives, s.Restarts, begun)
	}
	told, ok := r.peers.Stopped(s.Attempt, f, dumps)
	switch {
	case !f.Explainable() || !r.speaks():
	case !ok && dir != "":
		r.console.Printf("the records of this node's ranks are in %s; with those of the other nodes beside them, chorus explain says more", dir)
	case told != "" && r.job.Nodes == 1:
		r.console.Printf("from the ranks' records in %s:\n%s", dir, told)
	case told != "":
		r.console.Printf("from the records of all nodes' ranks:\n%s", told)
	}
}

// recorded returns what this node's ranks have recorded in an attempt, of what there is in their directory. One of the
// user's may have the records of other nodes, other jobs, and earlier lives of this one. Ranks know how often they
// were restarted.
func (r *runner) recorded(lives observe.Lives, restarts int, begun time.Time) []*observe.Dump {
	var own []*observe.Dump
	for _, l := range lives {
		these := slices.DeleteFunc(slices.Clone(l), func(d *observe.Dump) bool {
			h := &d.Chorus
			here := slices.ContainsFunc(r.places, func(p process.Place) bool { return p.Rank == h.Rank })
			return !here || !r.records.own && (h.Attempt != restarts || h.Time < begun.UnixNano())
		})
		if len(these) > 0 && (own == nil || l.Job() == r.job.RunID && own[0].Chorus.Job != r.job.RunID) {
			own = these
		}
	}
	return own
}

// explainLast is how many of each rank's last operations are looked at.
const explainLast = 256
