package mybackend

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/chorus-comms/chorus/comm/backend"
)

// hub is the centre of the star. One lock guards it all.
type hub struct {
	mu     sync.Mutex
	links  []*link // by rank of the job
	groups map[uint32]*circle
	next   uint32
	ended  chan struct{} // closed when no rank is connected any more
}

// circle is a communicator as the hub sees it.
type circle struct {
	id      uint32
	members []int // rank of the job of each rank
	parts   []*message
	arrived int
	failed  bool
}

// serve lets all ranks in and then carries out what they ask for. It returns
// when the last has left, or with the ranks missing when ctx ended.
func (h *hub) serve(ctx context.Context, ln net.Listener, size int) {
	defer close(h.ended)
	defer ln.Close()
	if err := h.admit(ctx, ln, size); err != nil {
		for _, l := range h.links {
			if l != nil {
				l.send(&message{Kind: broken, Failure: &failure{Text: err.Error()}})
				l.conn.Close()
			}
		}
		return
	}
	ln.Close()
	everybody := make([]int, size)
	for r := range everybody {
		everybody[r] = r
	}
	h.groups, h.next = map[uint32]*circle{1: newCircle(1, everybody)}, 2
	for _, l := range h.links {
		l.send(&message{Kind: welcome})
	}
	var wg sync.WaitGroup
	for r := range h.links {
		wg.Go(func() { h.attend(r) })
	}
	wg.Wait()
}

func newCircle(id uint32, members []int) *circle {
	return &circle{id: id, members: members, parts: make([]*message, len(members))}
}

// admit accepts a connection from every rank.
func (h *hub) admit(ctx context.Context, ln net.Listener, size int) error {
	stop := context.AfterFunc(ctx, func() { ln.Close() })
	defer stop()
	h.links = make([]*link, size)
	for here := 0; here < size; {
		c, err := ln.Accept()
		if err != nil {
			var missing []int
			for r, l := range h.links {
				if l == nil {
					missing = append(missing, r)
				}
			}
			return fmt.Errorf("ranks %s did not come: %w", backend.Ranks(missing), context.Cause(ctx))
		}
		l := newLink(c)
		c.SetReadDeadline(time.Now().Add(patience))
		m, err := l.receive()
		if err != nil || m.Kind != hello || m.From < 0 || m.From >= size || h.links[m.From] != nil {
			c.Close()
			continue
		}
		c.SetReadDeadline(time.Time{})
		h.links[m.From] = l
		here++
	}
	return nil
}

// attend reads what a rank says until it leaves or is lost.
func (h *hub) attend(rank int) {
	l := h.links[rank]
	defer l.conn.Close()
	for {
		m, err := l.receive()
		if err == nil && m.Kind == goodbye {
			return
		}
		if err == nil && h.take(rank, m) {
			continue
		}
		why := "it said what makes no sense"
		if err != nil {
			why = fmt.Sprintf("its connection to the hub broke: %v", err)
		}
		h.mu.Lock()
		for _, g := range h.groups {
			if r := slices.Index(g.members, rank); r >= 0 {
				h.fail(g, &failure{Is: isLost, Rank: r, Text: why})
			}
		}
		h.mu.Unlock()
		return
	}
}

// take acts on a message of a rank. It reports false if the message makes no sense.
func (h *hub) take(rank int, m *message) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	g := h.groups[m.Comm]
	if g == nil {
		return false
	}
	m.From = slices.Index(g.members, rank)
	switch {
	case m.From < 0:
		return false
	case g.failed: // everybody has been told
		return true
	}
	switch m.Kind {
	case letter:
		if m.To < 0 || m.To >= len(g.members) {
			return false
		}
		h.links[g.members[m.To]].send(m)
	case part:
		if g.parts[m.From] != nil {
			return false
		}
		g.parts[m.From] = m
		g.arrived++
		h.advance(g, m)
	case overdue:
		if g.parts[m.From] != nil && g.parts[m.From].Seq == m.Seq { // else the result is on its way
			f := &failure{Is: isTimeout, Op: m.Desc, Seq: m.Seq, Elapsed: m.Elapsed}
			for r, p := range g.parts {
				if p == nil {
					f.Missing = append(f.Missing, r)
				} else {
					f.Arrived = append(f.Arrived, r)
				}
			}
			h.fail(g, f)
		}
	case broken:
		if m.Failure == nil {
			return false
		}
		h.fail(g, m.Failure)
	default:
		return false
	}
	return true
}

// advance compares a new part with the others and, if it was the last, answers all.
func (h *hub) advance(g *circle, m *message) {
	for r, p := range g.parts {
		if p != nil && p.Desc != m.Desc {
			f := &failure{Is: isMismatch, Op: m.name(), Seq: m.Seq, RankA: r, OpA: p.Desc, RankB: m.From, OpB: m.Desc}
			if f.RankB < f.RankA {
				f.RankA, f.OpA, f.RankB, f.OpB = f.RankB, f.OpB, f.RankA, f.OpA
			}
			h.fail(g, f)
			return
		}
	}
	if g.arrived < len(g.members) {
		return
	}
	parts := g.parts
	g.parts, g.arrived = make([]*message, len(g.members)), 0
	if m.Spec.Op == 0 {
		h.split(g, parts)
		return
	}
	data, f := combine(parts)
	if f != nil {
		f.Op, f.Seq = m.name(), m.Seq
		h.fail(g, f)
		return
	}
	for r, d := range data {
		h.links[g.members[r]].send(&message{Kind: result, Comm: g.id, Seq: m.Seq, Data: d})
	}
}

// split makes a communicator of each list, or tells everybody of one that its ranks don't agree on.
func (h *hub) split(g *circle, parts []*message) {
	answer := func(r int, m *message) {
		m.Kind, m.Comm, m.Seq = result, g.id, parts[r].Seq
		h.links[g.members[r]].send(m)
	}
	for r, p := range parts {
		for _, s := range p.Sizes {
			if s < 0 || s >= len(parts) || !slices.Equal(p.Sizes, parts[s].Sizes) {
				f := &failure{Is: isMismatch, Op: "split", Seq: p.Seq, RankA: r, RankB: s, OpA: fmt.Sprintf("split%v", p.Sizes)}
				if s >= 0 && s < len(parts) {
					f.OpB = fmt.Sprintf("split%v", parts[s].Sizes)
				}
				for r := range parts {
					answer(r, &message{Failure: f})
				}
				return
			}
		}
	}
	made := map[int]uint32{} // by the first rank of the list
	for r, p := range parts {
		m := &message{}
		if len(p.Sizes) > 0 {
			id, ok := made[p.Sizes[0]]
			if !ok {
				id = h.next
				h.next++
				made[p.Sizes[0]] = id
				members := make([]int, len(p.Sizes))
				for i, s := range p.Sizes {
					members[i] = g.members[s]
				}
				h.groups[id] = newCircle(id, members)
			}
			m.Tag, m.From, m.Sizes = int(id), slices.Index(p.Sizes, r), p.Sizes
		}
		answer(r, m)
	}
}

// fail breaks a communicator and tells all of its ranks why.
func (h *hub) fail(g *circle, f *failure) {
	if g.failed {
		return
	}
	g.failed = true
	for _, r := range g.members {
		h.links[r].send(&message{Kind: broken, Comm: g.id, Failure: f})
	}
}

// name returns the operation's name, such as "all_reduce".
func (m *message) name() string {
	if m.Spec.Op == 0 {
		return "split"
	}
	return m.Spec.Op.String()
}
