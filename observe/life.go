package observe

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/chorus-comms/chorus/internal/plain"
	"github.com/chorus-comms/chorus/observe/record"
)

// A directory may hold what several jobs have left, or one job that was started several times. A rank's record explains
// another's only if both belong to one life of a job. Its dumps have the same name, size and attempt, and all of its
// processes had begun before the first dump was written.

// Life is the dumps of one life of a job, in the order of the ranks.
type Life []*Dump

// Job returns the job's name.
func (l Life) Job() string { return l[0].Chorus.Job }

// Written returns when the last of the dumps was written.
func (l Life) Written() time.Time {
	var last int64
	for _, d := range l {
		last = max(last, d.Chorus.Time)
	}
	return time.Unix(0, last)
}

// began returns when the first of the processes began; zero if the dumps don't say.
func (l Life) began() time.Time {
	var first int64
	for _, d := range l {
		if s := d.Chorus.Started; s != 0 && (first == 0 || s < first) {
			first = s
		}
	}
	if first == 0 {
		return time.Time{}
	}
	return time.Unix(0, first)
}

// String says which job it is, for lists of several.
func (l Life) String() string {
	h := &l[0].Chorus
	s := fmt.Sprintf("job %q of %d ranks", h.Job, h.Size)
	if h.Attempt > 0 {
		s += fmt.Sprintf(", attempt %d", h.Attempt)
	}
	return s + l.Written().Format(", written 2006-01-02 15:04:05")
}

// Silent returns those ranks of this life that don't answer, of what AskDumps returned for the directory.
func (l Life) Silent(answers []Answer) []Silent {
	var own []Answer
	for _, a := range answers {
		if strings.HasPrefix(record.NameOf(a.Path), record.CleanName(l.Job())+record.RankMark) && !a.Born.Before(l.began()) {
			own = append(own, a)
		}
	}
	return SilentOf(own)
}

// asked reports whether a rank of this life has written its dump for an answer.
func (l Life) asked(answers []Answer) bool {
	return slices.ContainsFunc(answers, func(a Answer) bool {
		return a.Err == nil && slices.ContainsFunc(l, func(d *Dump) bool { return d.File == record.NameOf(a.Path) })
	})
}

// Lives are those of the dumps of a directory, the last one first.
type Lives []Life

// Running returns those lives whose ranks have answered; see AskDumps.
func (all Lives) Running(answers []Answer) (running Lives) {
	for _, l := range all {
		if l.asked(answers) {
			running = append(running, l)
		}
	}
	return running
}

// hostsApart is by how much the clocks of two hosts may differ for which a rank of the one is taken to have begun after
// a dump on the other was written.
const hostsApart = time.Minute

// earlier reports whether a dump was written before the process of another of its job began.
func earlier(d, than *Dump) bool {
	apart := int64(0)
	if d.Chorus.Host != than.Chorus.Host {
		apart = int64(hostsApart)
	}
	return than.Chorus.Started != 0 && d.Chorus.Time+apart < than.Chorus.Started
}

// livesOf sorts dumps by the lives that they belong to. Two dumps of one rank in one life are an error: they are of two
// jobs of one name that ran at the same time, and can't be distinguished. Such a life is left out.
func livesOf(dumps []*Dump) (lives Lives, err error) {
	type key struct {
		job           string
		size, attempt int
	}
	jobs := map[key][]*Dump{}
	for _, d := range dumps {
		k := key{d.Chorus.Job, d.Chorus.Size, d.Chorus.Attempt}
		jobs[k] = append(jobs[k], d)
	}
	var errs []string
	for _, left := range jobs {
		// The last one first: what was written before one of those began belongs to an earlier life.
		slices.SortFunc(left, func(a, b *Dump) int { return cmp.Compare(b.Chorus.Time, a.Chorus.Time) })
		for len(left) > 0 {
			var life Life
			var before []*Dump
			for _, d := range left {
				if slices.ContainsFunc(life, func(than *Dump) bool { return earlier(d, than) }) {
					before = append(before, d)
				} else {
					life = append(life, d)
				}
			}
			left = before
			slices.SortStableFunc(life, func(a, b *Dump) int { return a.Chorus.Rank - b.Chorus.Rank })
			if twice := life.twice(); twice != "" {
				errs = append(errs, twice)
			} else {
				lives = append(lives, life)
			}
		}
	}
	slices.SortFunc(lives, func(a, b Life) int {
		return cmp.Or(b.Written().Compare(a.Written()), cmp.Compare(a.Job(), b.Job()),
			cmp.Compare(b[0].Chorus.Attempt, a[0].Chorus.Attempt))
	})
	if len(errs) > 0 {
		slices.Sort(errs)
		err = fmt.Errorf("observe: %s", strings.Join(errs, "\n"))
	}
	return lives, err
}

// twice says of which rank there are two dumps; nothing if that is none.
func (l Life) twice() string {
	for i, d := range l[1:] {
		if a, b := &l[i].Chorus, &d.Chorus; a.Rank == b.Rank {
			return fmt.Sprintf("two dumps of rank %d of job %q, by pid %d on %s and pid %d on %s: two jobs of this name ran at "+
				"the same time; give each a name or a directory of its own", a.Rank, a.Job, a.Pid, plain.Line(a.Host), b.Pid,
				plain.Line(b.Host))
		}
	}
	return ""
}

// Running sorts what the ranks of a directory have answered by their jobs, of which the one that began last is the
// first. Ranks that don't answer are with the job that their sockets are named after, if these aren't older than it;
// where no rank answers at all they are one job.
func Running(answers []Answer) [][]Answer {
	var jobs [][]Answer
	var silent []Answer
	answers = slices.Clone(answers)
	slices.SortStableFunc(answers, func(a, b Answer) int { return cmp.Compare(a.started(), b.started()) })
	for _, a := range answers {
		if a.Live == nil {
			silent = append(silent, a)
			continue
		}
		// Of several jobs of one name, which began one after the other, each has one of every rank.
		i := slices.IndexFunc(jobs, func(job []Answer) bool {
			l := job[0].Live
			return l.Job == a.Live.Job && l.Size == a.Live.Size && l.Attempt == a.Live.Attempt &&
				!slices.ContainsFunc(job, func(b Answer) bool { return b.Live.Rank == a.Live.Rank })
		})
		if i < 0 {
			jobs = append(jobs, []Answer{a})
		} else {
			jobs[i] = append(jobs[i], a)
		}
	}
	slices.Reverse(jobs)
	if len(jobs) == 0 && len(silent) > 0 {
		return [][]Answer{silent}
	}
	for i, job := range jobs {
		l := job[0].Live
		for _, a := range silent {
			ours := strings.HasPrefix(record.NameOf(a.Path), record.CleanName(l.Job)+record.RankMark)
			if ours && a.Born.UnixNano() >= l.Started {
				jobs[i] = append(jobs[i], a)
			}
		}
	}
	return jobs
}

func (a *Answer) started() int64 {
	if a.Live == nil {
		return 0
	}
	return a.Live.Started
}
