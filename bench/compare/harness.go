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

	"github.com/chorus-comms/chorus/bench"
)

const (
	// A burst whose placement changed, or whose cores were busy, is taken again this often.
	retries = 2
	// After the first round a series that's slower than the fastest by more than this is left out at this size.
	hopeless = 4.0
	// From here on buffers are given back after each burst: those of all libraries together would not fit.
	hugeBytes = 128 << 20
)

// harness runs measures.
type harness struct {
	home    *home
	scratch string // sockets and stores
	found   []found
	rounds  int
	budget  time.Duration
	min     int
	max     int
	log     io.Writer
	guard   *guard

	groups   map[string]*group
	failures map[string]string // of settings that started or measured not
	each     map[string]float64
	bursts   []burst
	allocs   map[string]float64
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
	for _, op := range m.ops {
		if m.name == "allocs" {
			if err := h.countAllocs(op, lines[0].group); err != nil {
				return err
			}
			continue
		}
		for _, size := range between(m.sizes, h.min, h.max) {
			if err := h.size(ctx, m, op, size, lines); err != nil {
				return err
			}
		}
	}
	for name, g := range h.groups {
		if _, err := g.ask("drop"); err != nil {
			h.fail(name, err)
		}
	}
	return nil
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

// startPeers starts those that don't run yet, side by side: starting takes seconds. One that failed is not started again.
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
		commands = append(commands, []string{self, "worker", socket, store, strconv.Itoa(r), strconv.Itoa(m.ranks), m.fabric, strconv.FormatBool(m.bind)})
	}
	return startGroup(ctx, name, socket, m.ranks, false, h.guard, nil, commands)
}

func (h *harness) startPeer(ctx context.Context, s *setting, ranks int) (*group, error) {
	p, socket := s.peer(), h.socket(s.name)
	env := slices.Clone(p.env(h.home))
	for _, v := range s.env {
		env = append(env, strings.ReplaceAll(v, "{HOME}", h.home.dir))
	}
	return startGroup(ctx, s.name, socket, ranks, true, h.guard, env, p.launch(h.home, ranks, socket, s.args))
}

func (h *harness) socket(name string) string { return filepath.Join(h.scratch, name+".sock") }

// size lets all series take turns at one size.
func (h *harness) size(ctx context.Context, m *measure, op string, size int, lines []series) error {
	var active []entrant
	for _, s := range lines {
		for _, inPlace := range forms(op) {
			active = append(active, entrant{s, inPlace})
		}
	}
	start, from := time.Now(), len(h.bursts)
	for round := range h.roundsOf(size) {
		// Each round begins with another series, so that none always follows the same one.
		for i := range active {
			e := &active[(i+round)%len(active)]
			if e.group == nil {
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
				for j := range active {
					if active[j].name == e.name {
						active[j].group = nil
					}
				}
				for j := range lines {
					if lines[j].name == e.name {
						lines[j].group = nil
					}
				}
			}
		}
		if round == 0 {
			active = prune(active, h.bursts[from:])
		}
	}
	fmt.Fprintf(h.log, "%s %s %s: %d bursts in %.1f s\n", m.name, op, sizeName(size), len(h.bursts)-from, time.Since(start).Seconds())
	return nil
}

// prune leaves out what is hopelessly slow among the bursts of the same placement; never ours.
func prune(active []entrant, bursts []burst) []entrant {
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
		return slices.ContainsFunc(bursts, func(b burst) bool {
			return isPeers(e.name) && b.Series == e.name && b.InPlace == e.inPlace && b.counts() && b.US > hopeless*fastest[b.Where]
		})
	})
}

// roundsOf takes fewer rounds of large sizes, which take long and vary little.
func (h *harness) roundsOf(size int) int {
	switch {
	case size >= hugeBytes:
		return max(2, h.rounds/3)
	case size >= 16*mib:
		return max(2, h.rounds/2)
	}
	return h.rounds
}

// turn runs one burst between two probes.
func (h *harness) turn(ctx context.Context, m *measure, op string, size, round int, e *entrant) error {
	key := fmt.Sprint(m.name, op, size, e.name, e.inPlace)
	if h.each[key] == 0 { // find out how long it takes
		a, err := h.ask(e.group, schedule{warmup: 2, blocks: 3, perBlock: 1}.command(op, size, e.inPlace, m.refill, true, e.suffix))
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
		b := burst{Measure: m.name, Series: e.name, Op: op, Bytes: size, InPlace: e.inPlace, Round: round, Rounds: s.blocks * s.perBlock}
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

func (h *harness) countAllocs(op string, g *group) error {
	a, err := h.ask(g, "allocs "+op)
	if err != nil {
		return err
	}
	h.allocs[op] = a.Allocs
	return nil
}

// end ends all groups.
func (h *harness) end() {
	for name, g := range h.groups {
		g.end()
		delete(h.groups, name)
	}
}
