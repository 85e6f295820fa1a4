package main

import (
	"context"
	"fmt"
	"time"

	"github.com/chorus-comms/chorus/cmd/internal/bench"
)

const (
	// A size is tried so often in a placement that it lacks: the cores may move in the midst of each.
	topUpTries = 6
	// If no placement that something lacks has come for so long, it's given up.
	topUpIdle = 45 * time.Second
)

// topUp spends the time that is left on the sizes which lack bursts in one of the placements: it looks where the cores
// are now, and measures what lacks just that. Cores move when they like, so it may also wait for them.
func (h *harness) topUp(ctx context.Context, asked []*measure) error {
	tried := map[cell]int{}
	progress, bursts := time.Now(), len(h.bursts)
	var last *measure // whose ranks run
	if len(asked) > 0 {
		last = asked[len(asked)-1]
	}
	for ctx.Err() == nil && time.Since(progress) < topUpIdle {
		p, where := poolBursts(h.bursts), bench.Probe().Where
		if !h.anyLacking(p, asked, tried) {
			break
		}
		m, c, ok := h.lacking(p, asked, last, where, tried)
		if !ok {
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
			continue
		}
		tried[c]++
		lines, err := h.start(ctx, m)
		if err != nil {
			return err
		}
		var known []burst
		for _, b := range h.bursts {
			if b.Measure == c.measure && b.Op == c.op && b.Bytes == c.bytes {
				known = append(known, b)
			}
		}
		active := prune(h.narrow(m, c.op, c.bytes, entrants(c.op, lines)), known, hopeless/2)
		if err := h.round(ctx, m, c.op, c.bytes, h.nextRound, active); err != nil {
			return err
		}
		h.nextRound++
		last, progress = m, time.Now()
	}
	fmt.Fprintf(h.log, "%d bursts more for placements that lacked some\n", len(h.bursts)-bursts)
	return ctx.Err()
}

// lacking returns a size that has too few bursts in a placement, of the measure whose ranks run if possible.
func (h *harness) lacking(p pool, asked []*measure, running *measure, where string, tried map[cell]int) (*measure, cell,
	bool) {
	order := asked
	if running != nil {
		order = append([]*measure{running}, asked...)
	}
	for _, m := range order {
		for _, op := range m.ops {
			for _, size := range between(m.sizes, h.min, h.max) {
				if c := (cell{m.name, where, op, size}); tried[c] < topUpTries && !p.complete(m, c) {
					return m, c, true
				}
			}
		}
	}
	return nil, cell{}, false
}

// anyLacking reports whether a placement in which anything was measured lacks something.
func (h *harness) anyLacking(p pool, asked []*measure, tried map[cell]int) bool {
	for _, where := range p.placements() {
		if _, _, ok := h.lacking(p, asked, nil, where, tried); ok {
			return true
		}
	}
	return false
}

// complete reports whether a size can be judged in a placement.
func (p pool) complete(m *measure, c cell) bool {
	for _, o := range m.ours {
		if p[c][o.name].bursts < fewestBursts {
			return false
		}
	}
	return m.alone || p.covered(c, isPeers)
}
