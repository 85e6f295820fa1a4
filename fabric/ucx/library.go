package ucx

import (
	"fmt"
	"runtime"
	"sync"
	"unsafe"

	"github.com/chorus-comms/chorus/config"
	"github.com/chorus-comms/chorus/fabric/ucx/abi"
	"github.com/chorus-comms/chorus/internal/dl"
)

// functions are those of libucp that the fabric calls.
type functions struct {
	GetVersion     dl.Func `dl:"ucp_get_version"`
	Init           dl.Func `dl:"ucp_init_version"`
	Cleanup        dl.Func `dl:"ucp_cleanup"`
	PrintInfo      dl.Func `dl:"ucp_context_print_info"`
	ConfigRead     dl.Func `dl:"ucp_config_read"`
	ConfigModify   dl.Func `dl:"ucp_config_modify"`
	ConfigRelease  dl.Func `dl:"ucp_config_release"`
	WorkerCreate   dl.Func `dl:"ucp_worker_create"`
	WorkerDestroy  dl.Func `dl:"ucp_worker_destroy"`
	GetAddress     dl.Func `dl:"ucp_worker_get_address"`
	ReleaseAddress dl.Func `dl:"ucp_worker_release_address"`
	Progress       dl.Func `dl:"ucp_worker_progress"`
	EventFD        dl.Func `dl:"ucp_worker_get_efd"`
	Arm            dl.Func `dl:"ucp_worker_arm"`
	EndpointCreate dl.Func `dl:"ucp_ep_create"`
	EndpointClose  dl.Func `dl:"ucp_ep_close_nbx"`
	EndpointFlush  dl.Func `dl:"ucp_ep_flush_nbx"`
	TagSend        dl.Func `dl:"ucp_tag_send_nbx"`
	TagRecv        dl.Func `dl:"ucp_tag_recv_nbx"`
	RecvTest       dl.Func `dl:"ucp_tag_recv_request_test"`
	RequestStatus  dl.Func `dl:"ucp_request_check_status"`
	RequestCancel  dl.Func `dl:"ucp_request_cancel"`
	RequestFree    dl.Func `dl:"ucp_request_free"`
}

// library is UCX, as this process has opened it.
type library struct {
	functions
	file *dl.Library
	// failed is what UCX calls when an endpoint has failed, on a goroutine that makes progress: with the number of a
	// peer, the endpoint and the status.
	failed dl.Func
}

var open = sync.OnceValues(load)

// load opens UCX, with defaults of its own settings that suit a process of Go. A variable that the user has set stays.
func load() (*library, error) {
	if err := defaultVariables(map[string]string{
		"UCX_HANDLE_ERRORS": "none",   // Go's own handlers turn a bad access into a panic
		"UCX_MEM_EVENTS":    "n",      // UCX sees only what libc unmaps, so it can't remember registrations of Go's memory
		"UCX_LOG_FILE":      "stderr", // what a program writes to its standard output is its own
		"UCX_LOG_LEVEL":     "fatal",  // the fabric's errors say what has failed
	}); err != nil {
		return nil, err
	}
	l := &library{}
	var err error
	if l.file, err = source().Open(); err != nil {
		return nil, fmt.Errorf("ucx: %w", err)
	}
	if _, err := l.file.Resolve(&l.functions); err != nil {
		return nil, fmt.Errorf("ucx: %w", err)
	}
	if v := versionOf(l.GetVersion); v[0] != abi.Major || v[1] < abi.Minor {
		return nil, fmt.Errorf("ucx: %v: the fabric needs UCX %d.%d, or a later one of UCX %d", l.file, abi.Major,
			abi.Minor, abi.Major)
	}
	l.failed = dl.Callback3(endpointFailed)
	return l, nil
}

func source() dl.Source {
	s := dl.Source{Name: "UCX", Candidates: abi.Candidates(), Version: func(l *dl.Library) (string, error) {
		f, ok := l.Symbol("ucp_get_version")
		if !ok {
			return "", fmt.Errorf("it has no version")
		}
		v := versionOf(dl.Func(f))
		return fmt.Sprintf("%d.%d.%d", v[0], v[1], v[2]), nil
	}}
	if cfg, _ := config.Load(nil); cfg.UCXLibrary != "" { // errors are other settings'
		s.Candidates = []string{cfg.UCXLibrary}
	}
	return s
}

// versionOf is major, minor and release.
func versionOf(ask dl.Func) [3]uint32 {
	v := heap([3]uint32{})
	ask.Call(word(&v[0]), word(&v[1]), word(&v[2]))
	runtime.KeepAlive(v)
	return *v
}

// defaultVariables sets variables of the C library's environment, which is not that of package os in a program without
// cgo, and isn't passed on to child processes by it.
func defaultVariables(values map[string]string) error {
	libc, err := dl.Source{Name: "the C library", Candidates: []string{"libc.so.6", "libc.so"}}.Open()
	if err != nil {
		return fmt.Errorf("ucx: %w", err)
	}
	setenv, ok := libc.Symbol("setenv")
	if !ok {
		return fmt.Errorf("ucx: %v has no setenv", libc)
	}
	for name, value := range values {
		n, v := cString(name), cString(value)
		dl.Func(setenv).Call(word(n), word(v), 0) // 0: one that is set stays
		runtime.KeepAlive(n)
		runtime.KeepAlive(v)
	}
	return nil
}

// word is the address of what lies on the heap, as an argument. The caller keeps it alive.
func word[T any](p *T) uintptr { return uintptr(unsafe.Pointer(p)) }

// heap returns v on the heap.
func heap[T any](v T) *T { return dl.Heap(&v) }

// cString returns s with a zero at its end, on the heap.
func cString(s string) *byte {
	b := append([]byte(s), 0)
	return dl.Heap(&b[0])
}

// check makes an error of a call's result.
func check(call string, result uintptr) error {
	if s := abi.StatusOf(result); s != abi.OK {
		return &CallError{Function: call, Status: s}
	}
	return nil
}

// CallError reports that a function of UCX has failed.
type CallError struct {
	Function string
	Status   abi.Status
	Under    string // the settings that limit the transports, as variables; empty if it doesn't depend on them
}

func (e *CallError) Error() string {
	text := e.Function + ": " + e.Status.Error()
	if e.Under != "" {
		text += ", with " + e.Under
	}
	return text
}
func (e *CallError) Unwrap() error { return e.Status }
