package regroup

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/chorus-comms/chorus/internal/sys"
	"github.com/chorus-comms/chorus/store"
)

// Keys of an attempt in the store of each member: what it knows.
const (
	keyList    = "list"    // a digest of the members in their order; set when the member begins
	keyVoted   = "voted"   // set before the member tells the leader that it's ready
	keyOutcome = "outcome" // the end; at the leader's it's the decision itself
	keyGaveUp  = "gaveup/" // with a number: it has no outcome, and listens to no member before that number any more
	// In the leader's only:
	keyHere = "here/" // with a number: that member has begun
	keyVote = "vote/" // with a number: that member is ready
	keyOpen = "open"  // prefix of what prepare uses
)

const (
	// resolveTime bounds how long an attempt goes on beyond its deadline, for each member that has to be asked.
	resolveTime = 5 * time.Second
	// reasonTime is what a member whose prepare failed leaves the leader to say why: it may be because another one
	// died.
	reasonTime = time.Second
)

// attempt is one member's part in one attempt.
type attempt struct {
	endpoint *Endpoint
	uuid     string
	members  []Member
	me       int
	local    store.Store
	digest   []byte

	mu  sync.Mutex
	own error // what this member could not do, if the attempt has failed for that
}

// Agree takes part in the attempt named uuid to make a world of members, of which this process must be one. The first
// of them leads. prepare is called once, on this goroutine, with an unused store that all members share. It opens
// what the world needs, and its context ends early when the attempt has failed. Agree returns nil, on every member,
// when all members have prepared. Otherwise it returns the reason: an [*Error], or an error of the arguments.
//
// The caller may use what was prepared only if Agree returns nil. Even then a member may have died
// since it prepared: the world has been made, and finds that out like any other world.
func (s *Endpoint) Agree(ctx context.Context, uuid string, members []Member,
	prepare func(context.Context, store.Store) error) error {
	a := &attempt{endpoint: s, uuid: uuid, members: members, me: -1}
	h := sha256.New()
	for i, m := range members {
		if m.ID == s.id {
			a.me = i
		}
		fmt.Fprintf(h, "%q", m.ID)
	}
	a.digest = h.Sum(nil)
	if a.me < 0 {
		return errors.New("this process is not among the members")
	}
	if uuid == "" || len(uuid) > 128 || strings.ContainsAny(uuid, "/\x00") {
		return fmt.Errorf("uuid %.40q is empty, too long, or has a slash", uuid)
	}
	s.mu.Lock()
	busy := s.busy || s.closed
	s.busy = true
	s.mu.Unlock()
	if busy {
		return errors.New("another attempt of this process is under way, or its endpoint is closed")
	}
	defer func() {
		s.mu.Lock()
		s.busy = false
		s.mu.Unlock()
	}()
	a.local = a.prefixed(s.Local())
	if n, err := a.local.Add(ctx, "used", 1); err != nil || n > 1 {
		return errors.Join(err, fmt.Errorf("uuid %q has been used before; each attempt takes a fresh one", uuid))
	}
	if err := s.begin(ctx, uuid); err != nil {
		return err
	}
	s.at("begin")
	if err := a.local.Set(ctx, keyList, a.digest); err != nil {
		return err
	}
	if a.me == 0 {
		return a.lead(ctx, prepare)
	}
	outcome := a.follow(ctx, prepare)
	s.at("publish")
	// From now on a member that resolves the attempt can rely on this outcome.
	if err := a.local.Set(context.WithoutCancel(ctx), keyOutcome, outcome); err != nil {
		return a.failure(Canceled, err.Error(), nil, a.me)
	}
	s.at("end")
	return a.keepCause(a.decode(outcome, 0))
}

// prefixed returns an attempt's part of a store.
func (a *attempt) prefixed(st store.Store) store.Store { return store.NewPrefix("attempt/"+a.uuid, st) }

// reach connects to a member's store.
func (a *attempt) reach(ctx context.Context, i int) (store.Store, func(), error) {
	st, release, err := a.endpoint.Reach(ctx, a.members[i])
	if err != nil {
		return nil, nil, err
	}
	return a.prefixed(st), release, nil
}

func numbered(key string, i int) string { return key + strconv.Itoa(i) }

// lead is the part of the first member.
func (a *attempt) lead(ctx context.Context, prepare func(context.Context, store.Store) error) error {
	deadline := ctx
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// The watches go on after the decision, until every member has it.
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var watchers sync.WaitGroup
	fail := func(e *Error) { cancel(e) }
	watchers.Go(func() {
		if outcome, err := a.local.Get(watching, keyOutcome); err == nil {
			if err := a.decode(outcome, a.me); err != nil {
				cancel(err)
			}
		}
	})
	for i := 1; i < len(a.members); i++ {
		watchers.Go(func() { a.watch(watching, i, fail) })
	}
	undecided, decided := context.WithCancel(watching)
	defer decided()
	watchers.Go(func() { a.watchStarved(undecided, fail) })
	a.endpoint.at("prepare")
	err := a.local.Set(ctx, numbered(keyHere, 0), nil)
	if err == nil {
		err = prepare(ctx, store.NewPrefix(keyOpen, a.local))
	}
	a.endpoint.at("prepared")
	if err == nil {
		votes := make([]string, 0, len(a.members))
		for i := 1; i < len(a.members); i++ {
			votes = append(votes, numbered(keyVote, i))
		}
		if len(votes) > 0 {
			err = a.local.Wait(ctx, votes...)
		}
	} else {
		awaitReason(ctx, err)
	}
	mine := []byte(committed)
	if err != nil || ctx.Err() != nil {
		mine = a.blame(ctx, deadline, err, a.local).encode()
	}
	a.endpoint.at("decide")
	outcome, derr := a.local.CompareSet(watching, keyOutcome, nil, mine)
	decided()
	if derr != nil {
		stop()
		watchers.Wait()
		return a.failure(Canceled, derr.Error(), nil, a.me)
	}
	a.endpoint.at("decided")
	verdict := a.decode(outcome, a.me)
	if verdict == nil {
		limit := time.AfterFunc(resolveTime, stop)
		defer limit.Stop()
	} else {
		stop()
	}
	watchers.Wait()
	a.endpoint.at("end")
	return a.keepCause(verdict)
}

// failed is the failure of an attempt for what this member can't do.
func (a *attempt) failed(cause error) *Error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.own = cause
	kind := Failed
	if sys.OutOfDescriptors(cause) {
		kind = Unable
	}
	return a.failure(kind, cause.Error(), cause, a.me)
}

// keepCause gives the error of the member that could not prepare its cause.
func (a *attempt) keepCause(verdict error) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if e, ok := errors.AsType[*Error](verdict); ok && (e.Kind == Failed || e.Kind == Unable) && e.cause == nil &&
		a.own != nil && slices.Equal(e.Members, []int{a.me}) {
		e.cause = a.own
	}
	return verdict
}

// lost is the failure of an attempt for a member that can't be reached, unless it's this process that has no
// descriptors for that.
func (a *attempt) lost(err error, i int) *Error {
	if sys.OutOfDescriptors(err) {
		return a.failed(err)
	}
	return a.failure(Lost, err.Error(), nil, i)
}

// watchStarved fails the attempt if this member lacks descriptors for another one's connection.
func (a *attempt) watchStarved(ctx context.Context, fail func(*Error)) {
	select {
	case err := <-a.endpoint.starved:
		fail(a.failed(err))
	case <-ctx.Done():
	}
}

// awaitReason waits a short time for another member to say why preparing failed. A process that lacks descriptors knows
// why, and doesn't wait.
func awaitReason(ctx context.Context, err error) {
	if sys.OutOfDescriptors(err) {
		return
	}
	t := time.NewTimer(reasonTime)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// watch follows another member from the leader: until it has an outcome, or dies.
func (a *attempt) watch(ctx context.Context, i int, fail func(*Error)) {
	st, release, err := a.reach(ctx, i)
	if err == nil {
		defer release()
		var list []byte
		if list, err = st.Get(ctx, keyList); err == nil {
			if !bytes.Equal(list, a.digest) {
				fail(a.failure(Mismatch, "it was given other members than the leader, or in another order", nil, i))
				return
			}
			if err = a.local.Set(ctx, numbered(keyHere, i), nil); err == nil {
				var outcome []byte
				if outcome, err = st.Get(ctx, keyOutcome); err == nil {
					// It may have had no way to say it here.
					if e, ok := errors.AsType[*Error](a.decode(outcome, i)); ok && slices.Equal(e.Members, []int{i}) {
						fail(e)
					}
				}
			}
		}
	}
	if err != nil && ctx.Err() == nil {
		fail(a.lost(err, i))
	}
}

// blame says why this member calls the attempt off, given what its prepare, or waiting for votes, ended with.
func (a *attempt) blame(ctx, deadline context.Context, err error, leaders store.Store) *Error {
	if sys.OutOfDescriptors(err) {
		return a.failed(err)
	}
	if e, ok := errors.AsType[*Error](context.Cause(ctx)); ok {
		return e
	}
	switch {
	case errors.Is(deadline.Err(), context.DeadlineExceeded):
		if missing := a.missing(leaders); len(missing) > 0 {
			return a.failure(Missing, "", nil, missing...)
		}
		return a.failure(Missing, "its own deadline has passed", nil, a.me)
	case deadline.Err() != nil:
		return a.failure(Canceled, context.Cause(deadline).Error(), nil, a.me)
	}
	return a.failed(err)
}

// missing returns the members that the leader has not seen, or else those that were not ready.
func (a *attempt) missing(leaders store.Store) (absent []int) {
	ctx, cancel := context.WithTimeout(context.Background(), reasonTime)
	defer cancel()
	for _, key := range []string{keyHere, keyVote} {
		for i := range a.members {
			if i == 0 && key == keyVote {
				continue // the leader has no vote but the decision
			}
			if there, err := leaders.Check(ctx, numbered(key, i)); err == nil && !there {
				absent = append(absent, i)
			}
		}
		if len(absent) > 0 {
			break
		}
	}
	return absent
}

// follow is the part of every other member. It returns the outcome as it stands in stores.
func (a *attempt) follow(ctx context.Context, prepare func(context.Context, store.Store) error) []byte {
	a.endpoint.at("reach")
	hub, release, err := a.reach(ctx, 0)
	if err == nil {
		defer release()
		var list []byte
		if list, err = hub.Get(ctx, keyList); err == nil && !bytes.Equal(list, a.digest) {
			return a.abandon(hub, a.failure(Mismatch, "it was given other members than the leader, or in another order", nil,
				a.me))
		}
	}
	switch {
	case err == nil:
	case errors.Is(ctx.Err(), context.DeadlineExceeded) || errors.Is(err, context.DeadlineExceeded):
		return a.failure(Missing, err.Error(), nil, 0).encode()
	case ctx.Err() != nil:
		return a.failure(Canceled, context.Cause(ctx).Error(), nil, a.me).encode()
	default:
		return a.lost(err, 0).encode()
	}

	// The connection that waits for the decision shows the leader's end, too.
	deadline := ctx
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	waiting, stop := context.WithCancel(context.WithoutCancel(ctx))
	var outcome []byte // valid once decided is closed; nil if the leader is lost
	decided := make(chan struct{})
	go func() {
		defer close(decided)
		var err error
		if outcome, err = hub.Get(waiting, keyOutcome); err != nil {
			cancel(a.lost(err, 0))
		} else if err := a.decode(outcome, 0); err != nil {
			cancel(err)
		}
	}()
	var hungry sync.WaitGroup
	hungry.Go(func() { a.watchStarved(waiting, func(e *Error) { cancel(e) }) })
	defer func() { stop(); <-decided; hungry.Wait() }()

	a.endpoint.at("prepare")
	err = prepare(ctx, store.NewPrefix(keyOpen, hub))
	a.endpoint.at("prepared")
	if err != nil || ctx.Err() != nil {
		awaitReason(ctx, err)
		why := a.blame(ctx, deadline, err, hub)
		if why.Kind == Lost && why.Members[0] == 0 {
			return why.encode() // it can't decide without this member's vote
		}
		if sys.OutOfDescriptors(why) { // what waits has a descriptor, with which this member can say so
			stop()
			<-decided
		}
		return a.abandon(hub, why)
	}
	if err := a.local.Set(waiting, keyVoted, nil); err != nil {
		return a.abandon(hub, a.failed(err))
	}
	a.endpoint.at("vote")
	if err = hub.Set(waiting, numbered(keyVote, a.me), nil); err == nil {
		a.endpoint.at("voted")
		select {
		case <-decided:
			if outcome != nil {
				return outcome
			}
		case <-deadline.Done():
			final, cancel := context.WithTimeout(waiting, resolveTime)
			defer cancel()
			if outcome, err := hub.CompareSet(final, keyOutcome, nil, a.blame(deadline, deadline, nil,
				hub).encode()); err == nil {
				return outcome
			}
		}
	} else if sys.OutOfDescriptors(err) {
		stop()
		if <-decided; outcome != nil {
			return outcome
		}
		final, cancel := context.WithTimeout(context.Background(), resolveTime)
		defer cancel()
		if outcome, err := hub.CompareSet(final, keyOutcome, nil, a.failed(err).encode()); err == nil {
			return outcome
		}
	}
	return a.resolve()
}

// abandon decides against the attempt at the leader's store, unless it's decided there already, and returns the
// outcome. The member has not voted, so the leader's end is no harm.
func (a *attempt) abandon(hub store.Store, why *Error) []byte {
	ctx, cancel := context.WithTimeout(context.Background(), resolveTime)
	defer cancel()
	mine := why.encode()
	if outcome, err := hub.CompareSet(ctx, keyOutcome, nil, mine); err == nil {
		return outcome
	}
	return mine
}
