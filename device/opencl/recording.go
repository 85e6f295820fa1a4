package opencl

import (
	"slices"

	"github.com/chorus-comms/chorus/device/driver"
	"github.com/chorus-comms/chorus/device/opencl/abi"
	"github.com/chorus-comms/chorus/internal/dl"
)

// recording is a command buffer of the library (cl_khr_command_buffer): kernels of a graph that follow each other on one
// lane, which one call enqueues.
type recording struct {
	b    *dev
	h    abi.Commands
	last int // the number of the last node

	parts []abi.Mem // of buffers
}

// findCommands finds the functions of command buffers, if the device has them for what graphs need: queues as they are
// here, and runs that are enqueued before the one before is done.
func (b *dev) findCommands() *abi.CommandTable {
	can, err := value[uint64](b.Library, "clGetDeviceInfo", b.DeviceInfo, b.id, abi.DeviceCommands)
	if err != nil || can&abi.CommandsSimultaneous == 0 || !b.caps.Has("extensions") {
		return nil
	}
	needs, err := value[uint64](b.Library, "clGetDeviceInfo", b.DeviceInfo, b.id, abi.DeviceCommandsQueue)
	if err != nil || needs != 0 {
		return nil
	}
	lookup := func(name string) (uintptr, bool) {
		text := append([]byte(name), 0)
		a := b.Extension(b.space.platform, &text[0])
		return a, a != 0
	}
	table := new(abi.CommandTable)
	if _, err := b.opened.By(lookup, b.version).Resolve(table); err != nil {
		return nil
	}
	return table
}

// record makes recordings of a graph's kernels that follow each other, by the number of the first one. A graph whose
// kernels a library doesn't record has none.
func (g *graph) record() map[int]*recording {
	all := map[int]*recording{}
	for first := 0; first < len(g.nodes); first++ {
		last := first
		for last+1 < len(g.nodes) && g.joined(last+1) {
			last++
		}
		if b := g.lanes[g.nodes[first].lane]; last > first && b.commands != nil && b.svm != 0 {
			if r := b.record(g.nodes[first : last+1]); r != nil {
				r.last = last
				all[first] = r
			}
		}
		first = last
	}
	return all
}

// joined reports whether a node and the one before are kernels of one lane, with nothing of another lane in between.
func (g *graph) joined(i int) bool {
	n, before := &g.nodes[i], &g.nodes[i-1]
	return n.launch != nil && before.launch != nil && n.lane == before.lane && !before.crosses &&
		!slices.ContainsFunc(n.deps, func(dep int) bool { return g.nodes[dep].lane != n.lane })
}

// record records kernels; nil: the library doesn't.
func (b *dev) record(nodes []node) *recording {
	const op = "record graph"
	s, err := b.queue(op, 0) // which stands for those that will run the commands
	if err != nil {
		return nil
	}
	defer func() {
		s.Lock()
		defer s.Unlock()
		_ = s.end(op)
	}()
	q, r := dl.Heap(&[1]abi.Queue{s.q}), new(abi.Result)
	props := dl.Heap(&[3]uint64{abi.CommandsFlags, abi.CommandsSimultaneously})
	rec := &recording{b: b, h: b.commands.Make(1, &q[0], &props[0], r)}
	if *r != abi.Success {
		return nil
	}
	for i := range nodes {
		if !rec.add(nodes[i].launch) {
			rec.end()
			return nil
		}
	}
	if b.commands.Finalize(rec.h) != abi.Success {
		rec.end()
		return nil
	}
	return rec
}

func (r *recording) add(x *launch) bool {
	x.k.mu.Lock()
	defer x.k.mu.Unlock()
	h, parts, err := x.set()
	r.parts = append(r.parts, parts...)
	if err != nil {
		return false
	}
	return r.b.commands.Kernel(r.h, 0, nil, h, 3, nil, &x.items[0], &x.block[0], 0, nil, nil, nil) == abi.Success
}

// fits reports whether the recording can run on a stream.
func (r *recording) fits(s *stream) bool { return s.b == r.b && s.priority == 0 && !s.profiles }

// run enqueues the kernels, unless the stream carries an error. The stream is locked.
func (r *recording) run(op string, s *stream) error {
	c := command{call: "clEnqueueCommandBufferKHR", kind: driver.ActivityGraph, name: "graph"}
	return s.enqueue(op, c, func(e *abi.Event) abi.Result {
		return r.b.commands.Run(1, &s.q, r.h, 0, nil, e)
	})
}

func (r *recording) end() {
	r.b.commands.Free(r.h)
	r.b.free(r.parts)
}
