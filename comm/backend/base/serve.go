package base

import (
	"encoding/binary"
	"unsafe"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/kern"
)

// serve carries out what other ranks, and this one, ask for.
func (w *Window) serve() {
	defer close(w.done)
	waiter := fabric.NewWaiter(w.stop)
	waiter.Policy = fabric.BlockPolicy
	waiter.Begin(nil, 0)
	buf := make([]byte, requestBytes+windowChunk)
	var m fabric.Msg
	for {
		m.Reset(waiter)
		m.Peer, m.Key = w.x.AnySource(), fabric.Key{Comm: w.x.Comm, Class: fabric.Internal, Tag: w.tag(0)}
		m.Buf, m.Len = unsafe.Pointer(&buf[0]), len(buf)
		w.x.Link.Recv(&m)
		err := w.x.Link.Wait(&m, waiter)
		if err != nil && !m.Done() {
			w.x.Link.Cancel(&m)
		}
		if w.stop.Raised() {
			err = w.stop.Cause()
		}
		if err != nil {
			w.ended = err
			return
		}
		from := w.x.RankOf(m.From)
		if from < 0 {
			continue
		}
		w.handle(from, buf[:m.N], waiter)
	}
}

// handle carries out one request. All its fields are checked again here, since the sender is another
// process.
func (w *Window) handle(from int, req []byte, waiter *fabric.Waiter) {
	if len(req) < requestBytes {
		return
	}
	kind, red, slot := req[0], backend.ReduceKind(req[1]), int(binary.LittleEndian.Uint16(req[2:]))
	off, n := int(binary.LittleEndian.Uint64(req[8:])), int(binary.LittleEndian.Uint64(req[16:]))
	reply := binary.LittleEndian.Uint64(req[24:])
	data := req[requestBytes:]
	elem := w.dt.Size()
	size := w.sizes[w.x.Rank]
	inside := off >= 0 && n >= 0 && off <= size && n <= size-off
	at := func() unsafe.Pointer { return unsafe.Add(w.t.Pointer(), off*elem) }
	answer := func(p unsafe.Pointer, bytes int) { w.reply(from, reply, p, bytes, waiter) }
	switch kind {
	case requestPut:
		if inside && len(data) == n*elem && n > 0 {
			w.update.Lock()
			kern.Copy(at(), unsafe.Pointer(&data[0]), len(data))
			w.update.Unlock()
		}
	case requestGet:
		if inside && n > 0 {
			answer(at(), n*elem)
		}
	case requestAccumulate:
		if inside && len(data) == n*elem && n > 0 && w.reducible(red) {
			w.update.Lock()
			kern.Reduce(red.Kernel(), w.dt, []unsafe.Pointer{at()}, []unsafe.Pointer{at(), unsafe.Pointer(&data[0])}, n)
			w.update.Unlock()
		}
	case requestFetchOp:
		if inside && n == 1 && len(data) == elem && w.reducible(red) {
			old := make([]byte, elem)
			w.update.Lock()
			kern.Copy(unsafe.Pointer(&old[0]), at(), elem)
			kern.Reduce(red.Kernel(), w.dt, []unsafe.Pointer{at()}, []unsafe.Pointer{at(), unsafe.Pointer(&data[0])}, 1)
			w.update.Unlock()
			answer(unsafe.Pointer(&old[0]), elem)
		}
	case requestCompareAndSwap:
		if inside && n == 1 && len(data) == 2*elem {
			old := make([]byte, elem)
			w.update.Lock()
			kern.Copy(unsafe.Pointer(&old[0]), at(), elem)
			if string(old) == string(data[:elem]) {
				kern.Copy(at(), unsafe.Pointer(&data[elem]), elem)
			}
			w.update.Unlock()
			answer(unsafe.Pointer(&old[0]), elem)
		}
	case requestSignal:
		if slot < backend.SignalSlots {
			w.mu.Lock()
			w.signals[from*backend.SignalSlots+slot]++
			close(w.changed)
			w.changed = make(chan struct{})
			w.mu.Unlock()
		}
	case requestFence:
		answer(nil, 0)
	}
}

func (w *Window) reducible(r backend.ReduceKind) bool {
	return r >= backend.SumKind && r <= backend.BXorKind && kern.Supports(r.Kernel(), w.dt)
}

// reply sends an answer and waits until it's on its way.
func (w *Window) reply(to int, number uint64, p unsafe.Pointer, bytes int, waiter *fabric.Waiter) {
	var m fabric.Msg
	m.Reset(waiter)
	m.Peer, m.Key = w.x.Members[to], fabric.Key{Comm: w.x.Comm, Class: fabric.Internal, Tag: w.tag(number)}
	m.Buf, m.Len = p, bytes
	w.x.Link.Send(&m)
	if w.x.Link.Wait(&m, waiter) != nil && !m.Done() {
		w.x.Link.Cancel(&m)
	}
}
