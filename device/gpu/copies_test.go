//go:build linux && (amd64 || arm64)

package gpu_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"github.com/chorus-comms/chorus/device/driver"
	"github.com/chorus-comms/chorus/device/gpu"
	"github.com/chorus-comms/chorus/device/gpu/abi"
	"github.com/chorus-comms/chorus/device/gpu/gputest"
	"github.com/chorus-comms/chorus/internal/dl"
)

// PyTorch's wheel brings HIP under a versioned name, and the dynamic linker may find another copy under the bare one.
// Streams of the copy that the process has loaded are adopted: the other one doesn't know them.
func TestTwoCopiesOfHIP(t *testing.T) {
	const variable = "CHORUS_TEST_HIP"
	if packaged := os.Getenv(variable); packaged != "" {
		adoptLoaded(t, packaged)
		return
	}
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("left out: no C compiler (cc)")
	}
	dir := t.TempDir()
	installed, packaged := filepath.Join(dir, "rocm"), filepath.Join(dir, "torch")
	for file, soname := range map[string]string{
		filepath.Join(installed, "libamdhip64.so"): "libamdhip64.so", filepath.Join(packaged, "inside.so"): "libamdhip64.so.7",
	} {
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := gputest.CompileHIP(cc, file, soname); err != nil {
			t.Fatal(err)
		}
	}
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	child.Env = append(os.Environ(), "LD_LIBRARY_PATH="+installed, variable+"="+filepath.Join(packaged, "inside.so"))
	out, err := child.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS") {
		t.Fatalf("%v\n%s", err, out)
	}
}

// adoptLoaded has a process that has loaded a copy of HIP, and made a stream by it, open the driver.
func adoptLoaded(t *testing.T, path string) {
	theirs, err := dl.Source{Name: "HIP", Candidates: []string{path}}.Open()
	if err != nil {
		t.Fatal(err)
	}
	create, _ := theirs.Symbol("hipStreamCreateWithPriority")
	s := new(abi.Stream)
	if r := dl.Func(create).Call(uintptr(unsafe.Pointer(s)), abi.StreamNonBlocking, 0); r != 0 {
		t.Fatal(r)
	}
	lib, err := gpu.Load("hip")
	if err != nil {
		t.Fatal(err)
	}
	d, err := gpu.New(lib)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.StreamAdopt(0, driver.StreamHandle(*s)); err != nil {
		t.Errorf("%v: %v", lib, err)
	}
	other, err := dl.Source{Name: "HIP", Candidates: []string{"libamdhip64.so"}}.Open()
	if err != nil {
		t.Fatal("the linker finds no second copy: ", err)
	}
	query, _ := other.Symbol("hipStreamQuery")
	if r := dl.Func(query).Call(uintptr(*s)); r != 709 {
		t.Fatalf("another copy says %d of the stream", r)
	}
}
