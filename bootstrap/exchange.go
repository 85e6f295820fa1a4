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

	"github.com/chorus-comms/chorus/internal/ranklist"
	"github.com/chorus-comms/chorus/secure"
	"github.com/chorus-comms/chorus/store"
)

// A MissingRanksError says which ranks had not come at the deadline. It matches
// context.DeadlineExceeded.
type MissingRanksError struct {
	Missing []int // in order
	Rank    int   // who waited
	Size    int
	Waited  time.Duration
	Err     error
}

func (e *MissingRanksError) Error() string {
	return fmt.Sprintf("bootstrap: rank %d of %d waited %v for %s", e.Rank, e.Size, e.Waited.Round(time.Millisecond),
		ranklist.Named(e.Missing))
}

// Unwrap returns the store's error.
func (e *MissingRanksError) Unwrap() error { return e.Err }

// Exchange gives every rank the payloads of all ranks, in order of rank. All
// ranks of a world call it with a store, or a prefix of one, that was not used
// for an exchange before. Payloads are small: each rank reads all of them.
//
// It takes six round trips whatever the size: a rank claims its number, sets its payload and counts
// itself, the last one opens a gate for which the others wait, and all read
// everything at once. At the deadline of ctx, or after the store's timeout, the
// error is a *MissingRanksError. If two processes claim the same number, both, and all
// others, get a *DuplicateRankError at once.
func Exchange(ctx context.Context, st store.Store, rank, size int, payload []byte) ([][]byte, error) {
	if err := CheckWorld(rank, size); err != nil {
		return nil, fmt.Errorf("bootstrap: exchange: %w", err)
	}
	if size == 1 {
		return [][]byte{append([]byte{}, payload...)}, nil
	}
	begin := time.Now()
	payloads, err := exchange(ctx, st, rank, size, payload)
	if err == nil {
		return payloads, nil
	}
	if twice, ok := errors.AsType[*DuplicateRankError](err); ok {
		return nil, twice
	}
	if timeout, ok := errors.AsType[*store.TimeoutError](err); ok {
		if missing := missingRanks(st, size, timeout); len(missing) > 0 {
			return nil, &MissingRanksError{Missing: missing, Rank: rank, Size: size, Waited: time.Since(begin), Err: err}
		}
	}
	if errors.Is(err, secure.ErrSeal) || errors.Is(err, secure.ErrSealed) {
		err = fmt.Errorf("%s set up with another secret than this process, or none: %w", ranklist.Named(foreign(ctx, st,
			size)), err)
	}
	return nil, fmt.Errorf("bootstrap: exchange: rank %d of %d: %w", rank, size, err)
}

// foreign finds out whose payloads don't have this process's seal.
func foreign(ctx context.Context, st store.Store, size int) (ranks []int) {
	for r, key := range payloadKeys(size) {
		if _, err := st.Get(ctx, key); errors.Is(err, secure.ErrSeal) || errors.Is(err, secure.ErrSealed) {
			ranks = append(ranks, r)
		}
	}
	return ranks
}

const (
	exchangeGate = "all"
	gateOpen     = "open" // what the gate holds when all have come; else why they never will
)

// A DuplicateRankError says that two processes have come as the same rank.
type DuplicateRankError struct {
	Rank, Size    int
	First, Second string // the processes, such as "pid 17 on node3"
}

func (e *DuplicateRankError) Error() string {
	return fmt.Sprintf("bootstrap: two processes come as rank %d of %d: %s, and %s", e.Rank, e.Size, e.First, e.Second)
}

// self says which process this is.
func self() string {
	host, err := os.Hostname()
	if err != nil {
		host = "an unknown host"
	}
	return fmt.Sprintf("pid %d on %s", os.Getpid(), host)
}

// duplicate is the error of a process that comes as a rank which another has come as, and tells all that wait at the
// gate.
func duplicate(ctx context.Context, st store.Store, rank, size int) error {
	e := &DuplicateRankError{Rank: rank, Size: size, First: "one", Second: self()}
	limited, cancel := context.WithTimeout(ctx, time.Second) // it has claimed the number, and says who it is next
	defer cancel()
	if first, err := st.Get(limited, strconv.Itoa(rank)); err == nil {
		if who, _, err := signed(first); err == nil {
			e.First = who
		}
	}
	if n, err := st.Add(ctx, "count", 0); err != nil || n >= int64(size) {
		return e // the others have met, and don't need this one
	}
	if text, err := json.Marshal(e); err == nil {
		_ = st.Set(ctx, exchangeGate, text) // else they wait for their time
	}
	return e
}

// signed takes apart what a rank has set: who it is, and its payload.
func signed(value []byte) (who string, payload []byte, err error) {
	head, payload, ok := bytes.Cut(value, []byte("\n"))
	if !ok {
		return "", nil, errors.New("what a rank has set isn't signed")
	}
	return string(head), payload, nil
}

func payloadKeys(size int) []string {
	keys := make([]string, size)
	for r := range keys {
		keys[r] = strconv.Itoa(r)
	}
	return keys
}

func exchange(ctx context.Context, st store.Store, rank, size int, payload []byte) ([][]byte, error) {
	keys := payloadKeys(size)
	if n, err := st.Add(ctx, "claim/"+keys[rank], 1); err != nil {
		return nil, err
	} else if n > 1 {
		return nil, duplicate(ctx, st, rank, size)
	}
	if err := st.Set(ctx, keys[rank], append([]byte(self()+"\n"), payload...)); err != nil {
		return nil, err
	}
	// The gate spares the server size * size registered waits. What counts is
	// that MultiGet waits for every payload.
	n, err := st.Add(ctx, "count", 1)
	if err != nil {
		return nil, err
	}
	if n == int64(size) {
		err = st.Set(ctx, exchangeGate, []byte(gateOpen))
	} else {
		err = pass(ctx, st)
	}
	if err != nil {
		return nil, err
	}
	values, err := store.MultiGet(ctx, st, keys...)
	for r := range values {
		if err == nil {
			_, values[r], err = signed(values[r])
		}
	}
	if err != nil {
		return nil, err
	}
	return values, nil
}

// pass waits at the gate.
func pass(ctx context.Context, st store.Store) error {
	why, err := st.Get(ctx, exchangeGate)
	if err != nil || string(why) == gateOpen {
		return err
	}
	e := new(DuplicateRankError)
	if err := json.Unmarshal(why, e); err != nil {
		return fmt.Errorf("the gate holds %q", why)
	}
	return e
}

// missingRanks finds out, past the deadline, whose payloads are missing.
func missingRanks(st store.Store, size int, timeout *store.TimeoutError) []int {
	missing := timeout.Missing
	if len(missing) == 1 && missing[0] == exchangeGate {
		// A wait that has no time left tells which keys are not there.
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		late, ok := errors.AsType[*store.TimeoutError](st.Wait(ctx, payloadKeys(size)...))
		if !ok {
			return nil
		}
		missing = late.Missing
	}
	var out []int
	for _, key := range missing {
		if r, err := strconv.Atoi(key); err == nil {
			out = append(out, r)
		}
	}
	return out
}
