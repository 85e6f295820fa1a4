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

	"github.com/chorus-comms/chorus/observe"
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
	lock *os.File // on the job's own directory
}

// openRecords makes the job's directory. The error is no reason not to run the job.
func openRecords(jobs, job, given string) (*records, error) {
	if jobs == "" {
		return &records{}, nil
	}
	if err := os.MkdirAll(jobs, 0o700); err != nil {
		return &records{}, err
	}
	i, err := os.Lstat(jobs)
	if err != nil {
		return &records{}, err
	}
	if st, ok := i.Sys().(*syscall.Stat_t); !i.IsDir() || ok && int(st.Uid) != os.Getuid() {
		return &records{}, fmt.Errorf("%s belongs to another user; TMPDIR names another directory for temporary files", jobs)
	}
	prune(jobs)
	r := &records{dir: filepath.Join(jobs, job), own: given == ""}
	if !r.own {
		given, err := filepath.Abs(given)
		if err == nil {
			os.Remove(r.dir) // a link of a job of that name; a directory that isn't empty stays
			err = os.Symlink(given, r.dir)
		}
		if errors.Is(err, fs.ErrExist) {
			err = nil
		}
		return r, err
	}
	err = os.Mkdir(r.dir, 0o700)
	if errors.Is(err, fs.ErrExist) { // a job of the same name, which may be running
		r.dir += fmt.Sprintf(".%d", os.Getpid())
		os.RemoveAll(r.dir)
		err = os.Mkdir(r.dir, 0o700)
	}
	if err != nil {
		return &records{}, err
	}
	r.lock, _ = flock(r.dir, unix.LOCK_EX) // where there are no locks, prune goes by the time alone
	return r, nil
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
			l, err := lock(path)
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
	l, err := lock(dir)
	if err != nil {
		return
	}
	defer l.Close()
	for _, attempt := range children(dir, isAttempt) {
		if observe.Sweep(attempt, "") > 0 && os.Remove(attempt) == nil { // it was all
			os.Remove(dir)
		}
	}
}

// lock takes the lock of a directory, which nobody else has until the file is closed.
func lock(dir string) (*os.File, error) { return flock(dir, unix.LOCK_EX|unix.LOCK_NB) }

// flock takes the lock of a directory in one of flock(2)'s ways.
func flock(dir string, how int) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), how); err != nil {
		f.Close()
		return nil, fmt.Errorf("locking %s: %w", dir, err)
	}
	return f, nil
}

// attempt returns the directory of an attempt's records; empty if the ranks have one of the user's, or none.
func (r *records) attempt(number int) string {
	if !r.own {
		return ""
	}
	return filepath.Join(r.dir, fmt.Sprintf("attempt_%d", number))
}

// close removes the records of a job that ended well.
func (r *records) close(well bool) {
	switch {
	case r == nil:
		return
	case well && r.own:
		os.RemoveAll(r.dir)
	case well && r.dir != "":
		os.Remove(r.dir) // the link
	case r.own && r.dir != "":
		for _, attempt := range children(r.dir, isAttempt) {
			observe.Sweep(attempt, "")
		}
	}
	r.lock.Close() // a nil file only says so
}

// FindRecords returns the directory in which the ranks of a job record what they do: the newest attempt of the newest
// job of that name, or of any if it's empty, or the argument itself if it is a directory of such records.
func FindRecords(jobs, jobOrDir string) (string, error) {
	if i, err := os.Stat(jobOrDir); err == nil && i.IsDir() {
		return newestAttempt(jobOrDir), nil
	}
	found := children(jobs, func(name string) bool {
		return jobOrDir == "" || name == jobOrDir || strings.HasPrefix(name, jobOrDir+".")
	})
	switch {
	case len(found) > 0:
		return newestAttempt(slices.MaxFunc(found, byTime)), nil
	case jobOrDir == "":
		return "", fmt.Errorf("there is no job of `chorus run` in %s", jobs)
	default:
		return "", fmt.Errorf("there is no job or directory %q; jobs of `chorus run` are in %s", jobOrDir, jobs)
	}
}

// Ended returns the name of the job whose records are in a directory that FindRecords returned, if its launcher has
// ended and it can be told; else an empty string.
func Ended(jobs, dir string) string {
	if isAttempt(filepath.Base(dir)) {
		dir = filepath.Dir(dir)
	}
	if filepath.Dir(dir) != jobs {
		return "" // a directory of the user's
	}
	if i, err := os.Lstat(dir); err != nil || !i.IsDir() {
		return "" // a link: its launcher has no lock
	}
	l, err := flock(dir, unix.LOCK_SH|unix.LOCK_NB)
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

// newestAttempt goes from the directory of a job to that of its last attempt.
func newestAttempt(dir string) string {
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
	_, _ = observe.AskDumps(ctx, a.dumps) // who doesn't answer leaves no dump, and is reported so
}

// report tells the peers that this node's ranks are dead, with what they have recorded in a directory, and says what
// the records of all ranks tell of the failure.
func (r *runner) report(attempt int, f *Failure, dir string) {
	var dumps []*observe.Dump
	if dir != "" {
		dumps, _ = observe.ReadDir(dir, explainLast) // ranks that are no programs of ours record nothing
		// A directory of the user's may have those of other nodes.
		dumps = slices.DeleteFunc(dumps, func(d *observe.Dump) bool {
			return !slices.ContainsFunc(r.places, func(p place) bool { return p.rank == d.Chorus.Rank })
		})
	}
	told, ok := r.peers.stopped(attempt, f, dumps)
	switch {
	case !f.explainable():
	case !ok && dir != "":
		r.console.printf("the records of this node's ranks are in %s; with those of the other nodes beside them, chorus explain says more", dir)
	case told != "" && r.job.Nodes == 1:
		r.console.printf("what the ranks' records in %s tell:\n%s", dir, told)
	case told != "":
		r.console.printf("what the records of all nodes' ranks tell:\n%s", told)
	}
}

// explainable reports whether what the ranks did may have to do with the failure.
func (f *Failure) explainable() bool { return f.Kind != Interrupted && f.Kind != NotStarted }

// explainLast is how many of each rank's last operations are looked at.
const explainLast = 256
