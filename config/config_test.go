package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

func from(env map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) { v, ok := env[name]; return v, ok }
}

func TestDefaults(t *testing.T) {
	c, err := Load(from(nil))
	if err != nil {
		t.Fatal(err)
	}
	got := *c
	got.vars = nil
	want := Config{
		Timeout: 600 * time.Second, Log: slog.LevelWarn, Backend: "native", Fabric: "auto", FabricFar: "auto",
		TCPConnections: 2, SHMStageBytes: 8 << 20, WaitPolicy: WaitAuto, CMA: CMAAuto, Kernels: KernelsAuto, Calibration: "off",
		DeviceAutoload: true, KernelCache: true, KernelProgress: true, AccInteDevices: 2, AccInteMemory: 4 << 30,
		AccIntePeers: true, DeviceInline: true, DeviceKernels: true, OpenCLSharedMemory: true,
		OpenCLCompilerTimeout: 2 * time.Minute, Record: 1024,
		AllocConf: DefaultAllocator(), CUDAAllocConf: DefaultAllocator(), StorePlain: PlainUser,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	for _, v := range c.Vars() {
		if v.Origin != Default || v.Value != v.Default || v.Err != nil || v.Doc == "" {
			t.Errorf("unset variable described as %+v", v)
		}
	}
}

// samples has a value other than the default for every variable, and values that must be refused.
var samples = map[string]struct {
	good string
	want any
	bad  []string
}{
	"TORCHCOMM_ABORT_ON_ERROR":  {"Yes", true, []string{"2", "maybe"}},
	"TORCHCOMM_TIMEOUT_SECONDS": {"1.5", 1500 * time.Millisecond, []string{"0", "-1", "NaN", "1e300", "10s", "inf"}},
	"CHORUS_LOG":                {"debug", slog.LevelDebug, []string{"loud", "-4"}},
	"CHORUS_HOST_ID":            {"rack7", "rack7", nil},
	"CHORUS_BACKEND":            {"MPI", "mpi", []string{"native,mpi"}},
	"CHORUS_FABRIC":             {"TCP", "tcp", []string{"tcp,shm", "tcp shm"}},
	"CHORUS_FABRIC_FAR":         {"TCP", "tcp", []string{"tcp,ucx", "tcp ucx"}},
	"CHORUS_INTERFACE":          {"eth1", "eth1", nil},
	"CHORUS_ADDR": {"fd00::7", netip.MustParseAddr("fd00::7"), []string{"localhost", "0.0.0.0",
		"10.0.0.1:80", "ff02::1"}},
	"CHORUS_ADVERTISE": {"192.0.2.7,fd00::7", "192.0.2.7,fd00::7", []string{"node7", "192.0.2.7:80",
		"0.0.0.0", "192.0.2.7,"}},
	"CHORUS_PORTS":           {"29600-29699", "29600-29699", []string{"0", "9-8", "70000", "a-b", "29600:29699"}},
	"CHORUS_TCP_CONNECTIONS": {"4", 4, []string{"0", "65", "two", "1.5"}},
	"CHORUS_SHM_STAGE_BYTES": {"1 MiB", 1 << 20, []string{"1", "-1", "1 parsec", "999999999999G", "64KiBB",
		"1e6"}},
	"CHORUS_WAIT_POLICY":             {"block", WaitBlock, []string{"sleep"}},
	"CHORUS_CMA":                     {"off", CMAOff, []string{"on", "1"}},
	"CHORUS_KERNELS":                 {"portable", KernelsPortable, []string{"sse2"}},
	"CHORUS_CALIBRATION":             {"./my.json", "./my.json", []string{"maybe", "my.json"}},
	"TORCH_DEVICE_BACKEND_AUTOLOAD":  {"0", false, []string{"2"}},
	"CHORUS_ACCINTE_DEVICES":         {"4", 4, []string{"0", "65", "two"}},
	"CHORUS_ACCINTE_MEMORY":          {"1GiB", 1 << 30, []string{"1K", "2T", "much"}},
	"CHORUS_ACCINTE_PEERS":           {"off", false, []string{"maybe"}},
	"CHORUS_DEVICE_INLINE":           {"no", false, []string{"maybe"}},
	"CHORUS_DEVICE_BLOCKING":         {"1", true, []string{"maybe"}},
	"CHORUS_DEVICE_KERNELS":          {"no", false, []string{"maybe"}},
	"CHORUS_BLAS_LIBRARY":            {"/opt/libclblast.so.1", "/opt/libclblast.so.1", nil},
	"DISABLE_HIPBLASLT":              {"0", true, nil},
	"CHORUS_FFT_LIBRARY":             {"/opt/libclFFT.so.2", "/opt/libclFFT.so.2", nil},
	"CHORUS_SOLVER_LIBRARY":          {"/opt/libcusolver.so.12", "/opt/libcusolver.so.12", nil},
	"CHORUS_SPARSE_LIBRARY":          {"/opt/libcusparse.so.12", "/opt/libcusparse.so.12", nil},
	"CUBLAS_WORKSPACE_CONFIG":        {":4096:8", ":4096:8", nil},
	"HIPBLAS_WORKSPACE_CONFIG":       {":16:8", ":16:8", nil},
	"CHORUS_NCCL_LIBRARY":            {"/opt/libnccl.so.2", "/opt/libnccl.so.2", nil},
	"CHORUS_MPI_LIBRARY":             {"/opt/libmpi.so.40", "/opt/libmpi.so.40", nil},
	"CHORUS_OPENCL_COMPILER":         {"self", "self", nil},
	"CHORUS_OPENCL_COMPILER_TIMEOUT": {"1.5", 1500 * time.Millisecond, []string{"0", "soon"}},
	"CHORUS_OPENCL_LIBRARY":          {"/opt/libpocl.so:/opt/libintelocl.so", "/opt/libpocl.so:/opt/libintelocl.so", nil},
	"CHORUS_OPENCL_SHARED_MEMORY":    {"false", false, []string{"no way"}},
	"CHORUS_UCX_LIBRARY":             {"/opt/libucp.so.0", "/opt/libucp.so.0", nil},
	"PYTORCH_ALLOC_CONF": {"expandable_segments:True", expandable(), []string{"expandable_segments:yes",
		"max_split_size_mb"}},
	"PYTORCH_CUDA_ALLOC_CONF":        {"expandable_segments:True", expandable(), []string{"unknown:1"}},
	"PYTORCH_NO_CUDA_MEMORY_CACHING": {"1", true, []string{"perhaps"}},
	"USE_PYTORCH_KERNEL_CACHE":       {"0", false, []string{"perhaps"}},
	"CHORUS_KERNEL_PROGRESS":         {"0", false, []string{"perhaps"}},
	"CHORUS_KERNEL_AHEAD":            {"1", true, []string{"perhaps"}},
	"PYTORCH_KERNEL_CACHE_PATH":      {"/tmp/kernels", "/tmp/kernels", nil},
	"CHORUS_RUN":                     {"job-1", "job-1", nil},
	"CHORUS_RECORD":                  {"64", 64, []string{"-1", "many", "2000000"}},
	"CHORUS_DUMP_DIR":                {"/tmp/dumps", "/tmp/dumps", nil},
	"CHORUS_SECRET":                  {"correct horse battery", Hidden("correct horse battery"), nil},
	"CHORUS_SECRET_FILE":             {"job.secret", "job.secret", nil},
	"CHORUS_TLS":                     {"on", true, []string{"1.3"}},
	"CHORUS_TLS_CERT":                {"rank.pem", "rank.pem", nil},
	"CHORUS_TLS_KEY":                 {"rank.key", "rank.key", nil},
	"CHORUS_TLS_CA":                  {"ca.pem", "ca.pem", nil},
	"CHORUS_INSECURE":                {"1", true, []string{"very"}},
	"CHORUS_STORE":                   {"etcd://a:1,b:2", "etcd://a:1,b:2", []string{"node0", ":1"}},
	"CHORUS_STORE_PLAIN":             {"any", PlainAny, []string{"all", "root"}},
}

func expandable() Allocator {
	a := DefaultAllocator()
	a.Expandable = true
	return a
}

// TestEveryFieldHasItsVariable sets one variable at a time and checks that exactly the field at its place changes.
func TestEveryFieldHasItsVariable(t *testing.T) {
	base, _ := Load(from(nil))
	fields := reflect.TypeFor[Config]()
	if exported := fields.NumField() - 1; exported != len(specs) || len(samples) != len(specs) {
		t.Fatalf("%d fields, %d variables, %d samples", exported, len(specs), len(samples))
	}
	for i, s := range specs {
		sample := samples[s.name]
		c, err := Load(from(map[string]string{s.name: sample.good}))
		if err != nil {
			t.Errorf("%s=%s: %v", s.name, sample.good, err)
		}
		for j := range specs {
			got, was := reflect.ValueOf(*c).Field(j).Interface(), reflect.ValueOf(*base).Field(j).Interface()
			if j == i && got != sample.want {
				t.Errorf("%s=%s set %s to %v, want %v", s.name, sample.good, fields.Field(j).Name, got, sample.want)
			}
			if j != i && got != was {
				t.Errorf("%s=%s changed %s to %v", s.name, sample.good, fields.Field(j).Name, got)
			}
		}
		shown := sample.good
		if s.name == secretVar {
			shown = "(set)"
		}
		if v := c.Vars()[i]; v.Name != s.name || v.Value != shown || v.Origin != Environment {
			t.Errorf("described as %+v", v)
		}
		for _, bad := range sample.bad {
			c, err := Load(from(map[string]string{s.name: bad}))
			var e *Error
			if !errors.As(err, &e) || e.Name != s.name || !strings.Contains(err.Error(), s.name) {
				t.Errorf("%s=%s: error %v does not name the variable", s.name, bad, err)
			}
			if got, was := reflect.ValueOf(*c).Field(i).Interface(), reflect.ValueOf(*base).Field(i).Interface(); got != was {
				t.Errorf("%s=%s left %v, want the default %v", s.name, bad, got, was)
			}
			if c.Vars()[i].Err == nil {
				t.Errorf("%s=%s: Vars does not show the error", s.name, bad)
			}
		}
	}
}

// TestTheSecretIsNotShown prints a configuration in every way.
func TestTheSecretIsNotShown(t *testing.T) {
	c, err := Load(from(map[string]string{"CHORUS_SECRET": "correct horse"}))
	if err != nil {
		t.Fatal(err)
	}
	asJSON, err := json.Marshal(struct {
		*Config
		Vars []Var
	}{c, c.Vars()})
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{fmt.Sprint(c), fmt.Sprintf("%+v", c), fmt.Sprintf("%#v", c), string(asJSON)} {
		if strings.Contains(text, "horse") || !strings.Contains(text, "(set)") {
			t.Error(text)
		}
	}
}

func TestEveryBadVariableIsNamed(t *testing.T) {
	_, err := Load(from(map[string]string{"CHORUS_FABRIC": "x,y", "CHORUS_CMA": "y"}))
	for _, want := range []string{"CHORUS_FABRIC", "CHORUS_CMA"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not name %s", err, want)
		}
	}
}

func TestEmptyIsUnset(t *testing.T) {
	env := map[string]string{}
	for _, s := range specs {
		env[s.name] = ""
	}
	c, err := Load(from(env))
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range c.Vars() {
		if v.Origin != Default {
			t.Errorf("%s: origin %s", v.Name, v.Origin)
		}
	}
}

func TestParseBytes(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "8": 8, "4096": 4096, "64k": 64 << 10, "8MiB": 8 << 20, "256 MB": 256 << 20, "1.5G": 3 << 29, "2t": 2 << 40,
		"12b":                 12,
		"9223372036854775807": math.MaxInt64,
	} {
		if got, err := ParseBytes(text); err != nil || got != want {
			t.Errorf("ParseBytes(%q) = %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "k", ".", "1..5k", "-1", "+1", "0x10", "1e3", "9223372036854775808", "8388608T",
		"1ib", "nan"} {
		if got, err := ParseBytes(text); err == nil {
			t.Errorf("ParseBytes(%q) = %d, want an error", text, got)
		}
	}
}

func FuzzParseBytes(f *testing.F) {
	for _, s := range []string{"", "8", "64KiB", "1.5g", "9223372036854775807t", "-1", "1 m"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if n, err := ParseBytes(s); n < 0 || err != nil && n != 0 {
			t.Errorf("ParseBytes(%q) = %d, %v", s, n, err)
		}
	})
}

// TestStorePassword shows the address of a store without the password in it.
func TestStorePassword(t *testing.T) {
	for address, shown := range map[string]string{
		"etcd://u:p@ss@a:1,b:2?prefix=/x": "etcd://u:(set)@a:1,b:2?prefix=/x", "etcd://u@a:1": "etcd://u@a:1",
		"tcp://a:1": "tcp://a:1", "file:///a@b:c": "file:///a@b:c", "hash:": "hash:",
	} {
		c, err := Load(from(map[string]string{storeVar: address}))
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range c.Vars() {
			if v.Name == storeVar && v.Value != shown {
				t.Errorf("%s is shown as %s", address, v.Value)
			}
		}
		if c.Store != address {
			t.Errorf("%s is %s", address, c.Store)
		}
	}
}

// TestFabricOptions passes on what variables set for fabrics, and nothing else.
func TestFabricOptions(t *testing.T) {
	c, err := Load(from(map[string]string{"CHORUS_ADDR": "10.0.0.7", "CHORUS_WAIT_POLICY": "BLOCK", "CHORUS_LOG": "debug",
		"CHORUS_PORTS": ""}))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := c.FabricOptions(), map[string]string{"addr": "10.0.0.7", "wait": "BLOCK"}; !reflect.DeepEqual(got,
		want) {
		t.Errorf("options %v, want %v", got, want)
	}
	for name := range fabricOptions {
		if _, ok := samples[name]; !ok {
			t.Errorf("there is no variable %s", name)
		}
	}
}

// TestUnknown looks for variables that nothing reads.
func TestUnknown(t *testing.T) {
	names, nearest := Unknown([]string{"CHORUS_FABRIK=tcp", "PATH=/bin", "CHORUS_FABRIC=tcp", "CHORUS_DUMPDIR=x", "CHORUS_",
		"CHORUS_STORE_ADDR=h:1", "CHORUS_TEST_SHORT=1", "CHORUS_FABRIK=again", "CHORUS_SOMETHING_ELSE=1"})
	if want := []string{"CHORUS_FABRIK", "CHORUS_DUMPDIR", "CHORUS_", "CHORUS_SOMETHING_ELSE"}; !slices.Equal(names, want) {
		t.Errorf("%q, want %q", names, want)
	}
	if want := []string{"CHORUS_FABRIC", "CHORUS_DUMP_DIR", "", ""}; !slices.Equal(nearest, want) {
		t.Errorf("%q, want %q", nearest, want)
	}
}
