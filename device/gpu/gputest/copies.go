package gputest

import (
	"fmt"
	"os"
	"os/exec"
	"reflect"
	"slices"
	"strings"

	"github.com/chorus-comms/chorus/device/gpu/abi"
)

// copied are the functions of a copy that do more than succeed. A stream is a place in the copy's own registry, so that
// another copy of the library doesn't know it.
const copied = `
static char registry[256];
static int made;

static int known(void *s) { return (char *)s >= registry && (char *)s < registry + made ? 0 : 709; }

int hipRuntimeGetVersion(int *v) { *v = 60443484; return 0; }
int hipGetDeviceCount(int *n) { *n = 1; return 0; }
int hipDeviceGet(int *dev, int i) { *dev = i; return 0; }
int hipGetDevice(int *dev) { *dev = 0; return 0; }
const char *hipGetErrorName(int r) { return r == 709 ? "hipErrorContextIsDestroyed" : "hipErrorUnknown"; }
const char *hipGetErrorString(int r) { return r == 709 ? "context is destroyed" : "unknown"; }
int hipStreamCreateWithPriority(void **s, unsigned flags, int priority) { *s = &registry[made++]; return 0; }
int hipStreamDestroy(void *s) { return known(s); }
int hipStreamQuery(void *s) { return known(s); }
int hipStreamGetDevice(void *s, int *dev) { *dev = 0; return known(s); }
`

// CompileHIP makes a file that the dynamic linker takes for HIP's library, called soname, with a C compiler. It has one
// device and a registry of streams: a process that loads two such files has two, as with two copies of HIP. There is
// nothing else in it: other functions succeed and do nothing.
func CompileHIP(cc, path, soname string) error {
	var source strings.Builder
	source.WriteString(copied)
	abi.Symbols(func(field reflect.StructField, symbols []string) {
		at := slices.IndexFunc(symbols, func(s string) bool { return strings.HasPrefix(s, "hip") })
		// Without signal memory no stream has to wait for a word.
		if at < 0 || field.Tag.Get("cap") == "signal memory" || strings.Contains(copied, symbols[at]+"(") {
			return
		}
		fmt.Fprintf(&source, "int %s(void) { return 0; }\n", symbols[at])
	})
	file := path + ".c"
	if err := os.WriteFile(file, []byte(source.String()), 0o600); err != nil {
		return err
	}
	out, err := exec.Command(cc, "-shared", "-fPIC", "-Wl,-soname,"+soname, "-o", path, file).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", cc, err, out)
	}
	return nil
}
