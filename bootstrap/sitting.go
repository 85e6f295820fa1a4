package bootstrap

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/chorus-comms/chorus/secure"
	"github.com/chorus-comms/chorus/store"
)

// A sitting is one attempt of all ranks to find each other, in a part of a store that no other attempt uses. It ends
// once and for all ranks: all have come, one has given up, or two exclude each other. The counter decides which, since
// a store orders all additions: the sitting is ended by the rank whose addition makes the counter size, or by the first
// that subtracts givenUp before.
type sitting struct {
	st         store.Store
	rank, size int
	party      string // which ranks of a job meet; empty if they are all
	payload    []byte
}

const (
	countKey    = "count"
	endKey      = "all"
	givenUp     = int64(1) << 40
	answerLimit = time.Second // for what another rank sets after what this one has seen of it
)

// An ending says how a sitting has ended. If all fields are zero, a rank has given up or died.
type ending struct {
	Came    bool                `json:",omitempty"` // all ranks have
	Twice   *DuplicateRankError `json:",omitempty"`
	Crossed *CrossedError       `json:",omitempty"`
	Foreign bool                `json:",omitempty"` // it was another secret's
}

// failure is what an ending is to a rank that was in the sitting; nil if it may try again at once.
func (e *ending) failure() error {
	switch {
	case e.Twice != nil:
		return e.Twice
	case e.Crossed != nil:
		return e.Crossed
	}
	return nil
}

// A DuplicateRankError says that two processes have come as the same rank.
type DuplicateRankError struct {
	Rank, Size    int
	First, Second string // the processes, such as "pid 17 on node3"
}

func (e *DuplicateRankError) Error() string {
	return fmt.Sprintf("bootstrap: two processes come as rank %d of %d: %s, and %s", e.Rank, e.Size, e.First, e.Second)
}

// A CrossedError says that ranks meet that are to be in different groups of the job.
type CrossedError struct {
	RankA, RankB int    // in the group
	A, B         string // the groups' ranks in the job, as each of the two has them
}

func (e *CrossedError) Error() string {
	return fmt.Sprintf("bootstrap: groups are crossed: rank %d comes for a group of ranks %s, and rank %d for one of ranks %s",
		e.RankA, e.A, e.RankB, e.B)
}

// attend claims the rank's number and waits until the sitting has ended. seated is false if the number was claimed
// before, by this process or another. decided reports whether this rank has ended the sitting.
func (s *sitting) attend(ctx context.Context) (e *ending, seated, decided bool, err error) {
	if n, err := s.st.Add(ctx, "claim/"+strconv.Itoa(s.rank), 1); err != nil {
		return nil, false, false, err
	} else if n > 1 {
		e, decided, err = s.contest(ctx)
		return e, false, decided, err
	}
	if err := s.st.Set(ctx, strconv.Itoa(s.rank), s.signature().append(s.payload)); err != nil {
		return nil, true, false, err
	}
	// The key that ends it spares the server size * size registered waits.
	n, err := s.st.Add(ctx, countKey, 1)
	if err != nil {
		return nil, true, false, err
	}
	if n == int64(s.size) {
		e := &ending{Came: true}
		return e, true, true, s.tell(ctx, e)
	}
	e, err = s.read(ctx)
	return e, true, false, err
}

// contest finds out why the rank's number is claimed already.
func (s *sitting) contest(ctx context.Context) (e *ending, decided bool, err error) {
	if there, err := s.st.Check(ctx, endKey); err == nil && there {
		e, err = s.read(ctx)
		if errors.Is(err, secure.ErrSeal) || errors.Is(err, secure.ErrSealed) {
			return &ending{Foreign: true}, false, nil
		}
		return e, false, err
	}
	e = s.accuse(ctx)
	if decided, err = s.end(ctx, e); decided || err != nil {
		return e, decided, err
	}
	limited, cancel := context.WithTimeout(ctx, answerLimit) // another rank has ended it, and says how next
	defer cancel()
	if other, err := s.read(limited); err == nil {
		return other, false, nil
	}
	return e, false, ctx.Err()
}

// accuse says what is wrong when two processes have claimed this rank's number. It's no error if the first
// has died.
func (s *sitting) accuse(ctx context.Context) *ending {
	mine := s.signature()
	twice := &DuplicateRankError{Rank: s.rank, Size: s.size, First: "one", Second: mine.Who}
	limited, cancel := context.WithTimeout(ctx, answerLimit) // it has claimed the number, and says who it is next
	defer cancel()
	value, err := s.st.Get(limited, strconv.Itoa(s.rank))
	if err != nil {
		return &ending{Twice: twice}
	}
	first, _, err := signed(value)
	switch {
	case err != nil:
	case first.Party != s.party:
		return &ending{Crossed: &CrossedError{RankA: s.rank, RankB: s.rank, A: first.Party, B: s.party}}
	case first.dead():
		return new(ending)
	default:
		twice.First = first.Who
	}
	return &ending{Twice: twice}
}

// end ends the sitting unless that has happened, which it reports.
func (s *sitting) end(ctx context.Context, e *ending) (bool, error) {
	n, err := s.st.Add(ctx, countKey, -givenUp)
	if err != nil || n+givenUp < 0 || n+givenUp >= int64(s.size) {
		return false, err
	}
	return true, s.tell(ctx, e)
}

func (s *sitting) tell(ctx context.Context, e *ending) error {
	text, err := json.Marshal(e)
	if err != nil {
		return err
	}
	return s.st.Set(ctx, endKey, text)
}

// read waits for the sitting's end.
func (s *sitting) read(ctx context.Context) (*ending, error) {
	text, err := s.st.Get(ctx, endKey)
	if err != nil {
		return nil, err
	}
	e := new(ending)
	if err := json.Unmarshal(text, e); err != nil {
		return nil, fmt.Errorf("the end of a meeting reads %q", text)
	}
	return e, nil
}

// gather returns what the ranks have brought, once all have come. The error is a *CrossedError if they aren't all of
// one group.
func (s *sitting) gather(ctx context.Context) ([][]byte, error) {
	values, err := store.MultiGet(ctx, s.st, payloadKeys(s.size)...)
	if err != nil {
		return nil, err
	}
	var crossed *CrossedError
	party := ""
	for r, value := range values {
		who, payload, err := signed(value)
		if err != nil {
			return nil, err
		}
		if values[r] = payload; r == 0 {
			party = who.Party
		} else if who.Party != party && crossed == nil {
			crossed = &CrossedError{RankA: 0, RankB: r, A: party, B: who.Party}
		}
	}
	if crossed != nil {
		return nil, crossed
	}
	return values, nil
}

// A signature says which process has set a value.
type signature struct {
	Who     string // the process, for messages
	Process string `json:",omitempty"` // the same, so that others on its host can find out if it has died
	Party   string `json:",omitempty"`
}

func (s *sitting) signature() signature {
	return signature{Who: self(), Process: process(), Party: s.party}
}

func (w signature) append(payload []byte) []byte {
	head, _ := json.Marshal(w) // strings
	return append(append(head, '\n'), payload...)
}

// dead reports whether it's known that the process has ended.
func (w signature) dead() bool {
	var host, start string
	var pid int
	if _, err := fmt.Sscan(w.Process, &host, &pid, &start); err != nil {
		return false
	}
	if mine, err := kernelID(); err != nil || mine != host {
		return false
	}
	now, err := procStat(pid)
	if err != nil {
		return errors.Is(err, os.ErrNotExist)
	}
	return now.start != start || now.state == "Z" || now.state == "X"
}

// process identifies this process among those of the host; empty if the system doesn't say enough.
func process() string {
	host, err := kernelID()
	stat, bad := procStat(os.Getpid())
	if err != nil || bad != nil {
		return ""
	}
	return fmt.Sprint(host, " ", os.Getpid(), " ", stat.start)
}

// self says which process this is.
func self() string {
	host, err := os.Hostname()
	if err != nil {
		host = "an unknown host"
	}
	return fmt.Sprintf("pid %d on %s", os.Getpid(), host)
}

// signed takes apart what a rank has set: who it is, and its payload.
func signed(value []byte) (who signature, payload []byte, err error) {
	head, payload, ok := bytes.Cut(value, []byte("\n"))
	if !ok || json.Unmarshal(head, &who) != nil {
		return who, nil, errors.New("what a rank has set isn't signed")
	}
	return who, payload, nil
}

func payloadKeys(size int) []string {
	keys := make([]string, size)
	for r := range keys {
		keys[r] = strconv.Itoa(r)
	}
	return keys
}

// absent finds out whose payloads are not there.
func (s *sitting) absent() (ranks []int) {
	// A wait that has no time left tells which keys are missing.
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	late, ok := errors.AsType[*store.TimeoutError](s.st.Wait(ctx, payloadKeys(s.size)...))
	if !ok {
		return nil
	}
	for _, key := range late.Missing {
		if r, err := strconv.Atoi(key); err == nil {
			ranks = append(ranks, r)
		}
	}
	return ranks
}
