package gpu

import (
	"cmp"
	"slices"

	"github.com/chorus-comms/chorus/device/driver"
	"github.com/chorus-comms/chorus/device/gpu/abi"
	"github.com/chorus-comms/chorus/device/internal/base"
)

// graph is one that was captured.
type graph struct {
	base.Entry[driver.GraphHandle, *graph]
	b         *gpu
	h         abi.Graph
	memory    []use
	functions []captured
	modules   []*module
	scratch   []*scratch
}

// exec is an instantiated graph.
type exec struct {
	base.Entry[driver.ExecHandle, *exec]
	b *gpu
	h abi.Exec

	base.Life
	memory    []use
	functions []captured
	modules   []*module
	scratch   []*scratch
	checked   uint64 // how often memory had changed when memory was found as it was captured
	foreign   []use  // what of it others have allocated, whose changes aren't known; nil: it wasn't looked at
}

// hold counts one more that uses functions.
func hold(list []captured) []captured {
	for _, c := range list {
		c.f.uses.Add(1)
	}
	return list
}

// last is the end of the last launch of some functions. A function has one word, whatever instantiated graphs have it,
// so that runs of theirs come after one another.
type last struct {
	s     *stream
	e     abi.Event // behind it
	among int       // functions whose last launch it is
}

// drop forgets the last launch of a function. The caller has Driver.launching.
func (f *function) drop() {
	if f.last == nil {
		return
	}
	if f.last.among--; f.last.among == 0 {
		f.last.s.b.retire(f.last.e) // waits for its record go on as they would
	}
	f.last = nil
}

// comeAfter lets a stream wait for the last launches of functions. The stream is locked.
func (s *stream) comeAfter(op string, list []captured) error {
	waited := map[*last]bool{nil: true}
	for _, c := range list {
		l := c.f.last
		if waited[l] || l.s == s {
			continue
		}
		waited[l] = true
		if err := s.result(op, "StreamWaitEvent", func() abi.Result { return s.b.StreamWait(s.h, l.e, 0) }); err != nil {
			return err
		}
	}
	return nil
}

// launched makes what a stream has now the last launch of functions. The stream is locked.
func (s *stream) launched(op string, list []captured) error {
	e, err := s.b.event(op)
	if err != nil {
		return err
	}
	l := &last{s: s, e: e, among: len(list)}
	for _, c := range list {
		c.f.drop()
		c.f.last = l
	}
	return s.result(op, "EventRecord", func() abi.Result { return s.b.EventRecord(e, s.h) })
}

// Destroy is that of [base.Front].
func (g *graph) Destroy(op string) error {
	d := g.b.d
	d.dropFunctions(g.b, g.functions)
	d.dropModules(g.modules...)
	d.dropScratch(g.b, g.scratch)
	return g.b.call(op, "GraphDestroy", func() abi.Result { return g.b.Library.GraphDestroy(g.h) })
}

// Instantiate is that of [base.Front].
func (g *graph) Instantiate(op string) (*exec, error) {
	x := new(abi.Exec)
	err := g.b.call(op, "GraphInstantiate", func() abi.Result { return g.b.Library.Instantiate(x, g.h, 0) })
	if err != nil {
		return nil, err
	}
	return &exec{b: g.b, h: *x, memory: g.memory, functions: hold(g.functions),
		modules: holdModules(g.modules), scratch: holdScratch(g.scratch)}, nil
}

// there demands that the memory of nodes is there. The driver looks up what it has allocated when memory has
// changed since the last run.
func (x *exec) there(op string) error {
	d := x.b.d
	changes := d.memory.Changes()
	all := x.foreign == nil || x.checked != changes
	list := x.foreign
	if all {
		list, x.foreign = x.memory, nil
	}
	foreign := []use{}
	for _, u := range list {
		at, err := d.side(x.b, op, "a node", u.p, u.bytes)
		if err == nil && at.Type != u.typ {
			err = driver.Errorf(driver.ErrInvalidPointer, x.b.Name, op, "%v, which a node uses, is %v memory now", u.p, at.Type)
		}
		if err != nil {
			return err
		}
		if a, _ := d.memory.Find(u.p); all && a == nil {
			foreign = append(foreign, u)
		}
	}
	if all {
		x.checked, x.foreign = changes, foreign
	}
	return nil
}

// distinct are the uses of each address, without those of fewer bytes.
func distinct(list []use) []use {
	slices.SortFunc(list, func(a, b use) int {
		return cmp.Or(cmp.Compare(a.p, b.p), cmp.Compare(a.typ, b.typ), cmp.Compare(b.bytes, a.bytes))
	})
	return slices.CompactFunc(list, func(a, b use) bool { return a.p == b.p && a.typ == b.typ })
}

// LaunchGraph is that of [base.Front]. Memory that copies and fills use must still be there, else the run fails
// before it begins; memory that foreign kernels use isn't known.
func (s *stream) LaunchGraph(op string, x *exec) error {
	d := s.b.d
	if err := s.permits(op); err != nil {
		return err
	}
	if s.recording() {
		return driver.Errorf(driver.ErrUnsupported, s.b.Name, op, "stream %#x is captured, and the library launches no graph "+
			"into a capture", uintptr(s.h))
	}
	if s.broken() != nil {
		return s.b.Broken() // left out
	}
	if err := x.there(op); err != nil {
		s.outcome = s.outcome.After(1)
		s.outcome.Ran(s.failure("graph", err))
		return nil
	}
	mine := s.outcome
	if n := len(x.functions); n > 0 {
		d.launching.Lock()
		defer d.launching.Unlock()
		if err := s.comeAfter(op, x.functions); err != nil {
			return err
		}
		mine = s.outcome.After(n)
		for _, c := range x.functions {
			c.f.mu.Lock()
			c.f.runs = append(c.f.runs, run{mine, s})
			c.f.mu.Unlock()
		}
	}
	m, functions := d.before(s), int32(len(x.functions))
	s.expect(functions) // they may have run when the call returns
	err := s.result(op, "GraphLaunch", func() abi.Result { return s.b.Library.GraphLaunch(x.h, s.h) })
	m.after(s, op, driver.Activity{Kind: driver.ActivityGraph, Name: "graph"}, err)
	if err != nil {
		s.expect(-functions)
		for _, c := range x.functions {
			c.f.mu.Lock()
			c.f.runs = c.f.runs[:len(c.f.runs)-1]
			c.f.mu.Unlock()
		}
		return err
	}
	s.outcome = mine
	if functions == 0 {
		return nil
	}
	return s.launched(op, x.functions)
}

// Update is that of [base.Front].
func (x *exec) Update(op string, g *graph) (after func(), err error) {
	d := x.b.d
	node, why := new(abi.Node), new(int32)
	r := x.b.relaxed(func() abi.Result { return x.b.Library.ExecUpdate(x.h, g.h, node, why) })
	if r == abi.GraphExecUpdateFailure || r == abi.InvalidValue {
		return nil, driver.Errorf(driver.ErrInvalidArgument, x.b.Name, op, "the graphs differ (%d at node %#x): %w", *why,
			uintptr(*node), x.b.failed("GraphExecUpdate", r))
	}
	if err := x.b.result(op, "GraphExecUpdate", r); err != nil {
		return nil, err
	}
	old, modules, scratch := x.functions, x.modules, x.scratch
	x.memory, x.functions, x.modules = g.memory, hold(g.functions), holdModules(g.modules)
	x.scratch, x.foreign = holdScratch(g.scratch), nil
	return func() {
		d.dropFunctions(x.b, old)
		d.dropModules(modules...)
		d.dropScratch(x.b, scratch)
	}, nil
}

// Destroy is that of [base.Front].
func (x *exec) Destroy(string) (after func(), err error) {
	return func() {
		d := x.b.d
		d.dropFunctions(x.b, x.functions)
		d.deferred.Add(x.b, d.gpus, 0, func() { _ = x.b.relaxed(func() abi.Result { return x.b.Library.ExecDestroy(x.h) }) })
		d.dropModules(x.modules...)
		d.dropScratch(x.b, x.scratch)
	}, nil
}

var activities = map[int32]driver.ActivityKind{abi.NodeKernel: driver.ActivityKernel,
	abi.NodeMemcpy: driver.ActivityCopy, abi.NodeMemset: driver.ActivityFill, abi.NodeHost: driver.ActivityHost,
	abi.NodeGraph: driver.ActivityGraph, abi.NodeWaitEvent: driver.ActivityWait,
	abi.NodeEventRecord: driver.ActivityRecord}

// Nodes is that of [base.Front]. The waits that functions have behind them, and nodes that do nothing, are
// left out. Nodes have the names of their kinds.
func (g *graph) Nodes(op string) ([]driver.Node, error) {
	b, n := g.b, new(uint64)
	if err := b.call(op, "GraphGetNodes", func() abi.Result { return b.Library.GraphNodes(g.h, nil, n) }); err != nil ||
		*n == 0 {
		return nil, err
	}
	nodes := make([]abi.Node, *n)
	err := b.call(op, "GraphGetNodes", func() abi.Result { return b.Library.GraphNodes(g.h, &nodes[0], n) })
	if err != nil {
		return nil, err
	}
	edges := new(uint64)
	err = b.call(op, "GraphGetEdges", func() abi.Result { return b.Library.GraphEdges(g.h, nil, nil, edges) })
	if err != nil {
		return nil, err
	}
	before := map[abi.Node][]abi.Node{}
	if *edges > 0 {
		from, to := make([]abi.Node, *edges), make([]abi.Node, *edges)
		err := b.call(op, "GraphGetEdges", func() abi.Result {
			return b.Library.GraphEdges(g.h, &from[0], &to[0], edges)
		})
		if err != nil {
			return nil, err
		}
		for i := range from {
			before[to[i]] = append(before[to[i]], from[i])
		}
	}
	l := &listing{b: b, op: op, before: before, at: map[abi.Node][]int{}}
	for _, x := range nodes {
		l.visit(x)
	}
	return l.nodes, l.err
}

// listing puts nodes behind what they come after.
type listing struct {
	b      *gpu
	op     string
	before map[abi.Node][]abi.Node
	at     map[abi.Node][]int // where a node is, or what stands for one that is left out
	nodes  []driver.Node
	err    error
}

func (l *listing) visit(x abi.Node) []int {
	if at, seen := l.at[x]; seen {
		return at
	}
	l.at[x] = nil
	var deps []int
	for _, y := range l.before[x] {
		for _, i := range l.visit(y) {
			deps = insert(deps, i)
		}
	}
	kind := new(int32)
	if err := l.b.call(l.op, "GraphNodeGetType", func() abi.Result { return l.b.NodeType(x, kind) }); err != nil {
		l.err = err
		return nil
	}
	if k := *kind; k == abi.NodeBatchMemOp || k == abi.NodeBatchMemHIP || k == abi.NodeEmpty {
		l.at[x] = deps
		return deps
	}
	activity, ok := activities[*kind]
	if !ok {
		activity = driver.ActivityRuntime
	}
	l.nodes = append(l.nodes, driver.Node{Kind: activity, Name: activity.String(), Deps: deps})
	l.at[x] = []int{len(l.nodes) - 1}
	return l.at[x]
}

func insert(list []int, i int) []int {
	for _, x := range list {
		if x == i {
			return list
		}
	}
	return append(list, i)
}
