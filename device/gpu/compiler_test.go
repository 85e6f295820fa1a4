package gpu

import (
	"bytes"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chorus-comms/chorus/device/devicetest"
	"github.com/chorus-comms/chorus/device/gpu/abi"
	"github.com/chorus-comms/chorus/internal/testutil"
)

// realCompiler is NVRTC, which needs no GPU, of this machine or the tests' Python packages. Its driver loads all.
func realCompiler(t *testing.T) *compiler {
	f := abi.FamilyNamed("cuda")
	c := &compiler{family: f, places: f.CompilerCandidates(13), driver: 99000}
	for _, w := range f.CompilerWheels {
		c.places = append(c.places, filepath.Join(testutil.ModuleRoot(t), ".venv/lib/python3*/site-packages", w))
	}
	by, err := c.choose(90)
	if err != nil {
		t.Skip("left out: ", err)
	}
	t.Log(by.name)
	return c
}

// NVRTC compiles the suite's module, to PTX and to a device's program.
func TestRealCompiler(t *testing.T) {
	c := realCompiler(t)
	names := []string{"add", "accumulate", "echo", "blocks"}
	by, err := c.choose(80)
	if err != nil || by.target != "sm_80" {
		t.Fatalf("target of 8.0: %s, %v", by.target, err)
	}
	ptx, err := c.compile(devicetest.Source, choice{by.tool, "compute_80"})
	if err != nil {
		t.Fatal(err)
	}
	if sourceOf(ptx) || !isPTX(ptx) {
		t.Errorf("PTX is taken for a source: %.200s", ptx)
	}
	for _, n := range names {
		if !bytes.Contains(ptx, []byte(".entry "+n+"(")) {
			t.Errorf("the PTX has no function %s", n)
		}
	}
	if !bytes.Contains(ptx, []byte(".target sm_80")) {
		t.Errorf("the PTX is for another architecture: %.400s", ptx)
	}
	if later, err := c.choose(9999); err != nil || !strings.HasPrefix(later.target, "compute_1") {
		t.Errorf("target of a device that NVRTC doesn't know: %s, %v", later.target, err)
	}
	if _, err := c.choose(10); err == nil || !strings.Contains(err.Error(), by.name) {
		t.Errorf("target of 1.0: %v", err)
	}
	image, err := c.compile(devicetest.Source, by)
	if err != nil {
		t.Fatal(err)
	}
	if sourceOf(image) || !whole(image) || whole(image[:len(image)-1]) {
		t.Error("a program isn't seen as one")
	}
	file, err := testutil.ELF(image)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		if file.Section(".text."+n) == nil {
			t.Errorf("the program has no function %s", n)
		}
	}
	_, err = c.compile([]byte("extern \"C\" __global__ void f(int *p) { p[0] = nothing; }"), by)
	var e *CompileError
	if !errors.As(err, &e) || e.Outcome != abi.CompilationError || !strings.Contains(e.Log, "nothing") ||
		!strings.Contains(err.Error(), "module.cu(1)") {
		t.Errorf("a bad source: %v", err)
	}
}
