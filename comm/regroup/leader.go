package regroup

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"sync"

	"github.com/chorus-comms/chorus/internal/sys"
	"github.com/chorus-comms/chorus/store"
)

// lead calls the others, waits for those that aren't lost, and leads an attempt with the ranks that have
// come.
func (r *Survivors) lead(ctx context.Context) error {
	uuid := rand.Text()
	r.sendProposal(proposal{UUID: uuid, Handle: r.Me.String()})
	handles, newcomers, release, why := r.gatherAll(ctx, uuid)
	defer release()
	// Without handles, the ranks that have come begin again.
	list, err := json.Marshal(roster{UUID: uuid, Handles: handles})
	if err != nil {
		return err
	}
	local := store.NewPrefix(regroupKeys+uuid, r.Endpoint.Local())
	if err := local.Set(context.WithoutCancel(ctx), "list", list); err != nil {
		return err
	}
	if why != nil {
		return why
	}
	for _, st := range newcomers {
		if err := store.QueuePush(ctx, st, invitations, list); sys.OutOfDescriptors(err) {
			return err
		} else if err != nil && ctx.Err() != nil {
			return ctx.Err() // else it's lost, as the attempt will find
		}
	}
	return r.attempt(ctx, uuid, handles)
}

// gatherAll waits for the others, and lays out the list.
func (r *Survivors) gatherAll(ctx context.Context, uuid string) (handles []string, newcomers []store.Store,
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
func (r *Survivors) gather(ctx context.Context, uuid string) (map[int]arrival, error) {
	st := store.NewPrefix(regroupKeys+uuid, r.Endpoint.Local())
	type came struct {
		rank  int
		value []byte
	}
	waiting, stop := context.WithTimeout(ctx, r.Patience)
	var all sync.WaitGroup
	defer all.Wait()
	defer stop()
	arrivals := make(chan came, r.Size)
	missing := map[int]bool{}
	for rank := range r.Size {
		if _, gone := r.lost[rank]; rank == r.Rank || gone {
			continue
		}
		missing[rank] = true
		all.Go(func() {
			if v, err := st.Get(waiting, strconv.Itoa(rank)); err == nil {
				arrivals <- came{rank, v}
			}
		})
	}
	here := map[int]arrival{r.Rank: {Handle: r.Me.String(), With: r.With}}
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
		case err := <-r.Endpoint.Starved():
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
func (r *Survivors) publishRoster(ctx context.Context, here map[int]arrival) (handles []string,
	newcomers []store.Store, release func(), err error) {
	var open []func()
	release = func() {
		for _, f := range open {
			f()
		}
	}
	places := make([]string, r.Size)
	var fresh []string
	seen := map[string]bool{}
	for _, rank := range slices.Sorted(maps.Keys(here)) {
		a := here[rank]
		if m, err := Parse(a.Handle); err != nil || m.Place.Rank != rank || !r.HadRank(m) {
			r.lost[rank] = "its handle can't be read"
		}
		if _, gone := r.lost[rank]; !gone {
			places[rank] = a.Handle
		}
		for _, h := range a.With {
			m, err := Parse(h)
			if err != nil || r.refused[m.ID] || seen[m.ID] {
				continue
			}
			seen[m.ID] = true
			st, done, err := r.Endpoint.Reach(ctx, m)
			if ctx.Err() != nil {
				return nil, nil, release, ctx.Err()
			}
			if sys.OutOfDescriptors(err) {
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
