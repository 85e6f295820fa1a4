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

	"github.com/chorus-comms/chorus/internal/ranklist"
	"github.com/chorus-comms/chorus/secure"
	"github.com/chorus-comms/chorus/store"
)

// A Meeting is one rank's way to the others: a place in a store where all find each other, however many attempts that
// takes. A rank whose Meet has failed calls that of another Meeting at the same place, and so does a process that
// replaces a dead one. An attempt that has failed leaves nothing that pairs with a later one.
type Meeting struct {
	Rank, Size int
	// Members are the ranks of a job that meet, by their rank here; nil: all of them. Ranks that come for different ones
	// get a *CrossedError.
	Members []int
	// Again says that what ranks met for here before may have come about, and this is the next one. Otherwise the error is
	// ErrMade then.
	Again bool

	base store.Store
	room string // the part of base that belongs to those who have met; empty: they haven't yet
}

// NewMeeting makes a meeting at a store, or a prefix of one, whose keys are its own.
func NewMeeting(st store.Store, rank, size int) *Meeting {
	return &Meeting{Rank: rank, Size: size, base: st}
}

// ErrMade says that ranks have met at this place before, and that one of them has called Made.
var ErrMade = errors.New("bootstrap: what ranks met for here has come about")

// Store returns the part of the store that belongs to those who have met; all of it as long as Meet has not succeeded.
func (m *Meeting) Store() store.Store {
	if m.room == "" {
		return m.base
	}
	return store.NewPrefix(m.room, m.base)
}

// heldKey counts the sittings that are over, and in units of madeOnce those of them that were not in vain. It may lag
// behind, and is never ahead.
const (
	heldKey  = "held"
	madeOnce = int64(1) << 32
)

// Made says that what the ranks have met for has come about on all of them. One of them calls it.
func (m *Meeting) Made(ctx context.Context) error {
	_, err := m.base.Add(ctx, heldKey, madeOnce)
	return err
}

// leaveTime bounds how long a rank takes to say that it gives up.
const leaveTime = 500 * time.Millisecond

// Meet waits until all ranks have come, and returns what each has brought, in order of rank. Payloads are small: each
// rank reads all of them. They're sealed with the secret, unless it's zero.
//
// It takes six round trips whatever the size. When another rank gives up, this one waits on for all, until ctx ends;
// then it gives up itself, and the error is a *MissingRanksError. Two processes that come as the same rank get a
// *DuplicateRankError at once, and ranks that come for different groups a *CrossedError, as do all that wait with them.
func (m *Meeting) Meet(ctx context.Context, secret secure.Secret, payload []byte) ([][]byte, error) {
	if err := CheckWorld(m.Rank, m.Size); err != nil {
		return nil, fmt.Errorf("bootstrap: meeting: %w", err)
	}
	if m.Size == 1 {
		return [][]byte{append([]byte{}, payload...)}, nil
	}
	v := visit{m: m, st: store.NewSealed(secret, m.base), begin: time.Now(), party: party(m.Members), payload: payload}
	payloads, err := v.run(ctx)
	if err != nil {
		return nil, v.explain(ctx, err)
	}
	return payloads, nil
}

// A visit is one call of Meet.
type visit struct {
	m         *Meeting
	st        store.Store // sealed
	begin     time.Time
	party     string
	payload   []byte
	s         *sitting
	uncounted int64 // sittings right before s that heldKey doesn't count yet, and that only the rank which ends s may
	failed    bool  // there was an attempt, before this rank came, that came to nothing
	missing   []int // the ranks that weren't there whenever another one gave up
	lacking   bool  // missing is known
}

func (v *visit) run(ctx context.Context) ([][]byte, error) {
	held, err := v.st.Add(ctx, heldKey, 0)
	if err != nil {
		return nil, err
	}
	if !v.m.Again {
		if held >= madeOnce {
			return nil, ErrMade
		}
		v.failed = held > 0
	}
	for at := held % madeOnce; ; at++ {
		room := strconv.FormatInt(at, 10)
		v.s = &sitting{st: store.NewPrefix(room, v.st), rank: v.m.Rank, size: v.m.Size, party: v.party, payload: v.payload}
		e, seated, decided, err := v.s.attend(ctx)
		if err != nil {
			return nil, err
		}
		if e.Came && (seated || v.m.Members != nil) { // one that comes later hears of groups that were crossed
			payloads, err := v.s.gather(ctx)
			if crossed, ok := errors.AsType[*CrossedError](err); ok {
				e = &ending{Crossed: crossed}
			} else if err != nil {
				return nil, err
			} else if seated {
				if decided {
					err = v.count(ctx)
				}
				if err == nil {
					v.m.room = room
				}
				return payloads, err
			}
		}
		switch {
		case e.failure() != nil:
			if v.concerns(ctx, e) || seated || decided {
				return nil, e.failure()
			}
			v.uncounted++
		case e.Foreign:
			v.uncounted++
		case e.Came:
			if !v.m.Again {
				if held, err = v.st.Add(ctx, heldKey, 0); err == nil && held >= madeOnce {
					err = ErrMade
				}
			}
			v.uncounted = 0
		default:
			if seated {
				v.note(v.s.absent())
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

// count takes note that the sitting is over.
func (v *visit) count(ctx context.Context) error {
	_, err := v.st.Add(ctx, heldKey, 1+v.uncounted)
	return err
}

// concerns reports whether a rank that comes later is to hear of an ending, which it does once: those who would cross
// another group aren't all in the same sitting.
func (v *visit) concerns(ctx context.Context, e *ending) bool {
	if e.Crossed == nil || v.m.Members == nil {
		return false
	}
	n, err := v.s.st.Add(ctx, "heard/"+strconv.Itoa(v.m.Members[v.m.Rank]), 1)
	return err == nil && n == 1
}

// note keeps of the missing ranks those that were missing each time: one that has given up has come.
func (v *visit) note(missing []int) {
	if v.lacking {
		missing = slices.DeleteFunc(slices.Clone(missing), func(r int) bool { return !slices.Contains(v.missing, r) })
	}
	if len(missing) > 0 {
		v.missing, v.lacking = missing, true
	}
}

// explain makes the error of a visit that has failed. The rank leaves the sitting.
func (v *visit) explain(ctx context.Context, err error) error {
	if errors.Is(err, ErrMade) {
		return err
	}
	if twice, ok := errors.AsType[*DuplicateRankError](err); ok {
		return twice
	}
	if crossed, ok := errors.AsType[*CrossedError](err); ok {
		return crossed
	}
	if v.s != nil {
		v.leave(ctx, err) // first, lest somebody comes meanwhile and goes on without this rank
		if errors.As(err, new(*store.TimeoutError)) {
			v.note(v.s.absent())
			if v.lacking {
				err = &MissingRanksError{Missing: v.missing, Rank: v.m.Rank, Size: v.m.Size, Waited: time.Since(v.begin),
					Again: v.failed, Err: err}
			}
		} else if e := foreign(ctx, v.s.st, v.m.Size, err); e != nil {
			err = e
		}
	}
	if errors.As(err, new(*MissingRanksError)) {
		return err
	}
	return fmt.Errorf("bootstrap: meeting: rank %d of %d: %w", v.m.Rank, v.m.Size, err)
}

// leave ends the sitting, so that the others wait for another attempt of this rank.
func (v *visit) leave(ctx context.Context, why error) {
	if store.Gone(why) {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTime)
	defer cancel()
	if mine, err := v.s.end(ctx, new(ending)); mine && err == nil {
		_ = v.count(ctx) // a lower count costs those who come later some round trips
	}
}

// party writes which ranks of a job meet; long lists by their beginning and a digest.
func party(members []int) string {
	if members == nil {
		return ""
	}
	if slices.IsSorted(members) {
		return shortened(ranklist.Format(members), len(members))
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
