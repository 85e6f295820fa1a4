//go:build linux

package gputest

import (
	"reflect"
	"sync"

	"github.com/chorus-comms/chorus/device/driver"
	"github.com/chorus-comms/chorus/device/gpu/abi"
)

// queuedCalls are the functions that enqueue something on a stream.
var queuedCalls = []string{"Copy", "CopyAs", "Fill", "HostFunc", "WaitValue", "StreamWait", "EventRecord", "GraphLaunch",
	"FunctionLaunch"}

// queues are what [Options].Queues asks for.
type queues struct {
	sync.Mutex
	of   map[abi.Stream]int // the queue of each stream, in the order of their first use
	last []driver.EventHandle
}

// queued is a function that enqueues something on a stream: behind all that was enqueued on the streams that share its
// queue.
func (l *Library) queued(f reflect.Value) reflect.Value {
	q := &l.queues
	return reflect.MakeFunc(f.Type(), func(args []reflect.Value) []reflect.Value {
		var s abi.Stream
		for _, a := range args {
			if a.Type() == reflect.TypeFor[abi.Stream]() {
				s = a.Interface().(abi.Stream)
			}
		}
		h := driver.StreamHandle(s)
		captured := func() bool {
			st, err := l.driver.CaptureStatus(h)
			return err != nil || st != driver.NotCapturing
		}
		if captured() {
			return f.Call(args)
		}
		q.Lock()
		defer q.Unlock()
		i, known := q.of[s]
		if !known {
			if i = len(q.of) % l.opts.Queues; q.of == nil {
				q.of, q.last = map[abi.Stream]int{}, make([]driver.EventHandle, l.opts.Queues)
			}
			q.of[s] = i
		}
		e := q.last[i]
		if e != 0 {
			_ = l.driver.StreamWaitEvent(h, e)
		}
		r := f.Call(args)
		if captured() { // it has waited for an event of a capture: nothing is enqueued
			return r
		}
		if dev, err := l.owner(s); err == nil {
			if q.last[i], err = l.driver.EventCreate(dev, false); err == nil {
				_ = l.driver.EventRecord(q.last[i], h)
			}
			_ = l.driver.EventDestroy(e)
		}
		return r
	})
}
