package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/chorus-comms/chorus/cmd/internal/bench"
)

const (
	// A burst whose placement changed, or whose cores were busy, is taken again this often.
	retries = 2
	// After the first round a series that's slower than the fastest by more than this is left out at this size, and after
	// the second one that was never closer than half of that.
	hopeless = 4.0
	// A size has at least so many rounds, as long as there's any time at all: a point needs two bursts of ours.
	leastRounds = 2
	// From here on buffers are given back after each burst: those of all libraries together would not fit.
	hugeBytes = 128 << 20
)

// harness runs measures.
type harness struct {
	home    *home
	scratch string // sockets and stores
	found   []found
	rounds  int // of each size, at most
	budget  time.Duration
	ration  ration
	min     int
	max     int
	log     io.Writer
	guard   *guard

	nextRound int // rounds are numbered throughout
	groups    map[string]*group
	failures  map[string]string // of settings that started or measured not
	each      map[string]float64
	bursts    []burst
	allocs    map[string]float64
}

// series is one line of a measure: a group and what its commands end with.
type series struct {
	name   string
	group  *group
	suffix string
}

// entrant is a series in one form.
type entrant struct {
	series
	inPlace bool
}

func (h *harness) run(ctx context.Context, m *measure) error {
	lines, err := h.start(ctx, m)
	if err != nil {
		return err
	}
	if m.name == "allocs" {
		return h.countAllocs(m.ops, lines[0].group)
	}
	for _, op := range m.ops {
		for _, size := range between(m.sizes, h.min, h.max) {
			until := h.ration.next(h.weight(m, op, size))
			if err := h.size(ctx, m, op, size, lines, until); err != nil {
				return err
			}
		}
	}
	h.drop()
	return nil
}

// drop gives all buffers back.
func (h *harness) drop() {
	for name, g := range h.groups {
		if _, err := g.ask("drop"); err != nil {
			h.fail(name, err)
		}
	}
}

// start has the groups of a measure running, and no others.
func (h *harness) start(ctx context.Context, m *measure) ([]series, error) {
	var lines []series
	wanted := map[string]bool{}
	name := fmt.Sprintf("chorus.%s.%d", m.fabric, m.ranks)
	wanted[name] = true
	mine := h.groups[name]
	if mine == nil {
		var err error
		if mine, err = h.startOurs(ctx, name, m); err != nil {
			return nil, err
		}
		h.groups[name] = mine
	}
	for _, o := range m.ours {
		lines = append(lines, series{o.name, mine, o.memory + " " + o.dtype})
	}
	for i := range settings {
		s := &settings[i]
		if m.takesPart(s) && h.has(s.peer().name) {
			wanted[s.name] = true
		}
	}
	for name, g := range h.groups {
		if !wanted[name] {
			g.end()
			delete(h.groups, name)
		}
	}
	h.startPeers(ctx, m, wanted)
	for i := range settings {
		if g := h.groups[settings[i].name]; g != nil && wanted[settings[i].name] {
			lines = append(lines, series{name: settings[i].name, group: g})
		}
	}
	return lines, ctx.Err()
}

// startPeers starts those that don't run yet, side by side: starting takes seconds. One that failed is not started
// again.
func (h *harness) startPeers(ctx context.Context, m *measure, wanted map[string]bool) {
	const together = 4
	var all sync.WaitGroup
	slots := make(chan struct{}, together)
	groups, errs := make([]*group, len(settings)), make([]error, len(settings))
	for i := range settings {
		s := &settings[i]
		if !wanted[s.name] || h.groups[s.name] != nil || h.failures[s.name] != "" {
			continue
		}
		all.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			groups[i], errs[i] = h.startPeer(ctx, s, m.ranks)
		})
	}
	all.Wait()
	for i := range settings {
		switch {
		case groups[i] != nil:
			h.groups[settings[i].name] = groups[i]
		case errs[i] != nil && ctx.Err() == nil:
			h.fail(settings[i].name, errs[i])
		}
	}
}

func (h *harness) has(peer string) bool {
	return slices.ContainsFunc(h.found, func(f found) bool { return f.Peer == peer && f.Skipped == "" })
}

// fail notes why a setting is out, and ends it.
func (h *harness) fail(name string, err error) {
	if h.failures[name] == "" {
		h.failures[name] = err.Error()
		fmt.Fprintf(h.log, "%s is out: %v\n", name, err)
	}
	if g := h.groups[name]; g != nil {
		g.kill()
		delete(h.groups, name)
	}
}

func (h *harness) startOurs(ctx context.Context, name string, m *measure) (*group, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	var commands [][]string
	socket, store := h.socket(name), filepath.Join(h.scratch, name+".store")
	os.Remove(store) // of a group of this name that has ended
	for r := range m.ranks {
		commands = append(commands, []string{self, "worker", socket, store, strconv.Itoa(r), strconv.Itoa(m.ranks), m.fabric,
			strconv.FormatBool(m.bind)})
	}
	return startGroup(ctx, name, socket, m.ranks, false, h.guard, nil, commands)
}

func (h *harness) startPeer(ctx context.Context, s *setting, ranks int) (*group, error) {
	p, socket := s.peer(), h.socket(s.name)
	env := slices.Clone(p.env(h.home))
	for _, v := range s.env {
		env = append(env, strings.ReplaceAll(v, "{HOME}", h.home.dir))
	}
	commands, err := p.launch(h.home, ranks, socket, s.args)
	if err != nil {
		return nil, err
	}
	g, err := startGroup(ctx, s.name, socket, ranks, true, h.guard, env, commands)
	if err == nil && !strings.HasPrefix(g.library, p.library) {
		g.kill()
		return nil, fmt.Errorf("%s did not start: its driver runs with %q, not %s", s.name, g.library, p.library)
	}
	return g, err
}

func (h *harness) socket(name string) string { return filepath.Join(h.scratch, name+".sock") }

// size lets all series take turns at one size until its time is over.
func (h *harness) size(ctx context.Context, m *measure, op string, size int, lines []series, until time.Time) error {
	start, from, rounds := time.Now(), len(h.bursts), 0
	active := h.narrow(m, op, size, entrants(op, lines))
	for round := range h.rounds {
		spent := time.Since(start)
		if round >= leastRounds && time.Now().Add(spent/time.Duration(round)).After(until) {
			break
		}
		if err := h.round(ctx, m, op, size, h.nextRound, active); err != nil {
			return err
		}
		h.nextRound++
		rounds++
		if round < 2 {
			active = prune(active, h.bursts[from:], hopeless/float64(1+round))
		}
	}
	fmt.Fprintf(h.log, "%s %s %s: %d rounds, %d bursts in %.1f s\n", m.name, op, sizeName(size), rounds,
		len(h.bursts)-from, time.Since(start).Seconds())
	return nil
}

// entrants are all series in all forms of the operation.
func entrants(op string, lines []series) []entrant {
	var all []entrant
	for _, s := range lines {
		if s.group == nil {
			continue
		}
		for _, inPlace := range forms(op) {
			all = append(all, entrant{s, inPlace})
		}
	}
	return all
}

// From here on a burst takes half a second and more.
const longBytes = 64 << 20

// narrow leaves out entrants at a size whose bursts take long, by the results of the next smaller size: those that were
// hopeless there, and the slower form of each series. Entrants that were not measured there stay.
func (h *harness) narrow(m *measure, op string, size int, all []entrant) []entrant {
	at := slices.Index(m.sizes, size) - 1
	if size < longBytes || at < 0 {
		return all
	}
	var before []burst
	fastest := map[string]map[bool]float64{}
	for _, b := range h.bursts {
		if b.Measure == m.name && b.Op == op && b.Bytes == m.sizes[at] && b.counts() {
			before = append(before, b)
			if fastest[b.Series] == nil {
				fastest[b.Series] = map[bool]float64{}
			}
			if us := fastest[b.Series][b.InPlace]; us == 0 || b.US < us {
				fastest[b.Series][b.InPlace] = b.US
			}
		}
	}
	return slices.DeleteFunc(prune(all, before, hopeless), func(e entrant) bool {
		mine, other := fastest[e.name][e.inPlace], fastest[e.name][!e.inPlace]
		return mine > 0 && other > 0 && (other < mine || other == mine && !e.inPlace)
	})
}

// round lets each entrant run a burst. One that fails, or has no such form, is an entrant no more.
func (h *harness) round(ctx context.Context, m *measure, op string, size, round int, active []entrant) error {
	// Each round begins with another series, so that none always follows the same one.
	for i := range active {
		e := &active[(i+round)%len(active)]
		if e.group == nil || h.failures[e.name] != "" {
			e.group = nil
			continue
		}
		err := h.turn(ctx, m, op, size, round, e)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, errUnsupported) && !isOurs(e.name):
			e.group = nil // it has no such form
		case err != nil && isOurs(e.name):
			return err
		case err != nil:
			h.fail(e.name, err)
			e.group = nil
		}
	}
	return nil
}

// prune leaves out whose every burst was slower than the fastest of the same placement by more than a factor; never
// ours.
func prune(active []entrant, bursts []burst, factor float64) []entrant {
	fastest := map[string]float64{}
	for i := range bursts {
		if b := &bursts[i]; b.counts() && isPeers(b.Series) && (fastest[b.Where] == 0 || b.US < fastest[b.Where]) {
			fastest[b.Where] = b.US
		}
	}
	return slices.DeleteFunc(active, func(e entrant) bool {
		if e.group == nil {
			return true
		}
		slow, close := false, false
		for _, b := range bursts {
			if b.Series == e.name && b.InPlace == e.inPlace && b.counts() {
				slow = slow || b.US > factor*fastest[b.Where]
				close = close || b.US <= factor*fastest[b.Where]
			}
		}
		return isPeers(e.name) && slow && !close
	})
}

// turn runs one burst between two probes.
func (h *harness) turn(ctx context.Context, m *measure, op string, size, round int, e *entrant) error {
	key := fmt.Sprint(m.name, op, size, e.name, e.inPlace)
	if h.each[key] == 0 { // find out how long it takes
		a, err := h.ask(e.group, schedule{warmup: 2, blocks: 3, perBlock: 1}.command(op, size, e.inPlace, m.refill, true,
			e.suffix))
		if err != nil {
			return err
		}
		h.each[key] = a.US[0] * 1e-6
	}
	for try := 0; ; try++ {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		s := plan(h.budget, h.each[key], m.refill)
		b := burst{Measure: m.name, Series: e.name, Op: op, Bytes: size, InPlace: e.inPlace, Round: round,
			Rounds: s.blocks * s.perBlock}
		before := bench.Probe()
		a, err := h.ask(e.group, s.command(op, size, e.inPlace, m.refill, true, e.suffix))
		if err != nil {
			return err
		}
		after := bench.Probe()
		if size >= hugeBytes && !isOurs(e.name) { // ours share one group
			if _, err := e.group.ask("drop"); err != nil {
				return err
			}
		}
		b.US, b.LimitUS, b.Algorithm, b.Wrong = a.US[0], a.LimitUS, a.Algorithm, a.Wrong
		b.Before, b.After = before.RoundTripNS, after.RoundTripNS
		if before.Where == after.Where && before.Where != bench.Crowded {
			b.Where = before.Where
		}
		h.each[key] = b.US * 1e-6
		if b.Wrong > 0 {
			fmt.Fprintf(h.log, "%s computed %d wrong elements: %s of %d bytes\n", b.Series, b.Wrong, op, size)
		}
		if b.Where != "" || try == retries {
			h.bursts = append(h.bursts, b)
			return nil
		}
	}
}

func (h *harness) ask(g *group, command string) (answer, error) {
	all, err := g.ask(command)
	if err != nil {
		return answer{}, err
	}
	return combine(all)
}

func (h *harness) countAllocs(ops []string, g *group) error {
	for _, op := range ops {
		a, err := h.ask(g, "allocs "+op)
		if err != nil {
			return err
		}
		h.allocs[op] = a.Allocs
	}
	return nil
}

// end ends all groups.
func (h *harness) end() {
	for name, g := range h.groups {
		g.end()
		delete(h.groups, name)
	}
}
