package ucx

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"runtime"
	"strings"
	"syscall"
	"unsafe"

	"github.com/chorus-comms/chorus/fabric/ucx/abi"
)

// worker is a context of UCX with its only worker. One goroutine at a time may use it.
type worker struct {
	*library
	limits  string // settings.limits
	context uintptr
	handle  uintptr
	eventFD int // -1: the transports have no events

	// Arguments of calls, on the heap for all of the worker's life.
	plain   *abi.RequestParam // nothing is set
	certain *abi.RequestParam // there's a request, even if it's complete at once
	force   *abi.RequestParam // of a close
	info    *abi.TagRecvInfo
}

// settings are UCX's own, without the prefix UCX_: they go before its variables.
type settings map[string]string

// value is that of a setting, or else of its variable.
func (s settings) value(name string) string {
	if v, ok := s[name]; ok {
		return v
	}
	return os.Getenv("UCX_" + name)
}

// limits are the settings that say which transports and devices UCX may use, as variables.
func (s settings) limits() string {
	return fmt.Sprintf("UCX_TLS=%s UCX_NET_DEVICES=%s", cmp.Or(s.value("TLS"), "all"),
		cmp.Or(s.value("NET_DEVICES"), "all"))
}

// withoutShared leaves out UCX's shared memory in /dev/shm, of which a worker takes 4 MiB.
const withoutShared = "^posix"

// newWorker opens a context for so many peers. Where /dev/shm is too small for it, as the 64 MiB of a container are for
// many ranks, it leaves out UCX's shared memory, unless a setting says which transports to use.
func newWorker(peers int, set settings) (*worker, error) {
	w, err := openWorker(peers, set)
	if e, ok := errors.AsType[*CallError](err); ok && e.Status.Is(syscall.ENOMEM) && set.value("TLS") == "" {
		less := maps.Clone(set)
		if less == nil {
			less = settings{}
		}
		less["TLS"] = withoutShared
		if w, err := openWorker(peers, less); err == nil {
			return w, nil
		}
	}
	if e, ok := errors.AsType[*CallError](err); ok {
		e.Under = set.limits()
	}
	return w, err
}

// openWorker opens a context with the settings as they are.
func openWorker(peers int, set settings) (*worker, error) {
	l, err := open()
	if err != nil {
		return nil, err
	}
	if err := spare(openDescriptors); err != nil {
		return nil, err
	}
	w := &worker{library: l, limits: set.limits(), eventFD: -1, plain: heap(abi.RequestParam{}),
		info: heap(abi.TagRecvInfo{}), certain: heap(abi.RequestParam{Mask: abi.OpNoImm}),
		force: heap(abi.RequestParam{Mask: abi.OpFlags, Flags: abi.CloseForce})}
	out := heap(uintptr(0))
	if err := check("ucp_config_read", l.ConfigRead.Call(0, 0, word(out))); err != nil {
		return nil, err
	}
	config := *out
	defer l.ConfigRelease.Call(config)
	for name, value := range set {
		n, v := cString(name), cString(value)
		err := check("ucp_config_modify "+name+"="+value, l.ConfigModify.Call(config, word(n), word(v)))
		runtime.KeepAlive(n)
		runtime.KeepAlive(v)
		if err != nil {
			return nil, err
		}
	}
	p := heap(abi.Params{FieldMask: abi.ParamFeatures | abi.ParamEstimatedNumEps,
		Features: abi.FeatureTag | abi.FeatureWakeup, EstimatedNumEps: uintptr(max(peers, 1))})
	if err := check("ucp_init_version", l.Init.Call(abi.Major, abi.Minor, word(p), config, word(out))); err != nil {
		return nil, err
	}
	runtime.KeepAlive(p)
	w.context = *out
	wp := heap(abi.WorkerParams{FieldMask: abi.WorkerParamThreadMode | abi.WorkerParamFlags,
		ThreadMode: abi.ThreadModeSerialized, Flags: abi.WorkerFlagIgnoreRequestLeak})
	if err := check("ucp_worker_create", l.WorkerCreate.Call(w.context, word(wp), word(out))); err != nil {
		l.Cleanup.Call(w.context)
		return nil, err
	}
	runtime.KeepAlive(wp)
	w.handle = *out
	fd := heap(int32(0))
	if err := check("ucp_worker_get_efd", l.EventFD.Call(w.handle, word(fd))); err == nil {
		w.eventFD = int(*fd)
	}
	return w, nil
}

// close frees the worker and its context. UCX closes the event descriptor.
func (w *worker) close() {
	w.WorkerDestroy.Call(w.handle)
	w.Cleanup.Call(w.context)
}

// address is what others must know to reach the worker.
func (w *worker) address() ([]byte, error) {
	out, n := heap(uintptr(0)), heap(uintptr(0))
	if err := check("ucp_worker_get_address", w.GetAddress.Call(w.handle, word(out), word(n))); err != nil {
		return nil, err
	}
	b := []byte(strings.Clone(unsafe.String(*(**byte)(unsafe.Pointer(out)), int(*n))))
	w.ReleaseAddress.Call(w.handle, *out)
	return b, nil
}

// connect makes an endpoint. Its failure is told to endpointFailed, with the number.
func (w *worker) connect(address []byte, errors int32, number uintptr) (uintptr, error) {
	p := heap(abi.EndpointParams{FieldMask: abi.EndpointParamRemoteAddress | abi.EndpointParamErrHandlingMode |
		abi.EndpointParamErrHandler, Address: unsafe.SliceData(address), ErrMode: errors,
		ErrHandler: uintptr(w.failed), Arg: number})
	out := heap(uintptr(0))
	err := check("ucp_ep_create", w.EndpointCreate.Call(w.handle, word(p), word(out)))
	runtime.KeepAlive(address)
	runtime.KeepAlive(p)
	return *out, err
}

// progress moves what can be moved, and reports whether anything was.
func (w *worker) progress() bool { return uint32(w.Progress.Call(w.handle)) != 0 }

// send starts to send n bytes. Without a request it's done, or has failed.
func (w *worker) send(endpoint uintptr, buf unsafe.Pointer, n int, tag uint64) (uintptr, abi.Status) {
	return abi.Of(w.TagSend.Call(endpoint, uintptr(buf), uintptr(n), uintptr(tag), word(w.plain)))
}

// receive posts a receive of at most n bytes under a tag; there's always a request, unless it has failed.
func (w *worker) receive(buf unsafe.Pointer, n int, tag, mask uint64) (uintptr, abi.Status) {
	return abi.Of(w.TagRecv.Call(w.handle, uintptr(buf), uintptr(n), uintptr(tag), uintptr(mask), word(w.certain)))
}

// received tells the state of a receive, and how many bytes have come.
func (w *worker) received(request uintptr) (int, abi.Status) {
	s := abi.StatusOf(w.RecvTest.Call(request, word(w.info)))
	return int(w.info.Length), s
}

// status tells the state of a request.
func (w *worker) status(request uintptr) abi.Status {
	return abi.StatusOf(w.RequestStatus.Call(request))
}

func (w *worker) free(request uintptr) { w.RequestFree.Call(request) }

func (w *worker) cancel(request uintptr) { w.RequestCancel.Call(w.handle, request) }

// arm asks for an event at the next news; it reports false if there are some already.
func (w *worker) arm() bool { return abi.StatusOf(w.Arm.Call(w.handle)) == abi.OK }

// closeEndpoint gives an endpoint up, and what is under way on it. Without a request it's closed.
func (w *worker) closeEndpoint(endpoint uintptr) uintptr {
	r, _ := abi.Of(w.EndpointClose.Call(endpoint, word(w.force)))
	return r
}

// flush asks for an endpoint's messages to be on their way. Without a request they are.
func (w *worker) flush(endpoint uintptr) uintptr {
	r, _ := abi.Of(w.EndpointFlush.Call(endpoint, word(w.plain)))
	return r
}
