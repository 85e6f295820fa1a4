package hybrid

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/fabric/transport"
)

// A route is a fabric that may lead to other hosts.
type route struct {
	name    string
	listen  transport.Listen
	options fabric.Options
	// maybe: whether this rank can use it only shows when it's opened. If some rank can't, all take the next one.
	maybe bool
}

// far is what option far permits.
type far struct {
	usable []route           // by this rank, as far as it knows; the last one can't be refused
	lacks  map[string]string // why other fabrics that would be better aren't, by name
	known  []fabric.Options
}

// lastResort is the fabric that every host has.
const lastResort = "tcp"

// routes looks for the fabrics that the value of option far permits. For "auto" these are the preferred ones that seem
// to be there, and TCP.
func routes(value string, c fabric.Config) (f far, err error) {
	name := value
	if value == "auto" {
		name, f.lacks = lastResort, map[string]string{}
		for _, p := range transport.Preferences() {
			_, options, err := transport.Part(p.Name)
			if err != nil {
				return f, err
			}
			f.known = append(f.known, options)
			if err := p.Look(c); err != nil {
				f.lacks[p.Name] = err.Error()
			} else {
				f.usable = append(f.usable, route{p.Name, p.Listen, options, true})
			}
		}
	}
	listen, options, err := transport.Part(name)
	if err != nil {
		return f, err
	}
	f.usable = append(f.usable, route{name, listen, options, false})
	f.known = append(f.known, options)
	return f, options.Set(name, options.Of(c))
}

func (f *far) names() (all []string) {
	for _, r := range f.usable {
		all = append(all, r.name)
	}
	return all
}

// joinFar joins the ranks of the other hosts, if there are any, by the best fabric that all ranks can use.
func (e *endpoint) joinFar(ctx context.Context) error {
	f := e.f
	if f.near != nil && len(f.locals) == e.c.Size {
		return nil
	}
	var passed []string // why better ones aren't used
	for _, name := range e.candidates() {
		i := slices.IndexFunc(e.far, func(r route) bool { return r.name == name })
		if why := e.lacking(name); why != "" || i < 0 {
			passed = append(passed, why)
			continue
		}
		r := e.far[i]
		c := e.c
		c.Options, c.Defaults = r.options.Of(c), nil
		joined, err := transport.Open(ctx, name, c, r.listen, f.Match)
		if none, ok := errors.AsType[*transport.ListenError](err); ok && r.maybe && len(none.Ranks) > 0 {
			passed = append(passed, fmt.Sprintf("%v%s", none.Ranks[0], others(len(none.Ranks)-1)))
			continue
		} else if err != nil {
			return err
		}
		f.names[1], f.far = name, transport.Extend(joined)
		if len(passed) > 0 && f.rank == 0 {
			slog.Default().Warn(fmt.Sprintf("chorus: fabric %s leads to other hosts, since not all ranks can use a faster one"+
				": %s", name, strings.Join(passed, "; ")))
		}
		return nil
	}
	return fmt.Errorf("hybrid: no fabric leads to other hosts that all ranks can use: %s", strings.Join(passed, "; "))
}

// candidates are the fabrics that some rank can use, the best first. They're the same on all ranks.
func (e *endpoint) candidates() (all []string) {
	for _, k := range e.cards {
		all = append(all, k.Far...)
	}
	slices.Sort(all)
	all = slices.Compact(all)
	if i := slices.Index(all, lastResort); i >= 0 {
		all = append(slices.Delete(all, i, i+1), lastResort)
	}
	return all
}

// lacking names the first rank that can't use a fabric, and says why; "" if all can.
func (e *endpoint) lacking(name string) (why string) {
	without := 0
	for r, k := range e.cards {
		if slices.Contains(k.Far, name) {
			continue
		}
		if without++; without == 1 {
			reason := cmp.Or(k.Lacks[name], fmt.Sprintf("it has %s", strings.Join(k.Far, ", ")))
			why = fmt.Sprintf("rank %d can't use %s: %s", r, name, reason)
		}
	}
	if why != "" {
		why += others(without - 1)
	}
	return why
}

func others(n int) string {
	switch n {
	case 0:
		return ""
	case 1:
		return " (and 1 other rank)"
	}
	return fmt.Sprintf(" (and %d other ranks)", n)
}
