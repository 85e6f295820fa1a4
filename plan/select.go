package plan

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// ErrNoAlgorithm is what errors of Select match when no algorithm serves a
// request, or not the one that the hint asks for.
var ErrNoAlgorithm = errors.New("no algorithm")

// Select chooses the algorithm for a request: the one that hint names, or else
// the cheapest that supports it by m. It does not look at q.Rank or at the
// counts of an uneven all-to-all, so that every rank chooses the same.
//
// A hint is a name ("ring"), or a list of collectives with names
// ("allreduce=ring,broadcast=binomial") that leaves other collectives alone. A
// name that ends in a question mark ("two_level?") is a wish: where that algorithm cannot
// serve, the cheapest one does.
// allow, if not nil, says which algorithms come into question at all.
func Select(q Request, m Machine, hint string, allow func(Algorithm) bool) (Algorithm, error) {
	if err := q.Validate(); err != nil {
		return Algorithm{}, err
	}
	name, must, err := Hinted(hint, q.Collective)
	if err != nil {
		return Algorithm{}, err
	}
	if name != "" {
		a, err := named(q, name, allow)
		if must || err == nil || !known(name) {
			return a, err
		}
	}
	best, lowest := Algorithm{}, math.Inf(1)
	var refusals []error
	for _, a := range Algorithms(q.Collective) {
		if allow != nil && !allow(a) {
			continue
		}
		if err := a.Check(q); err != nil {
			refusals = append(refusals, err)
			continue
		}
		cost := Cost(a, q, m)
		if best.Generate == nil || cost < lowest {
			best, lowest = a, cost
		}
	}
	if best.Generate == nil {
		return best, errors.Join(append([]error{fmt.Errorf("plan: %s: %w serves this request", q.Collective, ErrNoAlgorithm)},
			refusals...)...)
	}
	return best, nil
}

// Cost returns the estimated seconds of an algorithm for a request. It's the same on every rank,
// whether or not that rank works in place. It's the algorithm's own formula, or else the price of
// the plans of rank 0, the root and its neighbour.
func Cost(a Algorithm, q Request, m Machine) float64 {
	cost := 0.0
	q.SendCounts, q.RecvCounts, q.InPlace = nil, nil, false // the ranks may differ in these
	if a.Cost != nil {
		q.Rank = 0
		cost = a.Cost(q, m)
	} else {
		ranks := []int{0}
		if q.Collective.Rooted() {
			ranks = append(ranks, q.Root, (q.Root+1)%q.World)
		}
		for _, q.Rank = range ranks {
			p, err := a.Generate(q)
			if err != nil {
				return math.Inf(1)
			}
			cost = max(cost, Price(p, m))
		}
	}
	if math.IsNaN(cost) {
		return math.Inf(1)
	}
	return cost
}

func named(q Request, name string, allow func(Algorithm) bool) (Algorithm, error) {
	a, ok := Lookup(q.Collective, name)
	if !ok {
		var known []string
		for _, a := range Algorithms(q.Collective) {
			known = append(known, a.Name)
		}
		return a, fmt.Errorf("plan: %s: %w is called %q; there are %s", q.Collective, ErrNoAlgorithm, name,
			strings.Join(known, ", "))
	}
	if allow != nil && !allow(a) {
		return a, fmt.Errorf("plan: %s: %w %q may be used here (it needs %s)", q.Collective, ErrNoAlgorithm, name, a.needs())
	}
	return a, a.Check(q)
}

// known reports whether any collective has an algorithm of that name.
func known(name string) bool {
	for _, c := range Collectives() {
		if _, ok := Lookup(c, name); ok {
			return true
		}
	}
	return false
}

// needs says in words what the algorithm needs of memory and placement.
func (a Algorithm) needs() string {
	switch {
	case a.Mapped:
		return "memory that all ranks of the host can map"
	case a.OneHost:
		return "all ranks on one host, with shared scratch"
	case a.OneSided:
		return "shared scratch on each host"
	}
	return "nothing but messages"
}

// Hinted returns the name that a hint has for a collective, "" if it has none, and whether no other algorithm will do.
func Hinted(hint string, c Collective) (name string, must bool, err error) {
	hint = strings.TrimSpace(hint)
	name = hint
	if strings.ContainsAny(hint, "=,") {
		name = ""
		for part := range strings.SplitSeq(hint, ",") {
			of, is, ok := strings.Cut(part, "=")
			is = strings.TrimSpace(is)
			if !ok || is == "" {
				return "", false, fmt.Errorf("plan: hint %q: %q is not collective=algorithm", hint, part)
			}
			collective, err := ParseCollective(of)
			if err != nil {
				return "", false, fmt.Errorf("plan: hint %q: %w", hint, err)
			}
			if collective == c {
				name = is
			}
		}
	}
	name, wish := strings.CutSuffix(name, "?")
	if wish && name == "" {
		return "", false, fmt.Errorf("plan: hint %q wishes for an algorithm without a name", hint)
	}
	return name, name != "" && !wish, nil
}

// CheckHint reports a hint that Select could never follow: one that names no algorithm of its collective, or of any.
// Wishes may.
func CheckHint(hint string) error {
	all := !strings.ContainsAny(hint, "=,")
	known := map[string]bool{}
	for _, c := range Collectives() {
		name, must, err := Hinted(hint, c)
		if err != nil {
			return err
		}
		if _, ok := Lookup(c, name); ok || !must {
			if all {
				return nil
			}
			continue
		}
		if !all {
			return fmt.Errorf("%v has no algorithm %q, only %s", c, name, strings.Join(names(known, c), ", "))
		}
		names(known, c)
	}
	if all {
		return fmt.Errorf("want one of %s", strings.Join(slices.Sorted(maps.Keys(known)), ", "))
	}
	return nil
}

// names returns the algorithms of a collective, and adds them to those that are known.
func names(known map[string]bool, c Collective) (list []string) {
	for _, a := range Algorithms(c) {
		list = append(list, a.Name)
		known[a.Name] = true
	}
	return list
}

// ParseCollective reads a collective's name, with or without its underscores.
func ParseCollective(s string) (Collective, error) {
	plain := func(s string) string { return strings.ToLower(strings.ReplaceAll(strings.TrimSpace(s), "_", "")) }
	for _, c := range Collectives() {
		if plain(s) == plain(c.String()) {
			return c, nil
		}
	}
	return 0, fmt.Errorf("unknown collective %q", strings.TrimSpace(s))
}
