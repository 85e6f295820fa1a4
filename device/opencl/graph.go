package opencl

import (
	"fmt"
	"slices"

	"github.com/chorus-comms/chorus/device/driver"
	"github.com/chorus-comms/chorus/device/internal/base"
	"github.com/chorus-comms/chorus/device/internal/outcome"
)

func hex(h driver.StreamHandle) string { return fmt.Sprintf("%#x", uintptr(h)) }

// graph is what was captured.
type graph struct {
	base.Entry[driver.GraphHandle, *graph]
	nodes []node
	lanes []*dev // of the streams, the first of which is where it began
}

// hold counts one more that uses the kernels, and drop one less.
func (g *graph) hold() *graph {
	for i := range g.nodes {
		if l := g.nodes[i].launch; l != nil {
			l.k.m.Hold()
		}
	}
	return g
}

func (g *graph) drop() {
	for i := range g.nodes {
		if l := g.nodes[i].launch; l != nil {
			l.k.m.drop()
		}
	}
}

// exec is a graph that can run. Its lanes but the first have queues of their own, so that what was captured side by
// side runs so.
type exec struct {
	base.Entry[driver.ExecHandle, *exec]
	base.Life
	graph      *graph
	recordings map[int]*recording // by their first node
	queues     []*stream          // by lane; the first is nil: the stream of the launch, if it's of the same device
	last       *ticket            // the end of the run enqueued last
}

// Nodes is that of [base.Front].
func (g *graph) Nodes(string) ([]driver.Node, error) {
	list := make([]driver.Node, len(g.nodes))
	for i := range g.nodes {
		n := &g.nodes[i]
		list[i] = driver.Node{Kind: n.kind, Name: n.name, Deps: slices.Clone(n.deps)}
	}
	return list, nil
}

// Destroy is that of [base.Front].
func (g *graph) Destroy(string) error {
	g.drop()
	return nil
}

// Instantiate is that of [base.Front].
func (g *graph) Instantiate(string) (x *exec, err error) {
	x = &exec{graph: g.hold(), queues: make([]*stream, len(g.lanes))}
	for i, b := range g.lanes[1:] {
		if x.queues[1+i], err = b.queue("instantiate graph", 0); err != nil {
			x.end()
			return nil, err
		}
	}
	x.recordings = g.record()
	return x, nil
}

// end gives back what the exec has.
func (x *exec) end() {
	for _, s := range x.queues {
		if s != nil {
			s.Lock()
			_ = s.end("destroy instantiated graph")
			s.Unlock()
		}
	}
	x.forget()
	x.graph.drop()
}

// forget gives back the recordings.
func (x *exec) forget() {
	for _, r := range x.recordings {
		r.end()
	}
	x.recordings = nil
}

// Destroy is that of [base.Front].
func (x *exec) Destroy(string) (after func(), err error) {
	x.end()
	return nil, nil
}

// Update is that of [base.Front].
func (x *exec) Update(op string, g *graph) (after func(), err error) {
	refuse := func(format string, args ...any) (func(), error) {
		return nil, driver.Errorf(driver.ErrInvalidArgument, name, op, format, args...)
	}
	was := x.graph
	if len(was.nodes) != len(g.nodes) || !slices.Equal(was.lanes, g.lanes) {
		return refuse("there are %d nodes on %d streams, and were %d on %d", len(g.nodes), len(g.lanes), len(was.nodes),
			len(was.lanes))
	}
	for i := range g.nodes {
		a, b := &was.nodes[i], &g.nodes[i]
		if a.kind != b.kind || a.lane != b.lane || !slices.Equal(a.deps, b.deps) {
			return refuse("node %d is a %v on stream %d after %v, and was a %v on stream %d after %v", i, b.kind, b.lane, b.deps,
				a.kind, a.lane, a.deps)
		}
	}
	x.forget()
	x.graph = g.hold()
	x.recordings = g.record()
	was.drop()
	return nil, nil
}

// LaunchGraph is that of [base.Front]. Memory that nodes use must still be there, else the run fails before it
// begins. On a stream that is captured the nodes become a part of that capture, on the stream's lane.
func (s *stream) LaunchGraph(op string, x *exec) error {
	if captured, err := s.captureGraph(op, x.graph); captured || err != nil {
		return err
	}
	if s.broken() != nil {
		return s.b.Broken() // left out
	}
	for i := range x.graph.nodes {
		for _, u := range x.graph.nodes[i].uses {
			if err := u.still(s.b.d, s.b, op); err != nil {
				s.outcome = s.outcome.After(1)
				s.outcome.Ran(s.failure("graph", err))
				return nil
			}
		}
	}
	if err := s.follow(op, x.last, nil); err != nil {
		return err
	}
	return x.run(op, s)
}

// run enqueues all nodes. The stream and the exec are locked.
func (x *exec) run(op string, s *stream) error {
	lanes := slices.Clone(x.queues)
	if lanes[0] == nil {
		lanes[0] = s
		if b := x.graph.lanes[0]; b != s.b {
			own, err := b.queue(op, 0)
			if err != nil {
				return err
			}
			x.queues[0], lanes[0] = own, own
		}
	} else if x.graph.lanes[0] == s.b {
		lanes[0] = s
	}
	start, err := s.point(op)
	if err != nil {
		return err
	}
	for _, l := range lanes {
		if l == s {
			continue
		}
		l.Lock()
		defer l.Unlock()
		l.outcome = s.outcome
		if err := l.follow(op, start, nil); err != nil {
			return err
		}
	}
	type done struct {
		t *ticket
		f *outcome.Result
	}
	ends := make([]done, len(x.graph.nodes))
	for i := 0; i < len(x.graph.nodes); i++ {
		n := &x.graph.nodes[i]
		l := lanes[n.lane]
		for _, dep := range n.deps {
			if x.graph.nodes[dep].lane != n.lane {
				if err := l.follow(op, ends[dep].t, ends[dep].f); err != nil {
					return err
				}
			}
		}
		if _, err := l.traced(op); err != nil { // a recording doesn't fit a queue that keeps times
			return err
		}
		if r := x.recordings[i]; r != nil && r.fits(l) {
			if err := r.run(op, l); err != nil {
				return err
			}
			i = r.last
			n = &x.graph.nodes[i]
		} else if err := n.work.run(l); err != nil {
			return err
		}
		if n.crosses {
			t, err := l.point(op)
			if err != nil {
				return err
			}
			ends[i] = done{t, l.outcome}
		}
	}
	for _, l := range lanes {
		if l == s {
			continue
		}
		t, err := l.point(op)
		if err == nil {
			err = s.follow(op, t, l.outcome)
		}
		if err != nil {
			return err
		}
	}
	x.last, err = s.point(op)
	return err
}

// captureGraph adds the nodes of a graph to the stream's capture, if it has one. The stream is locked.
func (s *stream) captureGraph(op string, g *graph) (captured bool, err error) {
	if s.lane.Load() == nil {
		return false, nil
	}
	s.b.d.capturing.Lock()
	defer s.b.d.capturing.Unlock()
	l := s.lane.Load()
	if l == nil {
		return false, nil
	}
	c := l.capture
	if err := c.check(op, s); err != nil {
		return true, err
	}
	// A lane of the graph that isn't the first is one of the capture's that has no stream any more when it's over.
	lanes := []int{l.index}
	if g.lanes[0] != s.b {
		lanes[0] = c.extra(g.lanes[0], s)
	}
	for _, b := range g.lanes[1:] {
		lanes = append(lanes, c.extra(b, s))
	}
	first, leaf := len(c.nodes), make([]bool, len(g.nodes))
	for i, n := range g.nodes {
		deps := l.tail
		if len(n.deps) > 0 {
			deps = make([]int, len(n.deps))
			for j, dep := range n.deps {
				deps[j] = first + dep
				leaf[dep] = false
			}
		}
		leaf[i] = true
		if n.launch != nil {
			n.launch.k.m.Hold()
		}
		n.deps, n.lane, n.crosses = deps, lanes[n.lane], false
		c.nodes = append(c.nodes, n)
	}
	if len(g.nodes) > 0 {
		l.tail = nil
		for i, is := range leaf {
			if is {
				l.tail = append(l.tail, first+i)
			}
		}
	}
	return true, nil
}

// extra adds a lane that no stream captures on.
func (c *capture) extra(b *dev, like *stream) int {
	c.lanes = append(c.lanes, &lane{capture: c, s: &stream{b: b, h: like.h}, index: len(c.lanes)})
	return len(c.lanes) - 1
}
