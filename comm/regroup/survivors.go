package regroup

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/internal/sys"
	"github.com/chorus-comms/chorus/store"
)

// Survivors is one rank's part in the agreement of the ranks of a world on who goes on, when they don't know who is
// left. The lowest rank that isn't lost leads: it sends the others its endpoint's address, gathers the ranks that come
// there, and publishes the list of members for an attempt. Its fields up to At are set by the caller.
type Survivors struct {
	Rank, Size int               // of the old world
	Messenger  backend.Messenger // reaches its ranks
	Endpoint   *Endpoint         // this process's; nil if it has no descriptors for one, and only calls Unable
	Me         Member            // of the endpoint
	HadRank    func(Member) bool // reports whether a member was a rank of the old world
	Without    []int             // ranks to leave out besides those that are lost
	With       []string          // handles of newcomers
	Patience   time.Duration     // how long ranks are waited for that are neither lost nor there
	AtLeast    int               // the fewest members of the new world
	// Attempt makes the new world of these members. If it fails, failed are the members at fault, without which the ranks
	// try again; nil: they don't.
	Attempt func(ctx context.Context, uuid string, members []Member) (failed []Member, err error)
	At      backend.Where // for errors

	failed     []Member // by the last attempt
	start      time.Time
	lost       map[int]string // old ranks for which none waits, and why
	leftOut    map[int]bool   // those of them that a rank leaves out
	maybeAlive map[int]bool   // those of them that may live: they're silent, or have left
	tried      map[string]bool
	refused    map[string]bool // newcomers that have failed, by ID
	proposals  []proposal
}

// A proposal is a leader's call to its attempt, or the ranks that its sender leaves out, or why the
// sender can't take part itself.
type proposal struct {
	UUID    string `json:"u,omitempty"`
	Handle  string `json:"h,omitempty"`
	Without []int  `json:"x,omitempty"`
	Unable  string `json:"w,omitempty"`
	from    int
	member  Member
}

// arrival is what a rank leaves in the leader's store.
type arrival struct {
	Handle string   `json:"h"`
	With   []string `json:"w,omitempty"`
}

// roster is what the leader answers, and sends newcomers.
type roster struct {
	UUID    string   `json:"u"`
	Handles []string `json:"h"`
}

const regroupKeys = "regroup/"

// errAgain says that a round has failed because of members that the next does without.
var errAgain = errors.New("again")

// Run agrees with the others until an attempt has made the new world, or ctx ends.
func (r *Survivors) Run(ctx context.Context) error {
	r.begin()
	for _, rank := range r.Without {
		r.markLeftOut(rank)
	}
	for part := range slices.Chunk(r.Without, backend.MaxControl/8) { // that fits a control payload
		r.sendProposal(proposal{Without: part})
	}
	last := error(nil)
	for {
		err := r.round(ctx)
		if err == nil {
			return nil
		}
		if sys.OutOfDescriptors(err) {
			return r.Unable(err)
		}
		if again, ok := r.drop(err); ok && ctx.Err() == nil {
			last = again
			continue
		}
		if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
			if last != nil {
				return last
			}
			err = r.timedOut(ctx)
		}
		return err
	}
}

func (r *Survivors) begin() {
	r.start = time.Now()
	r.lost, r.leftOut, r.maybeAlive = map[int]string{}, map[int]bool{}, map[int]bool{}
	r.tried, r.refused = map[string]bool{}, map[string]bool{}
}

// Unable is the error of a rank that has no descriptors left. It tells the others to go on without it.
func (r *Survivors) Unable(err error) error {
	if !sys.OutOfDescriptors(err) {
		return err
	}
	if r.lost == nil {
		r.begin()
	}
	r.sendProposal(proposal{Unable: limited(err.Error())})
	if errors.Is(err, backend.ErrInternal) {
		return err
	}
	return &backend.InternalError{Where: r.At, Err: err}
}

// limited shortens a reason to what fits a control payload.
func limited(reason string) string {
	const most = backend.MaxControl / 2 // quoted
	return strings.ToValidUTF8(reason[:min(len(reason), most)], "")
}

// timedOut is the error of a rank whose context has ended while it waited for others to come.
func (r *Survivors) timedOut(ctx context.Context) error {
	at := r.At
	if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return &backend.CanceledError{Where: at, Err: context.Cause(ctx)}
	}
	e := &backend.TimeoutError{Where: at, Attendance: backend.Attendance{Elapsed: time.Since(r.start)}}
	for rank := range r.Size {
		if _, gone := r.lost[rank]; !gone && rank != r.Rank {
			e.Unknown = append(e.Unknown, rank)
		}
	}
	return e
}

// drop notes the members that an attempt has failed for, and reports whether the next may do without them.
func (r *Survivors) drop(err error) (error, bool) {
	if errors.Is(err, errAgain) {
		return nil, true
	}
	if r.failed == nil {
		return nil, false
	}
	for _, m := range r.failed {
		switch {
		case m.ID == r.Me.ID:
			return nil, false
		case r.HadRank(m):
			r.lost[m.Place.Rank] = err.Error()
		default:
			r.refused[m.ID] = true
		}
	}
	return err, true
}

// round is one attempt, led by this rank or another.
func (r *Survivors) round(ctx context.Context) error {
	r.failed = nil
	waited := time.Now()
	for {
		news := r.listen()
		if p, ok := r.proposed(); ok {
			return r.follow(ctx, p)
		}
		leader := r.leader()
		if leader == r.Rank {
			return r.lead(ctx)
		}
		patience := time.NewTimer(r.Patience - time.Since(waited))
		select {
		case <-news:
		case <-patience.C:
			r.markSilent(leader)
			waited = time.Now()
		case <-ctx.Done():
			patience.Stop()
			return ctx.Err()
		}
		patience.Stop()
	}
}

// leader is the lowest rank that isn't lost.
func (r *Survivors) leader() int {
	for rank := range r.Size {
		if _, gone := r.lost[rank]; !gone {
			return rank
		}
	}
	return r.Rank
}

// listen takes the control payloads that have come. The channel is closed when there are more.
func (r *Survivors) listen() <-chan struct{} {
	words, news := r.Messenger.Controls()
	for _, w := range words {
		var p proposal
		if json.Unmarshal(w.Payload, &p) != nil {
			continue
		}
		for _, rank := range p.Without {
			if rank >= 0 && rank < r.Size && rank != r.Rank {
				r.markLeftOut(rank)
			}
		}
		if p.Unable != "" {
			r.lost[w.From] = p.Unable
			delete(r.maybeAlive, w.From)
			continue
		}
		m, err := Parse(p.Handle)
		if err != nil || r.tried[p.UUID] {
			continue
		}
		p.from, p.member = w.From, m
		r.proposals = append(r.proposals, p)
	}
	gone := r.Messenger.Gone()
	delete(gone, r.Rank)
	for rank, why := range gone {
		r.lost[rank] = why
		delete(r.maybeAlive, rank)
	}
	for _, rank := range r.Messenger.Closed() {
		if _, known := r.lost[rank]; !known {
			r.markSilent(rank) // it won't come here, and others may have gone on with it
		}
	}
	return news
}

// proposed returns the proposal to follow: that of the lowest rank, which must be lower than this one's. A rank that
// was only slow is back with it. Those of higher ranks stay: they are what's left if the lower one has died since, and
// tell who comes that they are over otherwise.
func (r *Survivors) proposed() (p proposal, ok bool) {
	r.proposals = slices.DeleteFunc(r.proposals, func(p proposal) bool { return r.tried[p.UUID] || r.leftOut[p.from] })
	for _, q := range r.proposals {
		if q.from < r.Rank && (!ok || q.from <= p.from) { // of one rank's, the last
			p, ok = q, true
		}
	}
	if ok {
		for _, q := range r.proposals {
			if q.from == p.from {
				r.tried[q.UUID] = true // its earlier proposals are over
			}
		}
		delete(r.lost, p.from)
		delete(r.maybeAlive, p.from)
	}
	return p, ok
}

// sendProposal sends a proposal to every rank that isn't lost.
func (r *Survivors) sendProposal(p proposal) {
	word, err := json.Marshal(p)
	for rank := range r.Size {
		if _, gone := r.lost[rank]; rank == r.Rank || gone && (p.Unable == "" || !r.maybeAlive[rank]) || err != nil {
			continue
		}
		if r.Messenger.SendControl(rank, word) != nil { // if it's lost there will be news of that
			r.markSilent(rank)
		}
	}
}

// markLeftOut notes a rank that another one leaves out.
func (r *Survivors) markLeftOut(rank int) {
	r.lost[rank], r.leftOut[rank] = "left out", true
	delete(r.maybeAlive, rank)
}

// markSilent notes a rank that doesn't answer, and for which this one no longer waits.
func (r *Survivors) markSilent(rank int) {
	r.lost[rank], r.maybeAlive[rank] = "silent", true
}

// checkSurvivors refuses a world that has too few of the old one's ranks.
func (r *Survivors) checkSurvivors(here map[int]arrival, size int) error {
	if len(here) > len(r.maybeAlive) && size >= r.AtLeast {
		return nil
	}
	return &backend.TimeoutError{Where: r.At, Attendance: backend.Attendance{Elapsed: time.Since(r.start),
		Arrived: slices.Sorted(maps.Keys(here)), Missing: slices.Sorted(maps.Keys(r.lost))}}
}

// follow goes where a leader has called to, and takes part in its attempt.
func (r *Survivors) follow(ctx context.Context, p proposal) error {
	r.tried[p.UUID] = true
	limited, cancel := context.WithTimeout(ctx, 2*r.Patience)
	defer cancel()
	list, err := r.report(limited, p)
	if sys.OutOfDescriptors(err) {
		return err
	}
	if err != nil {
		if ctx.Err() == nil {
			r.lost[p.from] = err.Error()
			return errAgain
		}
		return ctx.Err()
	}
	var all roster
	if err := json.Unmarshal(list, &all); err != nil || all.UUID != p.UUID {
		r.lost[p.from] = "its list can't be read"
		return errAgain
	}
	if len(all.Handles) == 0 {
		return errAgain // it has given up leading, but not itself
	}
	if !slices.Contains(all.Handles, r.Me.String()) {
		return &backend.AbortedError{Where: r.At, By: p.from, Reason: "the others go on without this rank"}
	}
	return r.attempt(ctx, p.UUID, all.Handles)
}

// report tells the leader that this rank is there, and returns the leader's list.
func (r *Survivors) report(ctx context.Context, p proposal) ([]byte, error) {
	st, release, err := r.Endpoint.Reach(ctx, p.member)
	if err != nil {
		return nil, err
	}
	defer release()
	mine, err := json.Marshal(arrival{Handle: r.Me.String(), With: r.With})
	if err != nil {
		return nil, err
	}
	st = store.NewPrefix(regroupKeys+p.UUID, st)
	if err := st.Set(ctx, strconv.Itoa(r.Rank), mine); err != nil {
		return nil, err
	}
	return st.Get(ctx, "list")
}

func (r *Survivors) attempt(ctx context.Context, uuid string, handles []string) error {
	members, err := ParseAll(handles)
	if err != nil {
		return &backend.InvalidArgumentError{Where: r.At, Detail: err.Error()}
	}
	ctx, cancel := context.WithTimeout(ctx, max(r.Patience, time.Second))
	defer cancel()
	r.failed, err = r.Attempt(ctx, uuid, members)
	return err
}
