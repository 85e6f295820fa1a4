package comm

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/comm/regroup"
	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/store"
)

// RegroupOption changes Regroup.
type RegroupOption func(*regroupOptions)

type regroupOptions struct {
	without  []int
	with     []string
	patience time.Duration
	atLeast  int
}

// Without leaves out ranks, besides those that are lost: one that hangs, say. It's enough if one rank passes it.
func Without(ranks ...int) RegroupOption {
	return func(o *regroupOptions) { o.without = append(o.without, ranks...) }
}

// With takes in newcomers, by the handles of communicators that are [WithoutWorld] and wait in Regroup. It's enough if
// one rank passes it.
func With(handles ...string) RegroupOption {
	return func(o *regroupOptions) { o.with = append(o.with, handles...) }
}

// Patience is how long ranks are waited for that are neither lost nor in Regroup; they are left out then. The default
// is half of the time that Regroup has.
func Patience(d time.Duration) RegroupOption { return func(o *regroupOptions) { o.patience = d } }

// AtLeast makes Regroup fail with a *[TimeoutError] rather than make a world of fewer than n. Every rank passes the
// same.
func AtLeast(n int) RegroupOption { return func(o *regroupOptions) { o.atLeast = n } }

// Regroup makes a new communicator of the ranks that are left, and of newcomers: Reconfigure for ranks that don't know
// who that is. Every survivor calls it, when an operation has failed, or to take newcomers in; it needs no agreement
// about anything before.
//
//	c, err = c.Regroup(ctx)                       // shrink: without the ranks that are lost
//	c, err = c.Regroup(ctx, comm.With(handle))    // grow, or replace a lost rank
//
// Survivors keep their order. Newcomers take the places of lost ranks, and then places at the end, so that the ranks
// of a world whose dead are replaced stay what they were. On a communicator [WithoutWorld] Regroup waits to be taken
// in.
//
// When a member dies while the world is being made, Regroup begins again with the remaining ranks, until ctx ends,
// or c's timeout. If parts of a world can't reach each other, at most one part goes on, as long as the ranks of the
// others count as silent and not as lost. For the new world must have more survivors than there are ranks that are
// silent, or have left. AtLeast demands more.
//
// A rank that has no descriptors left returns an *[InternalError] that says so, at once, and the others go on without
// it.
//
// Its results are Reconfigure's; in addition, it returns an *[AbortedError] on a rank that the others go on
// without, and an *[UnsupportedError] if c's backend has no way for survivors to speak to each other.
func (c *Comm) Regroup(ctx context.Context, opts ...RegroupOption) (*Comm, error) {
	const op = "regroup"
	if ctx == nil {
		ctx = context.Background()
	}
	if err := c.usable(ctx, op); err != nil {
		return nil, err
	}
	var o regroupOptions
	for i, f := range opts {
		if f == nil {
			return nil, c.noOption(op, i+1)
		}
		f(&o)
	}
	for _, r := range o.without {
		if bad := c.peer(r, "each rank of Without"); bad != "" || r == c.rank {
			return nil, c.invalid(op, "Without(%d): %s", r, cmp.Or(bad, "it's this rank"))
		}
	}
	if _, err := regroup.ParseAll(o.with); err != nil {
		return nil, c.invalid(op, "With: %v", err)
	}
	if _, has := ctx.Deadline(); !has {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(c.timeout.Load()))
		defer cancel()
	}
	if o.patience <= 0 {
		end, _ := ctx.Deadline()
		o.patience = max(time.Until(end)/2, 0)
	}
	if c.size == 0 {
		return c.joinInvited(ctx)
	}
	messenger, ok := c.b.(backend.Messenger)
	if !ok {
		return nil, &UnsupportedError{Where: c.at(op),
			Detail: fmt.Sprintf("the ranks of backend %q can't speak to each other once an operation has failed; Reconfigure takes handles that they have exchanged before", c.backend)}
	}
	r := &regrouping{c: c, o: o, messenger: messenger, start: time.Now(), lost: map[int]string{}, leftOut: map[int]bool{},
		maybeAlive: map[int]bool{}, tried: map[string]bool{}, refused: map[string]bool{}}
	var err error
	if r.endpoint, err = c.openEndpoint(); err != nil {
		return nil, r.unable(err)
	}
	r.endpoint.Refresh()
	r.me = c.memberOf(r.endpoint)
	for _, rank := range o.without {
		r.markLeftOut(rank)
	}
	for len(o.without) > 0 { // in parts that fit a control payload
		part := o.without[:min(len(o.without), backend.MaxControl/8)]
		o.without = o.without[len(part):]
		r.sendProposal(proposal{Without: part})
	}
	return r.run(ctx)
}

// regrouping is one rank's part in Regroup. The lowest rank that isn't lost leads: it sends the others its
// endpoint's address, gathers the ranks that come there, and publishes the list of members for an attempt.
type regrouping struct {
	c         *Comm
	o         regroupOptions
	messenger backend.Messenger
	endpoint  *regroup.Endpoint
	me        regroup.Member

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
	member  regroup.Member
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

func (r *regrouping) run(ctx context.Context) (*Comm, error) {
	last := error(nil)
	for {
		n, err := r.round(ctx)
		if err == nil {
			return n, nil
		}
		if fabric.Exhausted(err) {
			return nil, r.unable(err)
		}
		if again, ok := r.drop(err); ok && ctx.Err() == nil {
			last = again
			continue
		}
		if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
			if last != nil {
				return nil, last
			}
			err = r.timedOut(ctx)
		}
		return nil, err
	}
}

// unable is the error of a rank that has no descriptors left. It tells the others to go on without it.
func (r *regrouping) unable(err error) error {
	if !fabric.Exhausted(err) {
		return err
	}
	r.sendProposal(proposal{Unable: limited(err.Error())})
	r.c.finalizer.dropEndpoint()
	if errors.Is(err, ErrInternal) {
		return err
	}
	return &InternalError{Where: r.c.at("regroup"), Err: err}
}

// limited shortens a reason to what fits a control payload.
func limited(reason string) string {
	const most = backend.MaxControl / 2 // quoted
	return strings.ToValidUTF8(reason[:min(len(reason), most)], "")
}

// timedOut is the error of a rank whose context has ended while it waited for others to come.
func (r *regrouping) timedOut(ctx context.Context) error {
	at := r.c.at("regroup")
	if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return &CanceledError{Where: at, Err: context.Cause(ctx)}
	}
	e := &TimeoutError{Where: at, Attendance: backend.Attendance{Elapsed: time.Since(r.start)}}
	for rank := range r.c.size {
		if _, gone := r.lost[rank]; !gone && rank != r.c.rank {
			e.Unknown = append(e.Unknown, rank)
		}
	}
	return e
}

// drop notes the members that an attempt has failed for, and reports whether the next may do without them.
func (r *regrouping) drop(err error) (error, bool) {
	if errors.Is(err, errAgain) {
		return nil, true
	}
	e, ok := errors.AsType[*ReconfigureError](err)
	if !ok || errors.Is(err, ErrMismatch) || errors.Is(err, ErrInternal) {
		return nil, false
	}
	for _, i := range e.Members {
		m := e.list[i]
		switch {
		case m.ID == r.me.ID:
			return nil, false
		case r.c.hadRank(m):
			r.lost[m.Place.Rank] = e.Detail
		default:
			r.refused[m.ID] = true
		}
	}
	return err, true
}

// round is one attempt, led by this rank or another.
func (r *regrouping) round(ctx context.Context) (*Comm, error) {
	waited := time.Now()
	for {
		news := r.listen()
		if p, ok := r.proposed(); ok {
			return r.follow(ctx, p)
		}
		leader := r.leader()
		if leader == r.c.rank {
			return r.lead(ctx)
		}
		patience := time.NewTimer(r.o.patience - time.Since(waited))
		select {
		case <-news:
		case <-patience.C:
			r.markSilent(leader)
			waited = time.Now()
		case <-ctx.Done():
			patience.Stop()
			return nil, ctx.Err()
		}
		patience.Stop()
	}
}

// leader is the lowest rank that isn't lost.
func (r *regrouping) leader() int {
	for rank := range r.c.size {
		if _, gone := r.lost[rank]; !gone {
			return rank
		}
	}
	return r.c.rank
}

// listen takes the control payloads that have come. The channel is closed when there are more.
func (r *regrouping) listen() <-chan struct{} {
	words, news := r.messenger.Controls()
	for _, w := range words {
		var p proposal
		if json.Unmarshal(w.Payload, &p) != nil {
			continue
		}
		for _, rank := range p.Without {
			if rank >= 0 && rank < r.c.size && rank != r.c.rank {
				r.markLeftOut(rank)
			}
		}
		if p.Unable != "" {
			r.lost[w.From] = p.Unable
			delete(r.maybeAlive, w.From)
			continue
		}
		m, err := regroup.Parse(p.Handle)
		if err != nil || r.tried[p.UUID] {
			continue
		}
		p.from, p.member = w.From, m
		r.proposals = append(r.proposals, p)
	}
	gone := r.messenger.Gone()
	delete(gone, r.c.rank)
	for rank, why := range gone {
		r.lost[rank] = why
		delete(r.maybeAlive, rank)
	}
	return news
}

// proposed returns the proposal to follow: that of the lowest rank, which must be lower than this one's. A rank that
// was only slow is back with it. Those of higher ranks stay: they are what's left if the lower one has died since, and
// tell who comes that they are over otherwise.
func (r *regrouping) proposed() (p proposal, ok bool) {
	r.proposals = slices.DeleteFunc(r.proposals, func(p proposal) bool { return r.tried[p.UUID] || r.leftOut[p.from] })
	for _, q := range r.proposals {
		if q.from < r.c.rank && (!ok || q.from <= p.from) { // of one rank's, the last
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
func (r *regrouping) sendProposal(p proposal) {
	word, err := json.Marshal(p)
	for rank := range r.c.size {
		if _, gone := r.lost[rank]; rank == r.c.rank || gone && (p.Unable == "" || !r.maybeAlive[rank]) || err != nil {
			continue
		}
		if r.messenger.SendControl(rank, word) != nil { // if it's lost there will be news of that
			r.markSilent(rank)
		}
	}
}

// markLeftOut notes a rank that another one leaves out.
func (r *regrouping) markLeftOut(rank int) {
	r.lost[rank], r.leftOut[rank] = "left out", true
	delete(r.maybeAlive, rank)
}

// markSilent notes a rank that doesn't answer, and for which this one no longer waits.
func (r *regrouping) markSilent(rank int) {
	r.lost[rank], r.maybeAlive[rank] = "silent", true
}

// checkSurvivors refuses a world that has too few of the old one's ranks.
func (r *regrouping) checkSurvivors(here map[int]arrival, size int) error {
	if len(here) > len(r.maybeAlive) && size >= r.o.atLeast {
		return nil
	}
	return &TimeoutError{Where: r.c.at("regroup"), Attendance: backend.Attendance{Elapsed: time.Since(r.start),
		Arrived: slices.Sorted(maps.Keys(here)), Missing: slices.Sorted(maps.Keys(r.lost))}}
}

// follow goes where a leader has called to, and takes part in its attempt.
func (r *regrouping) follow(ctx context.Context, p proposal) (*Comm, error) {
	r.tried[p.UUID] = true
	limited, cancel := context.WithTimeout(ctx, 2*r.o.patience)
	defer cancel()
	list, err := r.report(limited, p)
	if fabric.Exhausted(err) {
		return nil, err
	}
	if err != nil {
		if ctx.Err() == nil {
			r.lost[p.from] = err.Error()
			return nil, errAgain
		}
		return nil, ctx.Err()
	}
	var all roster
	if err := json.Unmarshal(list, &all); err != nil || all.UUID != p.UUID {
		r.lost[p.from] = "its list can't be read"
		return nil, errAgain
	}
	if len(all.Handles) == 0 {
		return nil, errAgain // it has given up leading, but not itself
	}
	if !slices.Contains(all.Handles, r.me.String()) {
		return nil, &AbortedError{Where: r.c.at("regroup"), By: p.from, Reason: "the others go on without this rank"}
	}
	return r.attempt(ctx, p.UUID, all.Handles)
}

// report tells the leader that this rank is there, and returns the leader's list.
func (r *regrouping) report(ctx context.Context, p proposal) ([]byte, error) {
	st, release, err := r.endpoint.Reach(ctx, p.member)
	if err != nil {
		return nil, err
	}
	defer release()
	mine, err := json.Marshal(arrival{Handle: r.me.String(), With: r.o.with})
	if err != nil {
		return nil, err
	}
	st = store.NewPrefix(regroupKeys+p.UUID, st)
	if err := st.Set(ctx, strconv.Itoa(r.c.rank), mine); err != nil {
		return nil, err
	}
	return st.Get(ctx, "list")
}

func (r *regrouping) attempt(ctx context.Context, uuid string, handles []string) (*Comm, error) {
	members, err := regroup.ParseAll(handles)
	if err != nil {
		return nil, r.c.invalid("regroup", "%v", err)
	}
	ctx, cancel := context.WithTimeout(ctx, max(r.o.patience, time.Second))
	defer cancel()
	return r.c.reconfigure(ctx, uuid, members, nil)
}

// lead calls the others, waits for those that aren't lost, and leads an attempt with the ranks that have
// come.
func (r *regrouping) lead(ctx context.Context) (*Comm, error) {
	uuid := rand.Text()
	r.sendProposal(proposal{UUID: uuid, Handle: r.me.String()})
	handles, newcomers, release, why := r.gatherAll(ctx, uuid)
	defer release()
	// Without handles, the ranks that have come begin again.
	list, err := json.Marshal(roster{UUID: uuid, Handles: handles})
	if err != nil {
		return nil, err
	}
	local := store.NewPrefix(regroupKeys+uuid, r.endpoint.Local())
	if err := local.Set(context.WithoutCancel(ctx), "list", list); err != nil {
		return nil, err
	}
	if why != nil {
		return nil, why
	}
	for _, st := range newcomers {
		if err := store.QueuePush(ctx, st, invitations, list); fabric.Exhausted(err) {
			return nil, err
		} else if err != nil && ctx.Err() != nil {
			return nil, ctx.Err() // else it's lost, as the attempt will find
		}
	}
	return r.attempt(ctx, uuid, handles)
}

// gatherAll waits for the others, and lays out the list.
func (r *regrouping) gatherAll(ctx context.Context, uuid string) (handles []string, newcomers []store.Store,
	release func(), err error) {
	here, err := r.gather(ctx, uuid)
	if err != nil {
		return nil, nil, func() {}, err
	}
	handles, newcomers, release, err = r.publishRoster(ctx, here)
	if err == nil {
		err = r.checkSurvivors(here, len(handles))
	}
	if err != nil {
		handles = nil
	}
	return handles, newcomers, release, err
}

// gather waits until every rank has come or is lost, and returns the arrivals, by rank.
func (r *regrouping) gather(ctx context.Context, uuid string) (map[int]arrival, error) {
	st := store.NewPrefix(regroupKeys+uuid, r.endpoint.Local())
	type came struct {
		rank  int
		value []byte
	}
	waiting, stop := context.WithTimeout(ctx, r.o.patience)
	var all sync.WaitGroup
	defer all.Wait()
	defer stop()
	arrivals := make(chan came, r.c.size)
	missing := map[int]bool{}
	for rank := range r.c.size {
		if _, gone := r.lost[rank]; rank == r.c.rank || gone {
			continue
		}
		missing[rank] = true
		all.Go(func() {
			if v, err := st.Get(waiting, strconv.Itoa(rank)); err == nil {
				arrivals <- came{rank, v}
			}
		})
	}
	here := map[int]arrival{r.c.rank: {Handle: r.me.String(), With: r.o.with}}
	for len(missing) > 0 {
		news := r.listen()
		if p, ok := r.proposed(); ok { // a lower rank leads after all
			r.proposals = append(r.proposals, p)
			delete(r.tried, p.UUID)
			return nil, errAgain
		}
		for rank := range missing {
			if _, gone := r.lost[rank]; gone {
				delete(missing, rank)
			}
		}
		if len(missing) == 0 {
			break
		}
		select {
		case <-news:
		case err := <-r.endpoint.Starved():
			return nil, err
		case x := <-arrivals:
			var a arrival
			if json.Unmarshal(x.value, &a) == nil && missing[x.rank] {
				here[x.rank] = a
			}
			delete(missing, x.rank)
		case <-waiting.Done():
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			for rank := range missing {
				r.markSilent(rank)
			}
		}
	}
	return here, nil
}

// publishRoster makes the list of the new world's handles, and connects to its newcomers; release closes
// these connections.
func (r *regrouping) publishRoster(ctx context.Context, here map[int]arrival) (handles []string,
	newcomers []store.Store, release func(), err error) {
	var open []func()
	release = func() {
		for _, f := range open {
			f()
		}
	}
	places := make([]string, r.c.size)
	var fresh []string
	seen := map[string]bool{}
	for _, rank := range slices.Sorted(maps.Keys(here)) {
		a := here[rank]
		if m, err := regroup.Parse(a.Handle); err != nil || m.Place.Rank != rank || !r.c.hadRank(m) {
			r.lost[rank] = "its handle can't be read"
		}
		if _, gone := r.lost[rank]; !gone {
			places[rank] = a.Handle
		}
		for _, h := range a.With {
			m, err := regroup.Parse(h)
			if err != nil || r.refused[m.ID] || seen[m.ID] {
				continue
			}
			seen[m.ID] = true
			st, done, err := r.endpoint.Reach(ctx, m)
			if ctx.Err() != nil {
				return nil, nil, release, ctx.Err()
			}
			if fabric.Exhausted(err) {
				return nil, nil, release, err
			}
			if err != nil {
				r.refused[m.ID] = true
				continue
			}
			open = append(open, done)
			newcomers, fresh = append(newcomers, st), append(fresh, h)
		}
	}
	for i, h := range places {
		if h == "" && len(fresh) > 0 {
			places[i], fresh = fresh[0], fresh[1:]
		}
	}
	handles = slices.DeleteFunc(append(places, fresh...), func(h string) bool { return h == "" })
	return handles, newcomers, release, nil
}

// invitations is the queue in a newcomer's store.
const invitations = "invitations"

// invited returns the next list that a world has sent, or why this process couldn't take its call.
func invited(ctx context.Context, endpoint *regroup.Endpoint) ([]byte, error) {
	waiting, stop := context.WithCancelCause(ctx)
	var watch sync.WaitGroup
	watch.Go(func() {
		select {
		case err := <-endpoint.Starved():
			stop(err)
		case <-waiting.Done():
		}
	})
	list, err := store.QueuePop(waiting, endpoint.Local(), invitations)
	starved := context.Cause(waiting)
	stop(nil)
	watch.Wait()
	if err != nil && fabric.Exhausted(starved) {
		err = starved
	}
	return list, err
}

// joinInvited waits until a world admits this newcomer.
func (c *Comm) joinInvited(ctx context.Context) (*Comm, error) {
	endpoint, err := c.openEndpoint()
	if err != nil {
		return nil, err
	}
	endpoint.Refresh()
	var last error
	for {
		list, err := invited(ctx, endpoint)
		if err != nil {
			if fabric.Exhausted(err) {
				c.finalizer.dropEndpoint()
				return nil, &InternalError{Where: c.at("regroup"), Err: err}
			}
			if last != nil {
				return nil, last
			}
			if ctx.Err() != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return nil, &CanceledError{Where: c.at("regroup"), Err: context.Cause(ctx)}
			}
			return nil, &TimeoutError{Where: c.at("regroup")}
		}
		var all roster
		if err := json.Unmarshal(list, &all); err != nil {
			continue
		}
		members, err := regroup.ParseAll(all.Handles)
		if err != nil {
			continue
		}
		n, err := c.reconfigure(ctx, all.UUID, members, nil)
		if err == nil || fabric.Exhausted(err) {
			return n, err
		}
		last = err
	}
}
