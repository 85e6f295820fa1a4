//go:build cgo

package capi

// #include "shim.h"
import "C"

import (
	"errors"
	"os"
	"sync"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/device/cache"
)

var graphs = table[device.Graph]{kind: graphHandles}

// defaults are the handles of default streams.
var defaults struct {
	sync.Mutex
	handles map[*device.Device]C.chorus_stream
}

// captures guards the streams' captures.
var captures sync.Mutex

// capture is one that goes on between chorus_graph_begin and chorus_graph_end. device.Capture takes a function, which
// waits on a goroutine for the end.
type capture struct {
	end  chan error // what the function returns
	done chan struct{}
	g    *device.Graph
	err  error
}

// errDiscarded ends a capture whose result isn't wanted.
var errDiscarded = errors.New("discarded")

//export goGraphBegin
func goGraphBegin(h C.chorus_stream, pool *C.uint64_t, from *C.chorus_generator, n C.int32_t) (status C.chorus_status) {
	defer contain(&status)
	s, err := findStream(h)
	if err != nil {
		return fail(err)
	}
	var opts []device.CaptureOption
	if pool != nil {
		id := slice(pool, 2)
		opts = append(opts, device.InPool(cache.PoolID{uint64(id[0]), uint64(id[1])}))
	}
	if n < 0 || n > 0 && from == nil {
		return fail(refused("chorus_graph_begin_with got %d generators at %p", n, from))
	}
	for _, h := range slice(from, n) {
		g, err := generatorOf(s.Device(), h)
		if err != nil {
			return fail(err)
		}
		opts = append(opts, device.Drawing(g))
	}
	captures.Lock()
	defer captures.Unlock()
	if s.capture != nil {
		return fail(device.Errorf(device.ErrCapture, s.Device().Name(), "capture", "%v is being captured already", s.Stream))
	}
	c := &capture{end: make(chan error, 1), done: make(chan struct{})}
	begun := make(chan struct{})
	go func() {
		defer close(c.done)
		c.g, c.err = device.Capture(s.Stream, func() error {
			close(begun)
			return <-c.end
		}, opts...)
	}()
	select {
	case <-begun:
		s.capture = c
		return C.CHORUS_OK
	case <-c.done:
		return fail(c.err)
	}
}

//export goGraphEnd
func goGraphEnd(h C.chorus_stream, out *C.chorus_graph) (status C.chorus_status) {
	defer contain(&status)
	s, err := findStream(h)
	if err != nil {
		return fail(err)
	}
	captures.Lock()
	defer captures.Unlock()
	c := s.capture
	if c == nil {
		return fail(device.Errorf(device.ErrCapture, s.Device().Name(), "end capture", "%v is not being captured", s.Stream))
	}
	s.capture = nil
	if out == nil {
		c.end <- errDiscarded
		<-c.done
		if c.err == errDiscarded || errors.Is(c.err, errDiscarded) {
			c.err = nil
		}
		return fail(c.err)
	}
	*out = 0
	c.end <- nil
	<-c.done
	if c.err != nil {
		return fail(c.err)
	}
	g := graphs.put(c.g)
	if g == 0 {
		return fail(errors.Join(errors.New("chorus: too many graphs"), c.g.Close()))
	}
	*out = C.chorus_graph(g)
	return C.CHORUS_OK
}

func findGraph(h C.chorus_graph) (*device.Graph, error) {
	if g := graphs.get(uint64(h)); g != nil {
		return g, nil
	}
	return nil, refused("%#x is no graph; it may have been released", uint64(h))
}

//export goGraphReplay
func goGraphReplay(h C.chorus_graph, stream C.chorus_stream) (status C.chorus_status) {
	defer contain(&status)
	g, err := findGraph(h)
	if err != nil {
		return fail(err)
	}
	s, err := findStream(stream)
	if err != nil {
		return fail(err)
	}
	return fail(g.Replay(s.Stream))
}

//export goGraphPool
func goGraphPool(h C.chorus_graph, out *C.uint64_t) (status C.chorus_status) {
	defer contain(&status)
	g, err := findGraph(h)
	if err == nil && out == nil {
		err = refused("chorus_graph_pool got NULL")
	}
	if err != nil {
		return fail(err)
	}
	for i, v := range g.Pool() {
		slice(out, 2)[i] = C.uint64_t(v)
	}
	return C.CHORUS_OK
}

//export goGraphDump
func goGraphDump(h C.chorus_graph, path *C.char) (status C.chorus_status) {
	defer contain(&status)
	g, err := findGraph(h)
	if err == nil && path == nil {
		err = refused("chorus_graph_dump got NULL")
	}
	if err != nil {
		return fail(err)
	}
	file, err := os.Create(C.GoString(path))
	if err != nil {
		return fail(refused("%v", err))
	}
	return fail(errors.Join(g.WriteDOT(file), file.Close()))
}

//export goGraphRelease
func goGraphRelease(h C.chorus_graph) (status C.chorus_status) {
	defer contain(&status)
	g := graphs.take(uint64(h))
	if g == nil {
		_, err := findGraph(h)
		return fail(err)
	}
	return fail(g.Close())
}
