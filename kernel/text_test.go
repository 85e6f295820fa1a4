package kernel

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/internal/testutil"
	"github.com/chorus-comms/chorus/kernel/gemm"
	"github.com/chorus-comms/chorus/kernel/loader"
	"github.com/chorus-comms/chorus/kernel/text"
)

// Clang takes kernels of all families as OpenCL C, without a device, in the forms of GPUs and in those of processors.
func TestSyntax(t *testing.T) {
	clang, err := exec.LookPath("clang")
	if err != nil {
		t.Skip("left out: ", err)
	}
	families := map[text.Family][]text.Spec{}
	for _, s := range specs() {
		families[s.Family] = append(families[s.Family], s)
		if p, ok := onProcessor(s); ok {
			families[s.Family] = append(families[s.Family], p)
		}
	}
	for f, all := range families {
		step := 1
		if os.Getenv("CHORUS_TEST_LONG") == "" {
			step += len(all) / testutil.Pick(3, 12)
		}
		for k := 0; k < len(all); k += step {
			t.Run(fmt.Sprintf("%v/%d", f, k), func(t *testing.T) {
				t.Parallel()
				src, err := all[k].Source()
				if err != nil {
					t.Fatal(err)
				}
				text := src.For(text.OpenCL)
				c := exec.Command(clang, "-x", "cl", "-cl-std=CL1.2", "-fsyntax-only", "-Wno-everything", "-Werror=macro-redefined",
					"-D__OPENCL_VERSION__=120",
					"-Xclang", "-fdeclare-opencl-builtins", "-Xclang", "-finclude-default-header", "-")
				c.Stdin = strings.NewReader(text)
				if log, err := c.CombinedOutput(); err != nil {
					t.Error(&loader.CompileError{Spec: all[k], Source: text, Log: string(log)})
				}
			})
		}
	}
}

// onProcessor is a kernel as processors run it; false for one that they run in the same form.
func onProcessor(s text.Spec) (text.Spec, bool) {
	switch s.Family {
	case MatmulFamily:
		if s.Form&gemm.Scaled != 0 || s.Extra[2] != 0 {
			return s, false
		}
		s, _ = gemm.Packed(s, device.Dim{X: 1, Y: 1, Z: 1}, 4, 8)
		return s, true
	case ScanFamily:
		s.Form, s.Block = scanRows, 1
		return s, true
	case ReduceFamily:
		if s.Form == reduceThread && s.Dims > 0 {
			s.Form = reduceColumns
		}
		s.Block, s.Vector = loader.Lanes, true
		return s, s.Form != reduceThread
	case RowFamily:
		s.Block, s.Vector = loader.Lanes, true
		if s.Form == reduceBlock {
			s.Extra[3] = mostRows
		}
		return s, s.Form != reduceThread
	case ForeachFamily:
		s.Block, s.Vector = loader.Lanes, true
		return s, s.Form == foreachParts
	case ElementwiseFamily, PoolFamily, ResampleFamily, Im2colFamily:
		s.Block, s.Vector = loader.Lanes, true
		return s, true
	}
	return s, false
}
