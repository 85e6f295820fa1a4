package nccltest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"

	"github.com/chorus-comms/chorus/comm/nccl/abi"
	gpu "github.com/chorus-comms/chorus/device/gpu/abi"
)

// noopSpecial are the functions of the no-op library that write something.
const noopSpecial = `
#include <stdlib.h>
#include <stdint.h>
static uintptr_t handle = 0x10000;
int cuDriverGetVersion(int *v) { *v = 12080; return 0; }
int cuDeviceGetCount(int *n) { *n = 1; return 0; }
int cuDevicePrimaryCtxRetain(uintptr_t *c, int d) { *c = 0xc0de0; return 0; }
int cuCtxGetCurrent(uintptr_t *c) { *c = 0xc0de0; return 0; } /* as on a thread of PyTorch's */
int cuStreamGetCtx(uintptr_t s, uintptr_t *c) { *c = 0xc0de0; return 0; }
int cuStreamCreateWithPriority(uintptr_t *s, unsigned flags, int priority) { *s = handle += 16; return 0; }
int cuEventCreate(uintptr_t *e, unsigned flags) { *e = handle += 16; return 0; }
int cuMemAlloc_v2(void **p, size_t n) { return !(*p = aligned_alloc(4096, (n + 4095) / 4096 * 4096)); }
int cuMemHostAlloc(void **p, size_t n, unsigned flags) { return cuMemAlloc_v2(p, n); }
int cuMemGetInfo_v2(size_t *available, size_t *total) { *available = *total = 1ul << 30; return 0; }
int cuPointerGetAttributes(unsigned n, int *attributes, void **values, uintptr_t p) {
	*(int *)values[0] = 2; /* device memory, of device 0 */
	*(int *)values[1] = 0;
	*(uintptr_t *)values[2] = p & ~4095ul;
	*(size_t *)values[3] = 1ul << 30;
	return 0;
}
int ncclGetVersion(int *v) { *v = 23203; return 0; }
const char *ncclGetErrorString(int r) { return "an error"; }
const char *ncclGetLastError(void *c) { return ""; }
int ncclCommInitRankConfig(uintptr_t *c, int n, ...) { *c = 0xacc1; return 0; }
int ncclCommGetAsyncError(void *c, int *r) { *r = 0; return 0; }
`

// BuildNoop builds a shared library with the functions of CUDA and of NCCL, all of which return success at once. The
// time that an operation takes over it is the overhead of the calling program alone.
//
// It needs the C compiler cc; without one the error is [exec.ErrNotFound]. The library's soname, such as
// "libcuda.so.1", is the name by which a process finds a library that it has already loaded. It may be empty.
func BuildNoop(path, soname string) error {
	cc, err := exec.LookPath("cc")
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "noop")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	source := filepath.Join(dir, "noop.c")
	if err := os.WriteFile(source, []byte(noopSource()), 0o600); err != nil {
		return err
	}
	args := []string{"-w", "-O2", "-shared", "-fPIC", "-o", path, source}
	if soname != "" {
		args = append(args, "-Wl,-soname,"+soname)
	}
	if out, err := exec.Command(cc, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", cc, err, out)
	}
	return nil
}

// noopSource is the source of the no-op library.
func noopSource() string {
	var b strings.Builder
	b.WriteString(noopSpecial)
	for _, table := range []reflect.Type{reflect.TypeFor[gpu.Table](), reflect.TypeFor[abi.Table]()} {
		for i := range table.NumField() {
			symbol, _, _ := strings.Cut(table.Field(i).Tag.Get("dl"), "|")
			written := strings.Contains(noopSpecial, " "+symbol+"(") || strings.Contains(noopSpecial, "*"+symbol+"(")
			if !written && !strings.HasPrefix(symbol, "hip") {
				fmt.Fprintf(&b, "int %s() { return 0; }\n", symbol)
			}
		}
	}
	return b.String()
}
