//go:build cgo

package capi

// #include "shim.h"
import "C"

import (
	"errors"
	"os"
	"sync"
	"time"
	"unsafe"

	"github.com/chorus-comms/chorus/device"
)

// profiles are those that go on, by type of device.
var profiles struct {
	sync.Mutex
	of map[string]*device.Profile
}

//export goProfileStart
func goProfileStart(name *C.char) (status C.chorus_status) {
	defer contain(&status)
	if name == nil {
		return fail(refused("chorus_profile_start got NULL"))
	}
	rt, err := device.Open(C.GoString(name))
	if err != nil {
		return fail(err)
	}
	p, err := device.StartProfile(rt)
	if err != nil {
		return fail(err)
	}
	profiles.Lock()
	defer profiles.Unlock()
	if profiles.of == nil {
		profiles.of = map[string]*device.Profile{}
	}
	profiles.of[rt.Name()] = p
	return C.CHORUS_OK
}

//export goProfileStop
func goProfileStop(name *C.char, each C.chorus_activity_fn, user unsafe.Pointer) (status C.chorus_status) {
	defer contain(&status)
	if name == nil || each == nil {
		return fail(refused("chorus_profile_stop got NULL"))
	}
	of := C.GoString(name)
	t, err := stopProfile(of)
	if t == nil {
		return fail(err)
	}
	ids := streamIDs(of)
	for _, a := range t.Activities[of] {
		stream, known := ids[a.Stream]
		if !known {
			stream = int64(a.Stream)
		}
		told := C.chorus_activity{kind: C.int32_t(a.Kind), device: C.int32_t(a.Device), stream: C.int64_t(stream),
			start_ns: C.int64_t(a.Start.UnixNano()), end_ns: C.int64_t(a.End.UnixNano()), bytes: C.int64_t(a.Bytes),
			correlation: C.uint64_t(a.Correlation), name: interned(a.Name)}
		C.shim_activity(each, user, &told)
	}
	return fail(err)
}

// stopProfile ends the profile of a type of device.
func stopProfile(of string) (*device.Trace, error) {
	profiles.Lock()
	p := profiles.of[of]
	delete(profiles.of, of)
	profiles.Unlock()
	if p == nil {
		return nil, refused("no profile of %s has begun", of)
	}
	return p.Stop()
}

//export goProfileWrite
func goProfileWrite(name, path *C.char) (status C.chorus_status) {
	defer contain(&status)
	if name == nil || path == nil {
		return fail(refused("chorus_profile_write got NULL"))
	}
	t, err := stopProfile(C.GoString(name))
	if err != nil {
		return fail(err)
	}
	file, err := os.Create(C.GoString(path))
	if err != nil {
		return fail(refused("%v", err))
	}
	return fail(errors.Join(t.WriteChrome(file), file.Close()))
}

//export goProfileRange
func goProfileRange(name, title *C.char, thread C.int32_t, start, end C.int64_t) (status C.chorus_status) {
	defer contain(&status)
	if name == nil || title == nil || end < start {
		return fail(refused("chorus_profile_range got %p, %p, from %d to %d", name, title, int64(start), int64(end)))
	}
	profiles.Lock()
	p := profiles.of[borrowed(name)]
	profiles.Unlock()
	if p != nil {
		p.Note(device.Range{Name: C.GoString(title), Start: time.Unix(0, int64(start)), End: time.Unix(0, int64(end)),
			Thread: int(thread)})
	}
	return C.CHORUS_OK
}

// streamIDs are the IDs of the streams of a type of device that have handles, by what their driver calls them.
func streamIDs(of string) map[device.StreamHandle]int64 {
	ids := map[device.StreamHandle]int64{}
	opened.Lock()
	for d := range opened.handles {
		if d.Runtime().Name() != of {
			continue
		}
		if s, err := d.DefaultStream(); err == nil {
			ids[s.Handle()] = s.ID()
		}
	}
	opened.Unlock()
	pooled.Lock()
	defer pooled.Unlock()
	for d, streams := range pooled.handles {
		if d.Runtime().Name() != of {
			continue
		}
		for id := range streams {
			if s, err := d.StreamByID(id); err == nil {
				ids[s.Handle()] = id
			}
		}
	}
	return ids
}
