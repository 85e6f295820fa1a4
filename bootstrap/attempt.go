package bootstrap

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/chorus-comms/chorus/internal/wire"
	"github.com/chorus-comms/chorus/secure"
	"github.com/chorus-comms/chorus/store"
)

// An attempt is one try of all ranks to find each other, in a part of a store that no other try uses. It ends once and
// for all ranks: all have come, one has given up, or two exclude each other. The counter decides which, since a store
// orders all additions: the attempt is ended by the rank whose addition makes the counter size, or by the first that
// subtracts gaveUpMark before.
type attempt struct {
	st         store.Store
	rank, size int
	members    string // which ranks of a job meet; empty if they are all
	payload    []byte
}

const (
	countKey    = "count"
	endKey      = "all"
	gaveUpMark  = int64(1) << 40
	answerLimit = time.Second // for what another rank sets after what this one has seen of it
	maxShared   = 4 << 20     // bytes of all payloads together that the last rank publishes: PyTorch's stores take 8 MiB
)

// An outcome says how an attempt has ended. If all fields are zero, a rank has given up or died.
type outcome struct {
	Came    bool                `json:",omitempty"` // all ranks have
	Twice   *DuplicateRankError `json:",omitempty"`
	Crossed *CrossedError       `json:",omitempty"`
	Foreign bool                `json:",omitempty"` // it was another secret's

	payloads [][]byte // of all ranks, if they have come; nil if each reads what the others have set
}

// failure is the error of a rank that was in an attempt with this outcome; nil if it may try again
// at once.
func (e *outcome) failure() error {
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

// join claims the rank's number and waits until the attempt has ended. seated is false if the number was claimed
// before, by this process or another. decided reports whether this rank has ended the attempt.
func (s *attempt) join(ctx context.Context) (e *outcome, seated, decided bool, err error) {
	if n, err := s.st.Add(ctx, "claim/"+strconv.Itoa(s.rank), 1); err != nil {
		return nil, false, false, err
	} else if n > 1 {
		e, decided, err = s.resolveClaim(ctx)
		return e, false, decided, err
	}
	if err := s.st.Set(ctx, strconv.Itoa(s.rank), s.info().append(s.payload)); err != nil {
		return nil, true, false, err
	}
	// The last rank collects all payloads, and sets them under the key for which the others wait. This spares the
	// server size * size registered waits and look-ups.
	n, err := s.st.Add(ctx, countKey, 1)
	if err != nil {
		return nil, true, false, err
	}
	if n == int64(s.size) {
		e := s.collect(ctx)
		return e, true, true, s.publish(ctx, e)
	}
	e, err = s.awaitOutcome(ctx)
	return e, true, false, err
}

// resolveClaim finds out why the rank's number is claimed already.
func (s *attempt) resolveClaim(ctx context.Context) (e *outcome, decided bool, err error) {
	if there, err := s.st.Check(ctx, endKey); err == nil && there {
		e, err = s.awaitOutcome(ctx)
		if errors.Is(err, secure.ErrSeal) || errors.Is(err, secure.ErrSealed) {
			return &outcome{Foreign: true}, false, nil
		}
		return e, false, err
	}
	e = s.checkClaim(ctx)
	if decided, err = s.decide(ctx, e); decided || err != nil {
		return e, decided, err
	}
	limited, cancel := context.WithTimeout(ctx, answerLimit) // another rank has ended it, and says how next
	defer cancel()
	if other, err := s.awaitOutcome(limited); err == nil {
		return other, false, nil
	}
	return e, false, ctx.Err()
}

// checkClaim says what is wrong when two processes have claimed this rank's number. It's no error if the first
// has died.
func (s *attempt) checkClaim(ctx context.Context) *outcome {
	mine := s.info()
	twice := &DuplicateRankError{Rank: s.rank, Size: s.size, First: "one", Second: mine.Who}
	limited, cancel := context.WithTimeout(ctx, answerLimit) // it has claimed the number, and says who it is next
	defer cancel()
	value, err := s.st.Get(limited, strconv.Itoa(s.rank))
	if err != nil {
		return &outcome{Twice: twice}
	}
	first, _, err := parseSigned(value)
	switch {
	case err != nil:
	case first.Party != s.members:
		return &outcome{Crossed: &CrossedError{RankA: s.rank, RankB: s.rank, A: first.Party, B: s.members}}
	case first.dead():
		return new(outcome)
	default:
		twice.First = first.Who
	}
	return &outcome{Twice: twice}
}

// decide ends the attempt with outcome e, unless it has ended already. It reports whether this rank
// ended it.
func (s *attempt) decide(ctx context.Context, e *outcome) (bool, error) {
	n, err := s.st.Add(ctx, countKey, -gaveUpMark)
	if err != nil || n+gaveUpMark < 0 || n+gaveUpMark >= int64(s.size) {
		return false, err
	}
	return true, s.publish(ctx, e)
}

// publish sets the record of the attempt's end: the outcome, and after it the payloads.
func (s *attempt) publish(ctx context.Context, e *outcome) error {
	record, err := json.Marshal(e)
	if err != nil {
		return err
	}
	if shared := appendPayloads(nil, e.payloads); len(shared) > 0 && len(shared) <= maxShared {
		record = append(append(record, '\n'), shared...)
	}
	return s.st.Set(ctx, endKey, record)
}

// appendPayloads adds payloads to a record, each with the number of ranks in a row that have brought it: many payloads
// are the same for all ranks of a host.
func appendPayloads(record []byte, payloads [][]byte) []byte {
	for r := 0; r < len(payloads); {
		first := r
		for r < len(payloads) && bytes.Equal(payloads[r], payloads[first]) {
			r++
		}
		record = wire.AppendField(wire.AppendUint(record, uint64(r-first)), payloads[first])
	}
	return record
}

// parsePayloads is the inverse of appendPayloads for so many ranks. The payloads alias the record.
func parsePayloads(record []byte, size int) ([][]byte, error) {
	payloads := make([][]byte, 0, size)
	f := wire.ReadFields(record)
	fits := true
	for fits && f.More() {
		times, payload := f.Uint(), f.Bytes()
		if fits = times <= uint64(size-len(payloads)); fits {
			payloads = append(payloads, slices.Repeat([][]byte{payload}, int(times))...)
		}
	}
	if !fits || !f.Whole() || len(payloads) != size {
		return nil, errors.New("the payloads at the end of a meeting are damaged")
	}
	return payloads, nil
}

// awaitOutcome waits for the attempt's outcome.
func (s *attempt) awaitOutcome(ctx context.Context) (*outcome, error) {
	record, err := s.st.Get(ctx, endKey)
	if err != nil {
		return nil, err
	}
	text, shared, ok := bytes.Cut(record, []byte("\n"))
	e := new(outcome)
	if err := json.Unmarshal(text, e); err != nil {
		return nil, fmt.Errorf("the end of a meeting reads %q", text)
	}
	if ok {
		if e.payloads, err = parsePayloads(shared, s.size); err != nil {
			return nil, err
		}
	}
	return e, nil
}

// collect is the outcome of an attempt to which all ranks have come. If this rank can't read what the others have set,
// they find out by themselves why.
func (s *attempt) collect(ctx context.Context) *outcome {
	payloads, err := s.read(ctx)
	if crossed, ok := errors.AsType[*CrossedError](err); ok {
		return &outcome{Crossed: crossed}
	}
	return &outcome{Came: true, payloads: payloads}
}

// payloads returns the payloads of all ranks, once all have come. The error is a *CrossedError if they aren't all of
// one group.
func (s *attempt) payloads(ctx context.Context, e *outcome) ([][]byte, error) {
	if e.payloads != nil {
		return e.payloads, nil
	}
	return s.read(ctx)
}

// read reads the payloads that the ranks have set.
func (s *attempt) read(ctx context.Context) ([][]byte, error) {
	values, err := store.MultiGet(ctx, s.st, payloadKeys(s.size)...)
	if err != nil {
		return nil, err
	}
	var crossed *CrossedError
	party := ""
	var last []byte
	var who processInfo
	for r, value := range values {
		// Parsing it anew where it's the same would take most of the time of large worlds.
		head, payload, ok := bytes.Cut(value, []byte("\n"))
		if r == 0 || !ok || !bytes.Equal(head, last) {
			if who, payload, err = parseSigned(value); err != nil {
				return nil, err
			}
			last = head
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

// processInfo says which process has set a value.
type processInfo struct {
	Who     string // the process, for messages
	Process string `json:",omitempty"` // the same, so that others on its host can find out if it has died
	Party   string `json:",omitempty"`
}

func (s *attempt) info() processInfo {
	return processInfo{Who: processName(), Process: processID(), Party: s.members}
}

func (w processInfo) append(payload []byte) []byte {
	head, _ := json.Marshal(w) // strings
	return append(append(head, '\n'), payload...)
}

// dead reports whether it's known that the process has ended.
func (w processInfo) dead() bool {
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

// processID identifies this process among those of the host; empty if the system doesn't say enough.
func processID() string {
	host, err := kernelID()
	stat, bad := procStat(os.Getpid())
	if err != nil || bad != nil {
		return ""
	}
	return fmt.Sprint(host, " ", os.Getpid(), " ", stat.start)
}

// processName says which process this is.
func processName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "an unknown host"
	}
	return fmt.Sprintf("pid %d on %s", os.Getpid(), host)
}

// parseSigned takes apart what a rank has set: who it is, and its payload.
func parseSigned(value []byte) (who processInfo, payload []byte, err error) {
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

// missingRanks finds out which other ranks' payloads are not there. This rank's own may not be, if its time was over
// before it came to that. known is false if the store doesn't say.
func (s *attempt) missingRanks() (ranks []int, known bool) {
	// A wait that has no time left tells which keys are missing.
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	err := s.st.Wait(ctx, payloadKeys(s.size)...)
	if err == nil {
		return nil, true
	}
	late, ok := errors.AsType[*store.TimeoutError](err)
	if !ok || len(late.Missing) == 0 {
		return nil, false
	}
	for _, key := range late.Missing {
		if r, err := strconv.Atoi(key); err == nil && r != s.rank {
			ranks = append(ranks, r)
		}
	}
	return ranks, true
}
