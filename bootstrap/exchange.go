package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/chorus-comms/chorus/internal/wire"
	"github.com/chorus-comms/chorus/secure"
	"github.com/chorus-comms/chorus/store"
)

// A MissingRanksError says which ranks had not come at the deadline. It matches
// context.DeadlineExceeded.
type MissingRanksError struct {
	Missing  []int // in order; none if all others have come, and this rank's own time was over before it was done
	Reporter int   // who waited
	Size     int
	Waited   time.Duration
	Again    bool // an attempt before this one came to nothing
	Err      error
}

func (e *MissingRanksError) Error() string {
	after := ""
	if e.Again {
		after = "; ranks that came before have given up meanwhile"
	}
	if len(e.Missing) == 0 {
		return fmt.Sprintf("bootstrap: the time of rank %d of %d was over after %v, though all others have come%s", e.Reporter,
			e.Size, e.Waited.Round(time.Millisecond), after)
	}
	return fmt.Sprintf("bootstrap: rank %d of %d waited %v for %s%s", e.Reporter, e.Size, e.Waited.Round(time.Millisecond),
		wire.NamedRanks(e.Missing), after)
}

// Unwrap returns the store's error.
func (e *MissingRanksError) Unwrap() error { return e.Err }

// Exchange gives every rank the payloads of all ranks, in order of rank. All ranks of a world call it with a store, or
// a prefix of one, that was not used for an exchange before. Payloads are small: each rank reads all of them. A
// Rendezvous is for ranks that may have to try again.
//
// It takes four round trips whatever the size, and one more of the last rank. A rank claims its number, sets its
// payload, and counts itself. The last one reads all payloads, and sets them under a key for which the others wait. At
// the deadline of ctx, or after the store's timeout, the error is a *MissingRanksError. If two processes claim the same
// number, both, and all others, get a *DuplicateRankError at once.
func Exchange(ctx context.Context, st store.Store, rank, size int, payload []byte) ([][]byte, error) {
	if err := CheckWorld(rank, size); err != nil {
		return nil, fmt.Errorf("bootstrap: exchange: %w", err)
	}
	if size == 1 {
		return [][]byte{append([]byte{}, payload...)}, nil
	}
	begin := time.Now()
	s := &attempt{st: st, rank: rank, size: size, payload: payload}
	payloads, err := s.exchange(ctx)
	if err == nil {
		return payloads, nil
	}
	if twice, ok := errors.AsType[*DuplicateRankError](err); ok {
		return nil, twice
	}
	if errors.As(err, new(*store.TimeoutError)) {
		if missing, known := s.missingRanks(); known {
			return nil, &MissingRanksError{Missing: missing, Reporter: rank, Size: size, Waited: time.Since(begin), Err: err}
		}
	}
	if e := sealError(ctx, st, size, err); e != nil {
		err = e
	}
	return nil, fmt.Errorf("bootstrap: exchange: rank %d of %d: %w", rank, size, err)
}

// exchange is an attempt that isn't repeated.
func (s *attempt) exchange(ctx context.Context) ([][]byte, error) {
	e, seated, _, err := s.join(ctx)
	switch {
	case err != nil:
		return nil, err
	case e.failure() != nil:
		return nil, e.failure()
	case e.Came && seated:
		return s.payloads(ctx, e)
	case e.Came: // the others have met, and don't need this one
		if err := s.checkClaim(ctx).failure(); err != nil {
			return nil, err
		}
	}
	return nil, errors.New("another process has come as this rank before, and has ended")
}

// sealError is the error of a rank that can't read what others have set, and says whose payloads don't have this
// process's seal; nil for another error.
func sealError(ctx context.Context, st store.Store, size int, err error) error {
	sealed := func(err error) bool { return errors.Is(err, secure.ErrSeal) || errors.Is(err, secure.ErrSealed) }
	if !sealed(err) {
		return nil
	}
	var ranks []int
	for r, key := range payloadKeys(size) {
		if _, err := st.Get(ctx, key); sealed(err) {
			ranks = append(ranks, r)
		}
	}
	return fmt.Errorf("%s set up with another secret than this process, or none: %w", wire.NamedRanks(ranks), err)
}
