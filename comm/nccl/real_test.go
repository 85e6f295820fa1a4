//go:build linux

package nccl_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/chorus-comms/chorus/comm/nccl"
	"github.com/chorus-comms/chorus/comm/nccl/abi"
	"github.com/chorus-comms/chorus/internal/dl"
)

// realVar tells a process of TestRealLibraries which library is its own: one that crashes is to fail alone.
const realVar = "CHORUS_TEST_NCCL_FILE"

// The libraries that scripts/fetch-nccl.sh has fetched are what the table says of them. There is no GPU in this: what's
// called are the functions that need none, and those that say that there is none.
func TestRealLibraries(t *testing.T) {
	if file := os.Getenv(realVar); file != "" {
		realLibrary(t, file)
		return
	}
	cache := os.Getenv("CHORUS_TEST_NCCL")
	if cache == "" {
		home, err := os.UserCacheDir()
		if err != nil {
			t.Skip("left out: no cache: ", err)
		}
		cache = filepath.Join(home, "chorus-nccl")
	}
	files, _ := filepath.Glob(filepath.Join(cache, "*", "lib?ccl.so.?"))
	if len(files) == 0 {
		t.Skipf("left out: no libraries in %s; scripts/fetch-nccl.sh fetches them", cache)
	}
	for _, file := range files {
		t.Run(filepath.Base(filepath.Dir(file)), func(t *testing.T) {
			cmd := exec.Command(os.Args[0], "-test.run=^TestRealLibraries$", "-test.v")
			cmd.Env = append(os.Environ(), realVar+"="+file, "NCCL_SOCKET_IFNAME=lo")
			out, err := cmd.CombinedOutput()
			if t.Log(string(out)); err != nil {
				t.Error(err)
			}
		})
	}
}

func realLibrary(t *testing.T, file string) {
	family := "nccl"
	if strings.Contains(file, "librccl") {
		family = "rccl"
	}
	lib, err := nccl.Load(family, file)
	if err != nil && family == "rccl" { // what it needs in turn, and the C library, are those of its release of Debian
		t.Log("it can't be loaded here: ", err)
		inspected(t, file)
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Log(lib)
	caps := lib.Capabilities()
	has, lacks := caps.List()
	t.Log("has ", strings.Join(has, ", "))
	for _, c := range lacks {
		t.Log(caps.Need(c))
	}
	// The releases that errors name are those from which on the symbols are there; RCCL has some earlier.
	for _, c := range abi.Capabilities() {
		if since, err := abi.ParseVersion(c.Since); err == nil && caps.Has(c.Name) != (lib.Version() >= since) &&
			family == "nccl" {
			t.Errorf("%v: %s is there: %v, though it came with %v", lib, c.Name, caps.Has(c.Name), since)
		}
	}
	// The file says the same without being loaded.
	f := abi.Inspect(file)
	if f.Err != nil || !slices.Equal(f.Has, has) || !strings.HasPrefix(f.Version, lib.Version().String()) {
		t.Errorf("the file says %+v", f)
	}
	// An id goes by value, and comes from the library; errors have words.
	var one, other abi.UniqueID
	if a, b := lib.GetUniqueID(&one), lib.GetUniqueID(&other); a != abi.Success || b != abi.Success || one == other {
		t.Errorf("ids %v, %v: %v, %v", a, b, one, other)
	}
	if s := lib.GetErrorString(abi.InvalidArgument); !strings.HasPrefix(s, "invalid argument") {
		t.Errorf("an invalid argument is %q", s)
	}
	// Groups are empty, and nothing is what can be freed.
	for what, r := range map[string]abi.Result{"start": lib.GroupStart(), "end": lib.GroupEnd(),
		"destroy": lib.CommDestroy(0), "abort": lib.CommAbort(0)} {
		if r != abi.Success {
			t.Errorf("%s: %v", what, r)
		}
	}
	if r := lib.AllReduce(0, 0, 1, abi.Float32, abi.Sum, 0, 0); r == abi.Success {
		t.Error("an operation of no communicator succeeds")
	}
	if lib.PutSignal != nil {
		for what, r := range map[string]abi.Result{"put": lib.PutSignal(0, 4, abi.Uint8, 0, 0, 0, 0, 0, 0, 0, 0),
			"signal": lib.Signal(0, 0, 0, 0, 0, 0), "wait": lib.WaitSignal(1, &abi.SignalWait{Count: 1}, 0, 0),
			"window": lib.WindowRegister(0, 4096, 4096, new(abi.Window), abi.WindowSymmetric)} {
			if r == abi.Success {
				t.Errorf("%s of no communicator succeeds", what)
			}
		}
	}
	// Functions that make a communicator from another must refuse a null one; NCCL itself crashes at
	// shrink.
	refused := map[string]func() abi.Result{}
	if lib.Shrink != nil {
		refused["shrink"] = func() abi.Result { return lib.Shrink(0, new(int32), 1, new(abi.Comm), nil, abi.ShrinkDefault) }
	}
	if lib.Revoke != nil && lib.Revoke(0, abi.RevokeDefault) != abi.Success { // as of abort
		t.Error("nothing can't be revoked")
	}
	if lib.Grow != nil {
		refused["an id of a communicator"] = func() abi.Result { return lib.CommGetUniqueID(0, &one) }
		refused["grow"] = func() abi.Result { return lib.Grow(0, 2, nil, -1, new(abi.Comm), nil) }
	}
	if lib.Suspend != nil {
		refused["suspend"] = func() abi.Result { return lib.Suspend(0, abi.SuspendMemory) }
		refused["resume"] = func() abi.Result { return lib.Resume(0) }
	}
	for what, f := range refused {
		if r := f(); r == abi.Success {
			t.Errorf("%s of no communicator succeeds", what)
		}
	}
	if lib.MemAlloc != nil {
		p := new(uintptr)
		if r := lib.MemAlloc(p, 1<<20); r == abi.Success {
			t.Log("there is a GPU")
		}
	}
	if gpu, _ := filepath.Glob("/dev/nvidia[0-9]*"); len(gpu) > 0 {
		return // the communicator would be a real one
	}
	c, result := new(abi.Comm), abi.Success
	if lib.CommInitRankConfig != nil {
		packed, err := abi.Pack(lib.Version(), map[string]string{"blocking": "1"})
		if err != nil {
			t.Fatal(err)
		}
		result = lib.CommInitRankConfig(c, 1, one, 0, packed.Pointer())
		packed.Free()
	} else {
		result = lib.CommInitRank(c, 1, one, 0)
	}
	if result != abi.UnhandledCudaError || *c != 0 {
		t.Errorf("without a GPU a communicator begins with %v: %v", result, *c)
	}
	t.Log(lib.GetErrorString(result), ": ", lib.GetLastError(0))
}

// inspected says what a file of RCCL 2.13 has, which has some things earlier than NCCL, and lacks others.
func inspected(t *testing.T, file string) {
	f := abi.Inspect(file)
	t.Logf("%+v", f)
	if f.Err != nil || !strings.HasPrefix(f.Version, "2.13.4") ||
		!slices.Equal(f.Has, []string{"all-to-all", "gather", "last errors", "scatter"}) {
		t.Errorf("the file says %+v", f)
	}
}

// byValue is a library whose start says what it was given.
const byValue = `
#include <stdio.h>
typedef struct { char internal[128]; } ncclUniqueId;
static char last[400];
int ncclCommInitRankConfig(void **c, int n, ncclUniqueId id, int rank, void *config) {
	int sum = 0;
	for (int i = 0; i < 128; i++) sum += (i + 1) * (unsigned char)id.internal[i];
	snprintf(last, sizeof last, "%d of %d, id %d %d %d, config %d", rank, n, id.internal[0], id.internal[127], sum,
		*(int *)config);
	*c = (void *)42;
	return 5;
}
const char *ncclGetLastError(void *c) { return last; }
`

// An id is passed as C passes a struct of 128 bytes by value, between numbers.
func TestByValue(t *testing.T) {
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("left out: no C compiler")
	}
	source, file := filepath.Join(t.TempDir(), "id.c"), filepath.Join(t.TempDir(), "libid.so")
	if err := os.WriteFile(source, []byte(byValue), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(cc, "-shared", "-fPIC", "-o", file, source).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	l, err := dl.Source{Name: "id", Candidates: []string{file}}.Open()
	if err != nil {
		t.Fatal(err)
	}
	var f struct {
		Start abi.Start             `dl:"ncclCommInitRankConfig"`
		Last  func(abi.Comm) string `dl:"ncclGetLastError"`
	}
	if _, err := l.Resolve(&f); err != nil {
		t.Fatal(err)
	}
	var id abi.UniqueID
	b := unsafe.Slice((*byte)(unsafe.Pointer(&id)), 128)
	sum := 0
	for i := range b {
		b[i] = byte(i ^ 0x35&0x7f)
		sum += (i + 1) * int(b[i])
	}
	c, config := new(abi.Comm), new(int32)
	*config = 77
	if r := f.Start(c, 8, id, 3, unsafe.Pointer(config)); r != abi.InvalidUsage || *c != 42 {
		t.Errorf("%v, %v", r, *c)
	}
	if got, want := f.Last(*c), fmt.Sprintf("3 of 8, id %d %d %d, config 77", b[0], b[127], sum); got != want {
		t.Errorf("C got %q, want %q", got, want)
	}
}
