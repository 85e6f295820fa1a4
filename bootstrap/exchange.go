package bootstrap

import (
	"context"
	"errors"
	"fmt"
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
	return fmt.Sprintf("bootstrap: rank %d of %d waited %v for %s", e.Rank, e.Size, e.Waited.Round(time.Millisecond), ranklist.Named(e.Missing))
}

// Unwrap returns the store's error.
func (e *MissingRanksError) Unwrap() error { return e.Err }

// Exchange gives every rank the payloads of all ranks, in order of rank. All
// ranks of a world call it with a store, or a prefix of one, that was not used
// for an exchange before. Payloads are small: each rank reads all of them.
//
// It takes five round trips whatever the size: a rank sets its payload and counts
// itself, the last one opens a gate for which the others wait, and all read
// everything at once. At the deadline of ctx, or after the store's timeout, the
// error is a *MissingRanksError.
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
	if timeout, ok := errors.AsType[*store.TimeoutError](err); ok {
		if missing := missingRanks(st, size, timeout); len(missing) > 0 {
			return nil, &MissingRanksError{Missing: missing, Rank: rank, Size: size, Waited: time.Since(begin), Err: err}
		}
	}
	if errors.Is(err, secure.ErrSeal) || errors.Is(err, secure.ErrSealed) {
		err = fmt.Errorf("%s set up with another secret than this process, or none: %w", ranklist.Named(foreign(ctx, st, size)), err)
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

const exchangeGate = "all"

func payloadKeys(size int) []string {
	keys := make([]string, size)
	for r := range keys {
		keys[r] = strconv.Itoa(r)
	}
	return keys
}

func exchange(ctx context.Context, st store.Store, rank, size int, payload []byte) ([][]byte, error) {
	keys := payloadKeys(size)
	if err := st.Set(ctx, keys[rank], payload); err != nil {
		return nil, err
	}
	// The gate spares the server size * size registered waits. What counts is
	// that MultiGet waits for every payload.
	n, err := st.Add(ctx, "count", 1)
	if err != nil {
		return nil, err
	}
	if n == int64(size) {
		err = st.Set(ctx, exchangeGate, nil)
	} else {
		err = st.Wait(ctx, exchangeGate)
	}
	if err != nil {
		return nil, err
	}
	return store.MultiGet(ctx, st, keys...)
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
