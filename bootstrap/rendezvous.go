package bootstrap

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/chorus-comms/chorus/internal/wire"
	"github.com/chorus-comms/chorus/secure"
	"github.com/chorus-comms/chorus/store"
)

// A Rendezvous is one rank's part in a place in a store where all ranks find each other, however many attempts that
// takes. A rank whose Exchange has failed makes a new Rendezvous at the same place and calls its Exchange. So does a
// process that replaces a dead one. An attempt that has failed leaves nothing that pairs with a later one.
type Rendezvous struct {
	Rank, Size int
	// Members are the ranks of the job that take part, by their rank here; nil: all of them. Ranks that come with
	// different Members get a *CrossedError.
	Members []int
	// Again says that a rendezvous at this place may have completed before, and this is the next one. Without it the
	// error is then ErrCompleted.
	Again bool

	base   store.Store
	prefix string // the part of base that belongs to the ranks that have met; empty before
}

// NewRendezvous makes a rendezvous at a store, or a prefix of one, whose keys are its own.
func NewRendezvous(st store.Store, rank, size int) *Rendezvous {
	return &Rendezvous{Rank: rank, Size: size, base: st}
}

// ErrCompleted says that ranks have met at this place before, and that one of them has called
// Complete.
var ErrCompleted = errors.New("bootstrap: the rendezvous at this place is complete")

// Store returns the part of the store that belongs to the ranks of the successful Exchange; before one, all of the
// store.
func (m *Rendezvous) Store() store.Store {
	if !m.Met() {
		return m.base
	}
	return store.NewPrefix(m.prefix, m.base)
}

// Met reports whether an Exchange has succeeded.
func (m *Rendezvous) Met() bool { return m != nil && m.prefix != "" }

// attemptsKey counts the attempts that are over, and in units of completedOnce the calls of Complete. It may lag
// behind, and is never ahead.
const (
	attemptsKey   = "held"
	completedOnce = int64(1) << 32
)

// Complete marks the rendezvous as complete: what the ranks have met for exists on all of them. One of them calls it.
func (m *Rendezvous) Complete(ctx context.Context) error {
	_, err := m.base.Add(ctx, attemptsKey, completedOnce)
	return err
}

// leaveTime bounds how long a rank takes to say that it gives up.
const leaveTime = 500 * time.Millisecond

// Exchange waits until all ranks have come, and returns what each has brought, in order of rank. Payloads are small:
// each rank reads all of them. They're sealed with the secret, unless it's zero.
//
// It takes five round trips whatever the size, and two more of the last rank. When another rank gives up, this one
// waits on for all, until ctx ends; then it gives up itself, and the error is a *MissingRanksError. Two processes that
// come as the same rank get a *DuplicateRankError at once, and ranks that come for different groups a *CrossedError, as
// do all that wait with them.
func (m *Rendezvous) Exchange(ctx context.Context, secret secure.Secret, payload []byte) ([][]byte, error) {
	if err := CheckWorld(m.Rank, m.Size); err != nil {
		return nil, fmt.Errorf("bootstrap: meeting: %w", err)
	}
	if m.Size == 1 {
		return [][]byte{append([]byte{}, payload...)}, nil
	}
	v := rendezvousCall{m: m, st: store.NewSealed(secret, m.base), begin: time.Now(),
		members: formatMembers(m.Members), payload: payload}
	payloads, err := v.run(ctx)
	if err != nil {
		return nil, v.explain(ctx, err)
	}
	return payloads, nil
}

// A rendezvousCall is one call of Rendezvous.Exchange.
type rendezvousCall struct {
	m            *Rendezvous
	st           store.Store // sealed
	begin        time.Time
	members      string
	payload      []byte
	attempt      *attempt
	uncounted    int64 // attempts right before that attemptsKey lacks, and only the rank that ends this one may count
	failedBefore bool  // there was an attempt, before this rank came, that came to nothing
	missing      []int // the ranks that weren't there whenever another one gave up
	missingKnown bool  // missing is known
}

func (v *rendezvousCall) run(ctx context.Context) ([][]byte, error) {
	held, err := v.st.Add(ctx, attemptsKey, 0)
	if err != nil {
		return nil, err
	}
	if !v.m.Again {
		if held >= completedOnce {
			return nil, ErrCompleted
		}
		v.failedBefore = held > 0
	}
	for at := held % completedOnce; ; at++ {
		room := strconv.FormatInt(at, 10)
		v.attempt = &attempt{st: store.NewPrefix(room, v.st), rank: v.m.Rank, size: v.m.Size, members: v.members,
			payload: v.payload}
		e, seated, decided, err := v.attempt.join(ctx)
		if err != nil {
			return nil, err
		}
		if e.Came && (seated || v.m.Members != nil) { // a rank that comes later gets the error of crossed groups
			payloads, err := v.attempt.payloads(ctx, e)
			if crossed, ok := errors.AsType[*CrossedError](err); ok {
				e = &outcome{Crossed: crossed}
			} else if err != nil {
				return nil, err
			} else if seated {
				if decided {
					err = v.count(ctx)
				}
				if err == nil {
					v.m.prefix = room
				}
				return payloads, err
			}
		}
		switch {
		case e.failure() != nil:
			if v.mustReport(ctx, e) || seated || decided {
				return nil, e.failure()
			}
			v.uncounted++
		case e.Foreign:
			v.uncounted++
		case e.Came:
			if !v.m.Again {
				if held, err = v.st.Add(ctx, attemptsKey, 0); err == nil && held >= completedOnce {
					err = ErrCompleted
				}
			}
			v.uncounted = 0
		default:
			if seated {
				missing, _ := v.attempt.missingRanks()
				v.noteMissing(missing)
			}
			if decided {
				err = v.count(ctx)
			}
			v.uncounted = 0
		}
		if err != nil {
			return nil, err
		}
	}
}

// count counts the attempt as over.
func (v *rendezvousCall) count(ctx context.Context) error {
	_, err := v.st.Add(ctx, attemptsKey, 1+v.uncounted)
	return err
}

// mustReport reports whether a rank that comes later is to hear of an ending, which it does once: those who would cross
// another group aren't all in the same attempt.
func (v *rendezvousCall) mustReport(ctx context.Context, e *outcome) bool {
	if e.Crossed == nil || v.m.Members == nil {
		return false
	}
	n, err := v.attempt.st.Add(ctx, "heard/"+strconv.Itoa(v.m.Members[v.m.Rank]), 1)
	return err == nil && n == 1
}

// noteMissing keeps of the missing ranks those that were missing each time: one that has given up has come.
func (v *rendezvousCall) noteMissing(missing []int) {
	if v.missingKnown {
		missing = slices.DeleteFunc(slices.Clone(missing), func(r int) bool { return !slices.Contains(v.missing, r) })
	}
	if len(missing) > 0 {
		v.missing, v.missingKnown = missing, true
	}
}

// explain makes the error of a call that has failed. The rank leaves the attempt.
func (v *rendezvousCall) explain(ctx context.Context, err error) error {
	if errors.Is(err, ErrCompleted) {
		return err
	}
	if twice, ok := errors.AsType[*DuplicateRankError](err); ok {
		return twice
	}
	if crossed, ok := errors.AsType[*CrossedError](err); ok {
		return crossed
	}
	if v.attempt != nil {
		v.giveUp(ctx, err) // first, lest a rank comes meanwhile and goes on without this one
		if errors.As(err, new(*store.TimeoutError)) {
			missing, known := v.attempt.missingRanks()
			if v.noteMissing(missing); known && len(missing) == 0 {
				v.missing = nil // those that were missing before have come now
			}
			if known || v.missingKnown {
				err = &MissingRanksError{Missing: v.missing, Reporter: v.m.Rank, Size: v.m.Size,
					Waited: time.Since(v.begin), Again: v.failedBefore, Err: err}
			}
		} else if e := sealError(ctx, v.attempt.st, v.m.Size, err); e != nil {
			err = e
		}
	}
	if errors.As(err, new(*MissingRanksError)) {
		return err
	}
	return fmt.Errorf("bootstrap: meeting: rank %d of %d: %w", v.m.Rank, v.m.Size, err)
}

// giveUp ends the attempt, so that the others wait for this rank in another one.
func (v *rendezvousCall) giveUp(ctx context.Context, why error) {
	if store.Gone(why) {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTime)
	defer cancel()
	if mine, err := v.attempt.decide(ctx, new(outcome)); mine && err == nil {
		_ = v.count(ctx) // a lower count costs later ranks some round trips
	}
}

// formatMembers writes which ranks of a job meet; long lists by their beginning and a digest.
func formatMembers(members []int) string {
	if members == nil {
		return ""
	}
	if slices.IsSorted(members) {
		return shortened(wire.RankList(members), len(members))
	}
	text := fmt.Sprint(members)
	return shortened(strings.ReplaceAll(text[1:len(text)-1], " ", ", "), len(members))
}

func shortened(list string, n int) string {
	const most = 200
	if len(list) <= most {
		return list
	}
	cut := strings.LastIndex(list[:most], ",")
	sum := sha256.Sum256([]byte(list))
	return fmt.Sprintf("%s, ... (%d ranks, digest %x)", list[:cut], n, sum[:4])
}
