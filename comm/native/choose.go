package native

import (
	"github.com/chorus-comms/chorus/internal/wire"
	"github.com/chorus-comms/chorus/plan"
)

// lookup finds or makes the programs for a request.
func (g *group) lookup(q *plan.Request, t *tuning) (*compiled, error) {
	key := shape{kind: q.Collective, elem: q.ElemSize, count: q.Count, root: q.Root, inPlace: q.InPlace, tuned: t}
	if q.Counts != nil {
		key.counts = wire.HashInts(q.Counts) | 1
	} else if q.SendCounts != nil {
		key.counts = wire.HashInts(q.SendCounts)*31 ^ wire.HashInts(q.RecvCounts) | 1
	}
	if c := g.current; c != nil && c.shape == key && (key.counts == 0 || c.sameCounts(q)) {
		return c, nil
	}
	if c := g.programs.find(key); c != nil && (key.counts == 0 || c.sameCounts(q)) {
		return c, nil
	}
	c, err := g.build(q, key)
	if err != nil {
		return nil, err
	}
	if g.programs.add(key, c) {
		g.tunings.prune(g.programs.all)
	}
	return c, nil
}

// build selects the algorithms for a request and compiles their plans.
func (g *group) build(q *plan.Request, key shape) (*compiled, error) {
	req := *q
	req.Counts = append([]int(nil), q.Counts...)
	req.SendCounts = append([]int(nil), q.SendCounts...)
	req.RecvCounts = append([]int(nil), q.RecvCounts...)
	if q.Counts == nil {
		req.Counts = nil
	}
	if q.SendCounts == nil {
		req.SendCounts, req.RecvCounts = nil, nil
	}
	c := &compiled{shape: key, req: req}
	choose := func(mapped bool, hint string) (plan.Algorithm, error) {
		return plan.Select(req, g.machine, hint, func(a plan.Algorithm) bool { return a.Mapped == mapped })
	}
	name, must, err := plan.Hinted(key.tuned.algo, req.Collective)
	if err != nil {
		return nil, err
	}
	plain, err := choose(false, key.tuned.algo)
	if g.placer != nil && key.tuned.prefer.mapped != "off" && req.World > 1 {
		mapped, merr := choose(true, key.tuned.algo)
		switch {
		case merr != nil && err != nil && must:
			if a, _ := plan.Lookup(req.Collective, name); a.Mapped {
				return nil, merr // the other says only that it's for mapped memory
			}
			return nil, err
		case merr != nil:
		case err != nil && must:
			// The hint names an algorithm for mapped memory; other memory takes the default.
			plain, err = choose(false, "")
			fallthrough
		case err == nil && g.prefersMapped(mapped, plain, name, key.tuned.prefer.mapped, req):
			if c.mapped, merr = compileMapped(mapped, req); merr != nil {
				return nil, merr
			}
		}
	}
	if err == nil {
		base := uint32(0)
		if c.mapped != nil {
			base = 1 // phase 1 is the exchange of places
		}
		if c.plain, err = compilePlan(plain, req, 0, base); err == nil && key.tuned.algo == "" {
			c.apart, err = g.whenApart(plain, req, base)
		}
	}
	if err != nil {
		return nil, err
	}
	c.finish()
	return c, nil
}

// whenApart returns the algorithm that replaces another one while the cores are far apart, or nil. A split all-reduce
// of two ranks saves each of them half of the sums, but not a byte that crosses, and synchronizes twice for each chunk.
func (g *group) whenApart(a plan.Algorithm, req plan.Request, base uint32) (*program, error) {
	if a.Name != "staged_split" || req.World != 2 {
		return nil, nil
	}
	other, err := plan.Select(req, g.machine, "staged", func(a plan.Algorithm) bool { return !a.Mapped })
	if err != nil || other.Name != "staged" {
		return nil, nil
	}
	return compilePlan(other, req, 0, base)
}

// prefersMapped decides between the algorithms for memory that all can map, and for any: what a hint names wins, or
// else what costs less.
func (g *group) prefersMapped(mapped, plain plan.Algorithm, name, hint string, req plan.Request) bool {
	switch {
	case mapped.Name == name:
		return true
	case plain.Name == name:
		return false
	}
	return hint == "on" || plan.Cost(mapped, req, g.machine) < plan.Cost(plain, req, g.machine)
}

func compilePlan(a plan.Algorithm, req plan.Request, skip int, base uint32) (*program, error) {
	p, err := a.Plan(req)
	if err != nil {
		return nil, err
	}
	return compile(p, skip, base), nil
}

// compileMapped compiles a plan for mapped memory, which runs after the exchange of places: phase 1.
func compileMapped(a plan.Algorithm, req plan.Request) (*program, error) {
	if opensWithSync(a, req) {
		return compilePlan(a, req, 2, 0)
	}
	return compilePlan(a, req, 0, 1)
}
