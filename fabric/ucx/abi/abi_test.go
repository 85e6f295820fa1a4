package abi

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// facts are what the headers must say: an expression in C, and its value here.
func facts() map[string]uint64 {
	var p Params
	var w WorkerParams
	var e EndpointParams
	var r RequestParam
	all := map[string]uint64{
		"UCP_PARAM_FIELD_FEATURES": ParamFeatures, "UCP_PARAM_FIELD_TAG_SENDER_MASK": ParamTagSenderMask,
		"UCP_PARAM_FIELD_ESTIMATED_NUM_EPS": ParamEstimatedNumEps,
		"UCP_FEATURE_TAG":                   FeatureTag, "UCP_FEATURE_WAKEUP": FeatureWakeup,
		"UCP_WORKER_PARAM_FIELD_THREAD_MODE":    WorkerParamThreadMode,
		"UCP_WORKER_PARAM_FIELD_FLAGS":          WorkerParamFlags,
		"UCP_WORKER_FLAG_IGNORE_REQUEST_LEAK":   WorkerFlagIgnoreRequestLeak,
		"UCS_THREAD_MODE_SERIALIZED":            ThreadModeSerialized,
		"UCP_EP_PARAM_FIELD_REMOTE_ADDRESS":     EndpointParamRemoteAddress,
		"UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE":  EndpointParamErrHandlingMode,
		"UCP_EP_PARAM_FIELD_ERR_HANDLER":        EndpointParamErrHandler,
		"UCP_ERR_HANDLING_MODE_NONE":            ErrHandlingNone,
		"UCP_ERR_HANDLING_MODE_PEER":            ErrHandlingPeer,
		"UCP_OP_ATTR_FIELD_FLAGS":               OpFlags,
		"UCP_OP_ATTR_FLAG_NO_IMM_CMPL":          OpNoImm,
		"UCP_EP_CLOSE_FLAG_FORCE":               CloseForce,
		"sizeof(ucs_status_t)":                  uint64(reflect.TypeFor[Status]().Size()),
		"sizeof(ucp_tag_recv_info_t)":           uint64(reflect.TypeFor[TagRecvInfo]().Size()),
		"offsetof(ucp_tag_recv_info_t, length)": uint64(reflect.TypeFor[TagRecvInfo]().Field(1).Offset),
	}
	for s, name := range names {
		all[fmt.Sprintf("-(%s)", name)] = uint64(-s)
	}
	all["-(UCS_ERR_LAST)"] = uint64(-lastStatus)
	offsets := func(structure string, v any, fields ...string) {
		t := reflect.TypeOf(v)
		for i, f := range fields {
			if f != "" {
				all[fmt.Sprintf("offsetof(%s, %s)", structure, f)] = uint64(t.Field(i).Offset)
			}
		}
	}
	offsets("ucp_params_t", p, "field_mask", "features", "request_size", "request_init", "request_cleanup",
		"tag_sender_mask", "mt_workers_shared", "estimated_num_eps", "estimated_num_ppn", "name")
	offsets("ucp_worker_params_t", w, "field_mask", "thread_mode", "cpu_mask", "events", "user_data", "event_fd",
		"flags", "name", "am_alignment", "client_id")
	offsets("ucp_ep_params_t", e, "field_mask", "address", "err_mode", "err_handler.cb", "err_handler.arg", "user_data",
		"flags", "sockaddr", "conn_request", "name", "local_sockaddr")
	offsets("ucp_request_param_t", r, "op_attr_mask", "flags", "request", "cb", "datatype", "user_data",
		"reply_buffer", "memory_type", "recv_info", "memh")
	return all
}

// The structs and constants are those of UCX's headers. UCX_INCLUDE is where they are, beside the compiler's folders.
func TestHeaders(t *testing.T) {
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("left out: there is no C compiler")
	}
	dir := t.TempDir()
	all := facts()
	var text strings.Builder
	text.WriteString("#include <stddef.h>\n#include <stdio.h>\n#include <ucp/api/ucp.h>\nint main(void) {\n")
	for expression := range all {
		fmt.Fprintf(&text, "printf(\"%%s=%%llu\\n\", \"%s\", (unsigned long long)(%s));\n", expression, expression)
	}
	text.WriteString("return 0;\n}\n")
	source, program := filepath.Join(dir, "facts.c"), filepath.Join(dir, "facts")
	if err := os.WriteFile(source, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"-o", program, source}
	if include := os.Getenv("UCX_INCLUDE"); include != "" {
		args = append(args, "-I"+include)
	}
	if out, err := exec.Command(cc, args...).CombinedOutput(); err != nil {
		if strings.Contains(string(out), "ucp/api/ucp.h") {
			t.Skip("left out: UCX's headers aren't installed (libucx-dev)")
		}
		t.Fatalf("%v\n%s", err, out)
	}
	out, err := exec.Command(program).Output()
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for line := range strings.Lines(string(out)) {
		at := strings.LastIndexByte(line, '=')
		expression, value := line[:at], strings.TrimSpace(line[at+1:])
		seen++
		if want := fmt.Sprint(all[expression]); value != want {
			t.Errorf("%s is %s in the headers, and %s here", expression, value, want)
		}
	}
	if seen != len(all) {
		t.Errorf("%d of %d facts were compared", seen, len(all))
	}
}

func TestOf(t *testing.T) {
	for result, want := range map[uintptr]Status{0: OK, ^uintptr(0) - 15 + 1: Busy, ^uintptr(0) - 99: lastStatus,
		0x7f0000001000: InProgress} {
		request, s := Of(result)
		if s != want || (request != 0) != (want == InProgress) {
			t.Errorf("%#x is request %#x and %v, want %v", result, request, s, want)
		}
	}
	// GCC may return -18 as 238.
	for register, want := range map[uintptr]Status{0: OK, 1: InProgress, 238: -18, ^uintptr(0) - 24: ConnectionReset,
		0x5500000000b0: EndpointTimeout} {
		if s := StatusOf(register); s != want {
			t.Errorf("%#x is %v, want %v", register, s, want)
		}
	}
	if s := Status(-99).Error(); s != "UCX status -99" {
		t.Error(s)
	}
}

// The libraries that are found tell their version and their transports.
func TestFind(t *testing.T) {
	all := Find("/no/such/libucp.so.0")
	if len(all) == 0 {
		t.Skip("left out: UCX isn't installed")
	}
	for _, f := range all {
		if f.Err != nil || f.Version == "" {
			t.Errorf("%+v", f)
		}
	}
	self := filepath.Join(t.TempDir(), "libucp.so.0")
	if err := os.WriteFile(self, []byte("no library"), 0o600); err != nil {
		t.Fatal(err)
	}
	if f := Find(self); f[0].Path != self || f[0].Err == nil {
		t.Errorf("a text is a library: %+v", f[0])
	}
}

// TestSeems describes devices as the kernel does.
func TestSeems(t *testing.T) {
	library := filepath.Join(t.TempDir(), "libucp.so.0")
	if err := os.WriteFile(library, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		ports   map[string]string // state by device and port
		library string
		want    string // in the error; "": there's none
		devices string
	}{
		{nil, library, "no RDMA device", "[]"},
		{map[string]string{"mlx5_0/ports/1": "1: DOWN", "mlx5_1/ports/1": "2: INIT"}, library, "no port",
			"[{mlx5_0 false} {mlx5_1 false}]"},
		{map[string]string{"mlx5_0/ports/1": "1: DOWN", "mlx5_0/ports/2": "4: ACTIVE"}, library, "", "[{mlx5_0 true}]"},
		{map[string]string{"mlx5_0/ports/1": "4: ACTIVE"}, "/no/such/libucp.so.0", "isn't installed", "[{mlx5_0 true}]"},
	} {
		sysfs := t.TempDir()
		for port, state := range x.ports {
			dir := filepath.Join(sysfs, port)
			if err := os.MkdirAll(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "state"), []byte(state+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		err := Seems(sysfs, x.library)
		if (err == nil) != (x.want == "") || err != nil && !strings.Contains(err.Error(), x.want) {
			t.Errorf("ports %v, library %s: %v", x.ports, x.library, err)
		}
		if got := fmt.Sprint(RDMADevices(sysfs)); got != x.devices {
			t.Errorf("ports %v: devices %s, want %s", x.ports, got, x.devices)
		}
	}
}
