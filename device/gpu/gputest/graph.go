//go:build linux

package gputest

import (
	"unsafe"

	"github.com/chorus-comms/chorus/device/driver"
	"github.com/chorus-comms/chorus/device/gpu/abi"
)

func (l *Library) endCapture(s abi.Stream, g *abi.Graph) abi.Result {
	h, err := l.driver.CaptureEnd(driver.StreamHandle(s))
	if err != nil {
		return abi.CaptureInvalidated
	}
	nodes, err := l.driver.GraphNodes(h)
	if err != nil {
		return result(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.graphs[abi.Graph(h)] = nodes
	*g = abi.Graph(h)
	return abi.Success
}

func (l *Library) graphDestroy(g abi.Graph) abi.Result {
	l.mu.Lock()
	delete(l.graphs, g)
	l.mu.Unlock()
	return result(l.driver.GraphDestroy(driver.GraphHandle(g)))
}

// A node's handle is the graph's and its number. They are listed with the last first, since a library promises no
// order.
const nodesPerGraph = 1 << 12

func (l *Library) nodes(g abi.Graph) ([]driver.Node, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	nodes, ok := l.graphs[g]
	return nodes, ok
}

func (l *Library) graphNodes(g abi.Graph, to *abi.Node, n *uint64) abi.Result {
	nodes, ok := l.nodes(g)
	if !ok {
		return abi.InvalidValue
	}
	if to != nil {
		for i := range min(len(nodes), int(*n)) {
			unsafe.Slice(to, *n)[i] = abi.Node(g)*nodesPerGraph + abi.Node(len(nodes)-1-i)
		}
	}
	*n = uint64(len(nodes))
	return abi.Success
}

func (l *Library) graphEdges(g abi.Graph, from, to *abi.Node, n *uint64) abi.Result {
	nodes, ok := l.nodes(g)
	if !ok {
		return abi.InvalidValue
	}
	count := uint64(0)
	for i, x := range nodes {
		for _, j := range x.Deps {
			if from != nil && count < *n {
				unsafe.Slice(from, *n)[count] = abi.Node(g)*nodesPerGraph + abi.Node(j)
				unsafe.Slice(to, *n)[count] = abi.Node(g)*nodesPerGraph + abi.Node(i)
			}
			count++
		}
	}
	*n = count
	return abi.Success
}

func (l *Library) nodeType(x abi.Node, kind *int32) abi.Result {
	nodes, ok := l.nodes(abi.Graph(x / nodesPerGraph))
	if i := int(x % nodesPerGraph); ok && i < len(nodes) {
		*kind = map[driver.ActivityKind]int32{driver.ActivityCopy: abi.NodeMemcpy, driver.ActivityFill: abi.NodeMemset,
			driver.ActivityHost: abi.NodeHost, driver.ActivityGraph: abi.NodeGraph}[nodes[i].Kind]
		if nodes[i].Name == waiting {
			*kind = abi.NodeBatchMemOp
			if l.opts.Name == "hip" {
				*kind = abi.NodeBatchMemHIP
			}
		}
		return abi.Success
	}
	return abi.InvalidValue
}

// graphTable fills in captures and graphs.
func (l *Library) graphTable(t *abi.Table) {
	d := l.driver
	t.IsCapturing = func(s abi.Stream, status *int32) abi.Result {
		st, err := d.CaptureStatus(driver.StreamHandle(s))
		*status = int32(st)
		return result(err)
	}
	t.BeginCapture = func(s abi.Stream, mode int32) abi.Result {
		if mode != abi.CaptureModeRelaxed {
			return abi.NotSupported // others would bind the capture to a thread
		}
		return result(d.CaptureBegin(driver.StreamHandle(s)))
	}
	t.EndCapture = l.endCapture
	t.GraphDestroy = l.graphDestroy
	t.GraphNodes = l.graphNodes
	t.GraphEdges = l.graphEdges
	t.NodeType = l.nodeType
	t.Instantiate = func(x *abi.Exec, g abi.Graph, _ uint64) abi.Result {
		h, err := d.Instantiate(driver.GraphHandle(g))
		return give(x, h, err)
	}
	t.GraphLaunch = func(x abi.Exec, s abi.Stream) abi.Result {
		if state, err := d.CaptureStatus(driver.StreamHandle(s)); err == nil && state != driver.NotCapturing {
			return abi.CaptureUnsupported
		}
		return result(d.GraphLaunch(driver.ExecHandle(x), driver.StreamHandle(s)))
	}
	t.ExecDestroy = func(x abi.Exec) abi.Result { return result(d.ExecDestroy(driver.ExecHandle(x))) }
	t.ExecUpdate = func(x abi.Exec, g abi.Graph, _ *abi.Node, why *int32) abi.Result {
		if err := d.GraphUpdate(driver.ExecHandle(x), driver.GraphHandle(g)); err != nil {
			*why = 1
			return abi.GraphExecUpdateFailure
		}
		return abi.Success
	}
}
