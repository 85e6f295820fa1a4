package kernel

import (
	"bytes"
	"testing"

	"github.com/chorus-comms/chorus/device/driver"
	"github.com/chorus-comms/chorus/device/opencl"
	"github.com/chorus-comms/chorus/internal/testutil"
	"github.com/chorus-comms/chorus/kernel/text"
)

// Every kernel takes offsets into buffers as it's compiled first, on a device of OpenCL without shared virtual memory.
func TestOffsets(t *testing.T) {
	testutil.SkipIfShort(t)
	openCL(t)
	libraries, err := opencl.Load()
	if err != nil {
		t.Skip("left out: ", err)
	}
	d, err := opencl.New(libraries, opencl.Options{Buffers: true})
	if err != nil {
		t.Fatal(err)
	}
	defer d.(driver.Closer).Close()
	images := 0
	compiled, seen := map[string]bool{}, map[text.Family]int{}
	for _, s := range specs() {
		if seen[s.Family]++; seen[s.Family]%50 != 1 {
			continue
		}
		forms := []text.Spec{s}
		if p, ok := onProcessor(s); ok {
			forms = append(forms, p)
		}
		for _, s := range forms {
			src, err := s.Source()
			if err != nil {
				t.Fatal(err)
			}
			source := src.For(text.OpenCL)
			if compiled[source] {
				continue
			}
			compiled[source] = true
			image, err := d.(driver.Compiler).ModuleCompile(0, []byte(source))
			if err != nil {
				t.Logf("%v: %v", s, err) // of a type that the device lacks
				continue
			}
			images++
			if !bytes.Contains(image, []byte(`"Offsets":true`)) {
				t.Errorf("%v has a pointer without an offset:\n%s", s, source)
			}
		}
	}
	t.Log(images, "images of", len(compiled), "kernels")
	if images <= len(compiled)/2 {
		t.Error("most kernels don't compile")
	}
}
