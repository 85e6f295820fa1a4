package comm

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/comm/regroup"
	"github.com/chorus-comms/chorus/config"
	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/store"
)

// ReconfigureOption changes Reconfigure.
type ReconfigureOption func(*reconfigureOptions)

type reconfigureOptions struct {
	anyOrder bool
	hints    map[string]string
}

// AnyOrder says that the handles are a set: the new ranks are those of the largest old world in their old order, then
// the others', then the newcomers.
func AnyOrder() ReconfigureOption { return func(o *reconfigureOptions) { o.anyOrder = true } }

// ReconfigureHints are the new communicator's hints; without them it has the old one's. Every member passes the same.
func ReconfigureHints(h map[string]string) ReconfigureOption {
	return func(o *reconfigureOptions) { o.hints = h }
}

// Handle returns this rank's handle: text without spaces, of a few hundred bytes, by which the other members of a new
// world find it. Every member of the new world passes it to Reconfigure. It's valid until the communicator is
// finalized, broken or not. A communicator that Reconfigure returns has a handle of its own. The first call begins to
// listen at a socket of this host. If the job has a MASTER_ADDR on another host, it also listens at an address that
// other hosts can reach.
func (c *Comm) Handle() (string, error) {
	endpoint, err := c.openEndpoint()
	if err != nil {
		return "", err
	}
	return c.memberOf(endpoint).String(), nil
}

// openEndpoint returns the endpoint, which is opened at the first call.
func (c *Comm) openEndpoint() (*regroup.Endpoint, error) {
	if err := c.place().Check(); err != nil {
		return nil, c.invalid(reconfigureOp, "%v", err)
	}
	return c.finalizer.openEndpoint(c.opened.masterAddr)
}

func (c *Comm) place() regroup.OldPlace {
	return regroup.OldPlace{Name: c.name, World: c.opened.world, Rank: c.rank, Size: c.size}
}

// memberOf returns this rank as a member of a new world.
func (c *Comm) memberOf(endpoint *regroup.Endpoint) regroup.Member {
	return endpoint.Member(c.place())
}

// atRegroup is called at each step of an attempt; for tests.
var atRegroup func(step string)

func (e *finalizer) openEndpoint(master string) (*regroup.Endpoint, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.finalized {
		return nil, &FinalizedError{Where: Where{Comm: e.name, Op: "reconfigure"}}
	}
	if e.endpoint == nil {
		var err error
		if e.endpoint, err = regroup.Open(regroup.Options{Master: master, At: atRegroup}); err != nil {
			return nil, &InternalError{Where: Where{Comm: e.name, Op: "reconfigure"}, Err: err}
		}
	}
	return e.endpoint, nil
}

// handOverEndpoint hands the endpoint on to the communicator of the new world.
func (e *finalizer) handOverEndpoint(to *finalizer) {
	e.mu.Lock()
	defer e.mu.Unlock()
	to.endpoint, e.endpoint = e.endpoint, nil
}

// dropEndpoint closes the endpoint when this process has no descriptors for it: members that connect are refused at
// once instead of waiting. The next call opens another one.
func (e *finalizer) dropEndpoint() {
	e.mu.Lock()
	endpoint := e.endpoint
	e.endpoint = nil
	e.mu.Unlock()
	if endpoint != nil {
		endpoint.Leave()
	}
}

func (e *finalizer) closeEndpoint() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.endpoint == nil {
		return nil
	}
	return e.endpoint.Close()
}

// A ReconfigureError says why an attempt to make a new world has failed, the same on every member that could learn it.
// Err is its kind: *[PeerLostError], *[TimeoutError], *[MismatchError] or *[CanceledError]. If a member could not join
// it's an *[InternalError]; if that member has no descriptors or no memory left, the others get an *[AbortedError].
// Ranks in it are those of the old communicator. The communicator is unchanged, and Reconfigure can be tried again.
type ReconfigureError struct {
	Where
	UUID    string
	Members []int // those at fault, by their place in the list of handles
	Detail  string
	Err     error
	list    []regroup.Member
}

func (e *ReconfigureError) Error() string { return e.Where.String() + ": " + e.Detail }
func (e *ReconfigureError) Unwrap() error { return e.Err }

// Reconfigure makes a new communicator of the processes whose handles are listed, in that order: handle i becomes rank
// i. Each of these processes, and no other, calls it with the same list and the same uuid, which must be fresh.
// Survivors call it on their broken communicator, newcomers on one that New has made [WithoutWorld]. They need nothing
// else in common: no store, and no old rank 0.
//
// On success c is finalized, with its links, windows and operations under way (not tensors of Empty), and the new
// communicator replaces it. Communicators that were split off c remain, to be finalized by themselves. Backend,
// device, timeout and hints are c's; hooks are not taken over. Of the members that survive the call either all succeed
// or none does. After a failure, a *[ReconfigureError], c is unchanged, and the remaining members may try again with a
// fresh uuid. (A member that ran out of descriptors gets another handle for that.) The call ends with ctx, or after
// c's timeout, plus a few seconds at most in which members agree about its end.
//
// A member that dies after all were ready is in the new world, which finds it lost.
func (c *Comm) Reconfigure(ctx context.Context, uuid string, handles []string, opts ...ReconfigureOption) (*Comm,
	error) {
	if ctx == nil {
		ctx = context.Background()
	}
	if err := c.usable(ctx, reconfigureOp); err != nil {
		return nil, err
	}
	var o reconfigureOptions
	for i, f := range opts {
		if f == nil {
			return nil, c.noOption(reconfigureOp, i+1)
		}
		f(&o)
	}
	members, err := regroup.ParseAll(handles)
	if err != nil {
		return nil, c.invalid(reconfigureOp, "%v", err)
	}
	if len(members) == 0 {
		return nil, c.invalid(reconfigureOp, "no handles")
	}
	if o.anyOrder {
		regroup.Sort(members)
	}
	if _, has := ctx.Deadline(); !has {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(c.timeout.Load()))
		defer cancel()
	}
	endpoint, err := c.openEndpoint()
	if err != nil {
		return nil, err
	}
	endpoint.Refresh()
	return c.reconfigure(ctx, uuid, members, o.hints)
}

const reconfigureOp = "reconfigure"

// endTime bounds how long the end of the old communicator may take, whose peers may be dead.
const endTime = 10 * time.Second

func (c *Comm) reconfigure(ctx context.Context, uuid string, members []regroup.Member,
	hints map[string]string) (n *Comm, err error) {
	endpoint, err := c.openEndpoint()
	if err != nil {
		return nil, err
	}
	defer func() {
		if fabric.Exhausted(err) {
			c.finalizer.dropEndpoint()
		}
	}()
	next := c.opened
	next.jobRanks = nil // it's a world of its own
	next.newcomer, next.name, next.world, next.size, next.rank = false, nameOf(members), uuid, len(members), -1
	next.timeout, next.device = time.Duration(c.timeout.Load()), c.Device()
	if hints != nil {
		next.hints = hints
	}
	if lib := c.placement.Load().library(); c.Err() != nil || lib == nil || lib.idle() {
		next.old = c.b
	}
	for i, m := range members {
		if m.ID == endpoint.ID() {
			next.rank = i
		}
	}
	if err := checkName(next.name); err != nil {
		return nil, c.invalid(reconfigureOp, "%v", err)
	}
	if next.rank < 0 {
		return nil, c.invalid(reconfigureOp, "this rank's handle is not among the %d that were given", len(members))
	}
	cfg, err := config.Load(nil)
	if err != nil {
		return nil, c.invalid(reconfigureOp, "%v", err)
	}
	var b backend.Backend
	var dev *streams
	err = endpoint.Agree(ctx, uuid, members, func(ctx context.Context, st store.Store) (err error) {
		b, dev, err = next.open(ctx, st, next.rendezvous(st))
		return err
	})
	if err != nil {
		if b != nil {
			discard(b, dev, err)
		}
		return nil, c.reconfigureError(members, err)
	}
	n = next.join(cfg, c.abortOnError, b, dev)
	c.finalizer.handOverEndpoint(n.finalizer)
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTime)
	defer cancel()
	if err := c.Finalize(end); err != nil && !errors.Is(err, ErrFinalized) {
		// The failure of the old communicator is known already, and there's no remedy for errors of
		// its end.
		c.log.Debug("chorus: the end of a communicator that was reconfigured", "comm", c.name, "error", err)
	}
	return n, nil
}

// nameOf returns the name of a new world: that which the first of its members had who was in one.
func nameOf(members []regroup.Member) string {
	for _, m := range members {
		if m.Place.Rank >= 0 {
			return m.Place.Name
		}
	}
	return members[0].Place.Name
}

// discard ends this rank's part in a world that has not come about.
func discard(b backend.Backend, dev *streams, why error) {
	b.Abort(why)
	ctx, cancel := context.WithTimeout(context.Background(), endTime)
	defer cancel()
	b.Finalize(ctx)
	if dev != nil {
		dev.close()
	}
}

// hadRank reports whether a member was a rank of this communicator.
func (c *Comm) hadRank(m regroup.Member) bool {
	return m.Place.World == c.opened.world && m.Place.Size == c.size && m.Place.Rank >= 0
}

// reconfigureError gives the error of an attempt its kind, with the ranks that members had in this communicator.
func (c *Comm) reconfigureError(members []regroup.Member, err error) error {
	at := c.at(reconfigureOp)
	e, ok := errors.AsType[*regroup.Error](err)
	if !ok {
		return c.invalid(reconfigureOp, "%v", err)
	}
	var ranks []int
	for _, i := range e.Members {
		if c.hadRank(members[i]) {
			ranks = append(ranks, members[i].Place.Rank)
		}
	}
	first := -1
	if len(ranks) > 0 {
		first = ranks[0]
	}
	out := &ReconfigureError{Where: at, UUID: e.UUID, Members: e.Members, Detail: e.Error(), list: members}
	switch e.Kind {
	case regroup.Lost:
		out.Err = &PeerLostError{Where: at, Peer: first, Cause: e.Text}
	case regroup.Missing: // a member whose own time is over has nobody to name
		ranks = slices.DeleteFunc(ranks, func(r int) bool { return r == c.rank })
		out.Err = &TimeoutError{Where: at, Attendance: backend.Attendance{Missing: ranks}}
	case regroup.Mismatch:
		out.Err = &MismatchError{Where: at, RankA: c.rank, RankB: first, OpA: "reconfigure",
			OpB: "reconfigure with another list"}
	case regroup.Canceled:
		out.Err = &CanceledError{Where: at, Err: errors.New(e.Text)}
	case regroup.Unable:
		if out.Err = error(&InternalError{Where: at, Err: err}); !fabric.Exhausted(err) {
			out.Err = &AbortedError{Where: at, By: first, Reason: e.Text}
		}
	default:
		out.Err = &InternalError{Where: at, Err: err}
	}
	return out
}
