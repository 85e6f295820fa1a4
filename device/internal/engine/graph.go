package engine

import (
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/chorus-comms/chorus/device/driver"
	"github.com/chorus-comms/chorus/device/internal/base"
)

type graph struct {
	base.Entry[driver.GraphHandle, *graph]
	nodes []node
}

// exec is a graph that can run. The nodes are never changed but replaced, so that runs which are enqueued keep theirs.
type exec struct {
	base.Entry[driver.ExecHandle, *exec]
	mu    sync.Mutex
	nodes []node
	last  *point // the end of the run enqueued last
}

// run is one run of a graph, as enqueued.
type run struct {
	nodes []node
	prev  *point // must be reached first; nil: nothing
	end   *point
}

// GraphNodes is [driver.Graphs].GraphNodes.
func (e *Engine) GraphNodes(h driver.GraphHandle) ([]driver.Node, error) {
	g, err := e.graphs.Find("graph nodes", h)
	if err != nil {
		return nil, err
	}
	list := make([]driver.Node, len(g.nodes))
	for i := range g.nodes {
		n := &g.nodes[i]
		list[i] = driver.Node{Kind: n.work.kind, Name: n.work.String(), Deps: slices.Clone(n.deps)}
	}
	return list, nil
}

// GraphDestroy is [driver.Graphs].GraphDestroy.
func (e *Engine) GraphDestroy(h driver.GraphHandle) error {
	_, err := e.graphs.Take("destroy graph", h)
	return err
}

// Instantiate is [driver.Graphs].Instantiate.
func (e *Engine) Instantiate(h driver.GraphHandle) (driver.ExecHandle, error) {
	g, err := e.graphs.Find("instantiate", h)
	if err != nil {
		return 0, err
	}
	return e.execs.Add(&exec{nodes: g.nodes}), nil
}

// ExecDestroy is [driver.Graphs].ExecDestroy.
func (e *Engine) ExecDestroy(h driver.ExecHandle) error {
	_, err := e.execs.Take("destroy instantiated graph", h)
	return err
}

// GraphUpdate is [driver.Graphs].GraphUpdate.
func (e *Engine) GraphUpdate(xh driver.ExecHandle, gh driver.GraphHandle) error {
	x, err := e.execs.Find("update graph", xh)
	if err != nil {
		return err
	}
	g, err := e.graphs.Find("update graph", gh)
	if err != nil {
		return err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.nodes) != len(g.nodes) {
		return driver.Errorf(driver.ErrInvalidArgument, e.name, "update graph", "there are %d nodes, and were %d",
			len(g.nodes), len(x.nodes))
	}
	for i := range x.nodes {
		was, is := &x.nodes[i], &g.nodes[i]
		if was.work.kind != is.work.kind || was.dev != is.dev {
			return driver.Errorf(driver.ErrInvalidArgument, e.name, "update graph", "node %d is a %v on %s, and was a %v on %s",
				i, is.work.kind, is.dev.name, was.work.kind, was.dev.name)
		}
		if !slices.Equal(was.deps, is.deps) {
			return driver.Errorf(driver.ErrInvalidArgument, e.name, "update graph",
				"node %d (%v) comes after the nodes %v, and came after %v", i, &is.work, is.deps, was.deps)
		}
	}
	x.nodes = g.nodes
	return nil
}

// GraphLaunch is [driver.Graphs].GraphLaunch.
func (e *Engine) GraphLaunch(xh driver.ExecHandle, sh driver.StreamHandle) error {
	begin := time.Now()
	x, err := e.execs.Find("launch graph", xh)
	if err != nil {
		return err
	}
	s, err := e.streams.Find("launch graph", sh)
	if err != nil {
		return err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if captured, err := s.captureGraph(x.nodes); captured {
		return err
	}
	t := s.newTask()
	t.kind = taskGraph
	t.run = &run{nodes: x.nodes, prev: x.last, end: new(point)}
	x.last = t.run.end
	s.trace(e.trace.Load(), t, "launch graph", begin)
	s.push(t) // under the lock, so that runs are in one order for the streams and for prev
	return nil
}

// runGraph runs the nodes of a graph, those that don't depend on each other side by side.
func (s *stream) runGraph(t *task) {
	r := t.run
	defer r.end.reach(nil)
	if r.prev != nil {
		<-r.prev.done()
		r.prev = nil
	}
	if s.carries() != nil {
		return
	}
	start := time.Now()
	err := s.runNodes(t)
	t.traced.Ran(start, err != nil)
	if f, ok := err.(*nodeError); ok {
		s.fail(f.work, f.err)
	}
}

// nodeError is the failure of a node.
type nodeError struct {
	work *work
	err  error
}

func (e *nodeError) Error() string { return fmt.Sprintf("%v: %v", e.work, e.err) }

func (s *stream) runNodes(t *task) error {
	nodes := t.run.nodes
	if chain(nodes) {
		for i := range nodes {
			if err := s.runNode(t, &nodes[i]); err != nil {
				return err
			}
		}
		return nil
	}
	missing, after := make([]int, len(nodes)), make([][]int, len(nodes))
	ended := make(chan int)
	errs := make([]error, len(nodes))
	running := 0
	begin := func(i int) {
		running++
		go func() {
			debug.SetPanicOnFault(true)
			errs[i] = &nodeError{&nodes[i].work, errGone}
			defer func() { ended <- i }()
			errs[i] = s.runNode(t, &nodes[i])
		}()
	}
	for i := range nodes {
		missing[i] = len(nodes[i].deps)
		for _, d := range nodes[i].deps {
			after[d] = append(after[d], i)
		}
	}
	for i, n := range missing {
		if n == 0 {
			begin(i)
		}
	}
	failed := false
	for running > 0 {
		i := <-ended
		running--
		failed = failed || errs[i] != nil
		for _, j := range after[i] {
			if missing[j]--; missing[j] == 0 && !failed {
				begin(j)
			}
		}
	}
	for _, err := range errs { // the first in the order of capture, whichever was faster
		if err != nil {
			return err
		}
	}
	return nil
}

// chain reports whether each node comes right after the one before it.
func chain(nodes []node) bool {
	for i := range nodes {
		if i == 0 && len(nodes[i].deps) != 0 || i > 0 && (len(nodes[i].deps) != 1 || nodes[i].deps[0] != i-1) {
			return false
		}
	}
	return true
}

func (s *stream) runNode(t *task, n *node) error {
	var b bound
	start := time.Now()
	err := s.e.bind(n.dev, &n.work, &b)
	if err == nil {
		defer b.drop() // also if the function ends its goroutine
		err = s.e.execute(n.dev, n.level, &n.work, &b)
	}
	if t.traced != nil {
		t.traced.Of(n.work.kind, n.work.String(), n.work.bytes).Ran(start, err != nil)
	}
	if err != nil {
		return &nodeError{&n.work, err}
	}
	return nil
}

var errGone = errors.New("the function ended its goroutine")
