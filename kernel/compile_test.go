package kernel

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/device/gpu/abi"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/internal/dl"
	"github.com/chorus-comms/chorus/internal/testutil"
	"github.com/chorus-comms/chorus/kernel/gemm"
	"github.com/chorus-comms/chorus/kernel/loader"
	"github.com/chorus-comms/chorus/kernel/ops"
	"github.com/chorus-comms/chorus/kernel/text"
)

// gpuCompiler is NVRTC or hiprtc, which need no GPU, of this machine or the tests' Python packages.
type gpuCompiler struct {
	abi.Compiler
	target text.Target
}

func openCompiler(t *testing.T, target text.Target) *gpuCompiler {
	f := abi.FamilyNamed(target.String())
	source := dl.Source{Name: f.Compiler, Candidates: f.CompilerCandidates(13)}
	for _, w := range f.CompilerWheels {
		source.Candidates = append(source.Candidates,
			filepath.Join(testutil.ModuleRoot(t), ".venv/lib/python3*/site-packages", w))
	}
	lib, err := source.Open()
	if err != nil {
		t.Skip("left out: ", err)
	}
	own := filepath.Join(filepath.Dir(lib.Path()), "lib"+strings.ToLower(f.Compiler)+"-builtins.so*")
	_, _ = dl.Source{Name: own, Candidates: []string{own}}.Open()
	c := &gpuCompiler{target: target}
	if _, err := lib.Resolve(&c.Compiler); err != nil {
		t.Fatal(err)
	}
	return c
}

// compile compiles a source for an architecture, and returns what a GPU loads.
func (c *gpuCompiler) compile(src text.Source, arch string) ([]byte, error) {
	p, source, name := new(abi.Program), append([]byte(src.For(c.target)), 0), []byte("kernel.cu\x00")
	if o := c.Create(p, &source[0], &name[0], 0, nil, nil); o != abi.Compiled {
		return nil, fmt.Errorf("%v", o)
	}
	defer c.Destroy(p)
	option := append([]byte("--gpu-architecture="+arch), 0)
	list := []*byte{&option[0]}
	get := func(size abi.Sizing, give abi.Giving) []byte {
		n := new(uint64)
		size(*p, n)
		b := make([]byte, *n+1)
		give(*p, &b[0])
		return b[:*n]
	}
	if o := c.Compile(*p, 1, &list[0]); o != abi.Compiled {
		log := get(c.LogSize, c.Log)
		return nil, &loader.CompileError{Source: src.For(c.target), Log: strings.TrimRight(string(log), "\x00\n")}
	}
	if c.target == text.CUDA && !strings.HasPrefix(arch, "compute_") { // of which PTX is made
		return get(c.CUBINSize, c.CUBIN), nil
	}
	return get(c.CodeSize, c.Code), nil
}

// specs are kernels of all families: for each operation one for each kind of type, and some for the other types.
func specs() []text.Spec {
	var all []text.Spec
	for _, o := range ops.All() {
		for _, dt := range types {
			compute, result, err := o.Types(dt)
			if err != nil {
				continue
			}
			s := text.Spec{Family: ElementwiseFamily, Op: o.Name, Compute: compute, Block: threads, Outs: uint8(o.Results()),
				Ins: uint8(o.Ins), Form: uint8(o.Numbers), Dims: uint8(dt % 4), Wide: dt%5 == 0,
				Extra: [4]int32{int32(o.Integers)}}
			if s.Dims > 0 && dt%2 == 0 {
				s.Extra[1] = 1 + 2 // the first operand's innermost elements lie one after the other
				if s.Dims > 1 && s.Ins > 0 && o.Integers == 0 {
					s.Extra[2] = 1 << s.Outs // and the first input's in the second dimension
				}
			}
			for k := range o.Results() + o.Ins {
				s.Types[k] = dt
				if k < o.Results() {
					s.Types[k] = result
				}
			}
			if most := max(dt.Size(), result.Size()); s.Dims == 0 && o.Integers == 0 && most < packBytes && len(all)%2 == 0 {
				s.Extra[3] = int32(packBytes / most)
			}
			all = append(all, s)
		}
	}
	for k, e := range userExamples {
		for i, dt := range []dtype.DType{dtype.Float32, dtype.BFloat16, dtype.Float64, dtype.Int64, dtype.Bool} {
			if (k+i)%2 == 0 {
				all = append(all, text.Spec{Family: ElementwiseFamily, Op: e.text, Compute: text.Opmath(dt), Block: threads,
					Outs: 1, Ins: 1,
					Form: 1, Dims: uint8(k % 3), Types: [text.MaxOperands]dtype.DType{dt, dt}})
			}
		}
	}
	for _, r := range Reductions() {
		for _, dt := range types {
			if !r.Defined(text.Opmath(dt)) {
				continue
			}
			for form := range uint8(reduceGroup + 1) {
				if form == reduceColumns && dt%3 == 0 {
					continue
				}
				s := text.Spec{Family: ReduceFamily, Op: r.Name, Compute: text.Opmath(dt), Block: threads,
					Outs: uint8(r.Results()), Ins: 1,
					Form: form, Dims: uint8(dt % 3), Extra: [4]int32{int32(dt % 2), int32(dt % 2)}, Wide: dt%5 == 0}
				if form == reduceColumns {
					s.Extra[2], s.Extra[3] = int32(dt%4/2), 1<<(dt%6)
				} else if form == reduceGroup {
					s.Extra[3] = [...]int32{threadsOfFew, threadsOfGroup}[dt%2]
				}
				for k, o := range r.done {
					s.Types[k] = dt
					if o.kind == index {
						s.Types[k] = dtype.Int64
					}
				}
				s.Types[s.Outs] = dt
				all = append(all, s)
			}
		}
	}
	for k, op := range Scans() {
		for _, dt := range types {
			if compute := text.Opmath(dt); scans[op].Defined(compute) {
				s := text.Spec{Family: ScanFamily, Op: op, Compute: compute, Block: threads,
					Outs: uint8(scans[op].Results()), Ins: 1, Form: uint8((k + int(dt)) % int(scanRows)), Dims: uint8(dt % 3),
					Wide: dt%5 == 0}
				s.Types = [text.MaxOperands]dtype.DType{dt, dtype.Int64}
				s.Types[s.Outs] = dt
				all = append(all, s)
			}
		}
	}
	for _, op := range []string{"take", "put", "add", "mul", "amax", "amin"} {
		for _, dt := range types {
			s := text.Spec{Family: IndexFamily, Op: op, Compute: text.Opmath(dt), Block: threads, Outs: 1, Ins: 2 + uint8(dt%3),
				Values: uint16(dt % 2), Dims: uint8(dt % 4), Wide: dt%5 == 0}
			if op == "take" {
				s.Values = 0
			}
			s.Types = [text.MaxOperands]dtype.DType{dt, dt, dtype.Int64, dtype.Int32, dtype.Int64}
			known := op == "take" || op == "put" || indexExpression(op, s.Compute) != ""
			if known && (dt != dtype.Complex128 || op != "mul") {
				all = append(all, s)
			}
		}
	}
	for _, op := range slices.Sorted(maps.Keys(rowOps)) {
		for _, dt := range types {
			o, form := rowOps[op], [...]uint8{reduceThread, reduceBlock, reduceGroup}[dt%3]
			if !dt.IsFloating() {
				continue
			}
			s := text.Spec{Family: RowFamily, Op: op, Compute: text.Opmath(dt), Block: threads, Outs: uint8(1 + len(o.rowOut)),
				Ins: uint8(o.ins + o.rowIns + o.weights), Dims: uint8(dt % 3), Wide: dt%5 == 0, Form: form}
			if form == reduceGroup {
				s.Extra[3] = threadsOfGroup
			}
			for k := range s.Outs + s.Ins {
				s.Types[k] = dt
			}
			all = append(all, s)
		}
	}
	for k, dt := range types {
		if dt == dtype.Bool {
			continue
		}
		s := text.Spec{Family: MatmulFamily, Compute: text.Opmath(dt), Block: threads, Outs: 1, Ins: 3, Dims: uint8(k % 3),
			Wide: k%5 == 0,
			Form: uint8(k % 2), Types: [text.MaxOperands]dtype.DType{dt, dt, dt, dt}}
		if dt.IsFloating() {
			s.Op = "gelu"
		}
		all = append(all, s)
		for _, side := range gemm.Sides[1:] {
			if gemm.Fit(side, s) {
				tuned, _ := gemm.Tiled(s, device.Dim{}, side)
				all = append(all, tuned)
			}
		}
	}
	for k, dt := range types {
		s := text.Spec{Family: ConvolutionFamily, Compute: text.Opmath(dt), Block: threads, Outs: 1, Ins: 3, Wide: k%5 == 0}
		for form := range uint8(3) {
			s.Form, s.Dims = form, (uint8(k)+form)%4
			s.Extra[0] = int32((k*11 + int(form)*21) % 64)
			s.Types = [text.MaxOperands]dtype.DType{dt, dt, dt, dt}
			if dt != dtype.Bool {
				all = append(all, s)
			}
		}
		for j, op := range []string{"max", "max_backward"} {
			s := text.Spec{Family: PoolFamily, Op: op, Compute: text.Opmath(dt), Block: threads, Outs: uint8(2 - j),
				Ins:  uint8(1 + j),
				Dims: uint8(1 + (k+j)%3), Form: uint8(k % 4), Wide: k%5 == 0, Extra: [4]int32{int32(k % 2)}}
			s.Types = [text.MaxOperands]dtype.DType{dt, dtype.Int64, dt}
			if j == 1 {
				s.Types = [text.MaxOperands]dtype.DType{dt, dt, dtype.Int64}
			}
			if dt != dtype.Bool && !dt.IsComplex() {
				all = append(all, s)
			}
		}
	}
	for k, op := range []string{"sample", "input", "grid", "scatter"} {
		for j, dt := range []dtype.DType{dtype.Float32, dtype.Float64, dtype.BFloat16} {
			if op == "scatter" && dt == dtype.Float64 {
				dt = dtype.Float16
			}
			s := text.Spec{Family: GridFamily, Op: op, Compute: text.Opmath(dt), Block: threads, Outs: 1, Ins: uint8(2 + k%3/2),
				Dims: uint8(2 + (k+j)%2), Wide: j == 1, Extra: [4]int32{int32(5*k + 3*j)},
				Types: [text.MaxOperands]dtype.DType{dt, dt, dt, dt}}
			all = append(all, s)
		}
	}
	for k, op := range slices.Sorted(maps.Keys(resamplings)) {
		for j, dt := range types {
			s := text.Spec{Family: ResampleFamily, Op: op, Compute: text.Opmath(dt), Block: threads, Outs: 1, Ins: 1,
				Dims: uint8(1 + (k+j)%3), Form: uint8((k + j) / 2 % 2), Wide: k%5 == 0, Extra: [4]int32{int32(k % 2)},
				Types: [text.MaxOperands]dtype.DType{dt, dt}}
			if dt.IsFloating() || resamplings[op].plain && dt != dtype.Bool {
				all = append(all, s)
			}
			s.Family, s.Op = Im2colFamily, [...]string{"im2col", "col2im"}[j%2]
			if k < 3 && dt != dtype.Bool {
				all = append(all, s)
			}
		}
	}
	for k, op := range slices.Sorted(maps.Keys(distributions)) {
		for _, dt := range []dtype.DType{dtype.Float32, dtype.Float64, dtype.Float16, dtype.BFloat16} {
			s := text.Spec{Family: RandomFamily, Op: op, Compute: text.Opmath(dt), Block: threads, Outs: 1, Dims: uint8(k % 3)}
			s.Types[0] = dt
			if dt == dtype.Float64 {
				s.Form = randomWide
			}
			s.Form |= [...]uint8{0, randomState}[k%2]
			if distributions[op].integer {
				s.Compute = dtype.Int64
			}
			all = append(all, s)
			s = text.Spec{Family: RandomFamily, Op: bernoulliEach, Compute: text.Opmath(dt), Block: threads, Outs: 1, Ins: 1}
			s.Types[0], s.Types[1], s.Dims, s.Form = dt, dtype.Float32, uint8(k%3), [...]uint8{0, randomState}[k%2]
			if k < 3 {
				all = append(all, s)
			}
		}
	}
	for k, dt := range []dtype.DType{dtype.Float32, dtype.Float16, dtype.Float64} {
		s := text.Spec{Family: RandomFamily, Op: dropout, Compute: text.Opmath(dt), Block: threads, Outs: 2, Ins: 1,
			Dims: uint8(k % 3)}
		s.Types[0], s.Types[1], s.Types[2], s.Form = dt, dtype.Bool, dt, [...]uint8{0, randomState}[k%2]
		all = append(all, s)
		s = text.Spec{Family: RandomFamily, Op: shuffle, Compute: dtype.Int64, Block: threads, Outs: 1, Ins: 1, Form: s.Form}
		s.Types[0], s.Types[1] = dtype.Int64, [...]dtype.DType{dtype.Int32, dtype.Int64}[k%2]
		all = append(all, s)
	}
	return slices.Concat(all, sortSpecs(), searchSpecs(), maskedSpecs(), lossSpecs(), bagSpecs(), attentionSpecs(),
		foreachSpecs(), distanceSpecs(), sparseSpecs(),
		scaledSpecs())
}

// newest is the newest architecture of CUDA that the compiler knows.
func (c *gpuCompiler) newest(t *testing.T) string {
	n := new(int32)
	if o := c.ArchCount(n); o != abi.Compiled || *n <= 0 {
		t.Fatalf("nvrtcGetNumSupportedArchs: %v, %d", o, *n)
	}
	list := make([]int32, *n)
	if o := c.Architectures(&list[0]); o != abi.Compiled {
		t.Fatal("nvrtcGetSupportedArchs: ", o)
	}
	return fmt.Sprintf("sm_%d", slices.Max(list))
}

// hipVersion is 60443484 for HIP 6.4.43484; 0 if the library doesn't say. hiprtc itself says 9.0 in all releases.
func hipVersion() (v int32) {
	lib, err := dl.Source{Name: "HIP", Candidates: abi.FamilyNamed("hip").Candidates()}.Open()
	if err != nil {
		return 0
	}
	if a, ok := lib.Symbol("hipRuntimeGetVersion"); !ok || dl.Func(a).Call(uintptr(unsafe.Pointer(&v))) != 0 {
		return 0
	}
	return v
}

// architectures are old and new ones of the compiler's. hiprtc before ROCm 5.7 doesn't know gfx942, and ends the process
// at an architecture that it doesn't know.
func (c *gpuCompiler) architectures(t *testing.T) []string {
	if c.target == text.CUDA {
		return []string{"sm_75", "sm_90", c.newest(t)}
	}
	if v := hipVersion(); v < 50_700_000 {
		t.Logf("left out: gfx942, which hiprtc knows from ROCm 5.7 on: HIP's version is %d", v)
		return []string{"gfx906", "gfx90a"}
	}
	return []string{"gfx906", "gfx90a", "gfx942"}
}

// Every kernel is taken by NVRTC and hiprtc, for old and new devices. Forms that don't take hours have a sample of each
// family; the brief one compiles each kernel for one architecture.
func TestCompile(t *testing.T) {
	every := specs()
	for _, f := range text.Families() {
		if !slices.ContainsFunc(every, func(s text.Spec) bool { return s.Family == f }) {
			t.Errorf("no kernel of the family %v is compiled", f)
		}
	}
	for _, target := range []text.Target{text.CUDA, text.HIP} {
		t.Run(target.String(), func(t *testing.T) {
			if target == text.HIP {
				testutil.SkipIfShort(t)
			}
			c := openCompiler(t, target)
			archs := c.architectures(t)
			all := usage{}
			bad, brief, long := 0, 400, 40
			if target == text.HIP {
				brief, long = 2000, 600 // it takes some 0.4 s for each
			}
			seen := map[text.Family]int{}
			for _, s := range every {
				k := seen[s.Family]
				seen[s.Family]++
				often := long
				if tiled(s.Family) {
					often = 24
				}
				if !sampled(k, brief, often) {
					continue
				}
				src, err := s.Source()
				if err != nil {
					t.Errorf("%v: %v", s, err)
					continue
				}
				for i, arch := range archs {
					if testutil.Short() && (int(s.Family)+k)%len(archs) != i {
						continue
					}
					image, err := c.compile(src, arch)
					if err == nil {
						err = all.add(s, arch, image)
					}
					if err != nil && bad < 20 {
						bad++
						e := (*loader.CompileError)(nil)
						if errors.As(err, &e) {
							e.Spec = s
						}
						t.Errorf("%s: %v", arch, err)
						break
					}
				}
			}
			all.log(t, archs)
		})
	}
}

// A kernel of each family compiles in the form that has a part of a grid.
func TestPartsCompile(t *testing.T) {
	testutil.SkipIfShort(t)
	c := openCompiler(t, text.CUDA)
	seen := map[text.Family]bool{}
	for _, s := range specs() {
		if s.Vector || seen[s.Family] {
			continue
		}
		seen[s.Family], s.Part = true, true
		src, err := s.Source()
		if err == nil {
			_, err = c.compile(src, "sm_90")
		}
		if err != nil {
			t.Errorf("%v: %v", s, err)
		}
	}
}

// Numbers of 4 and 8 bytes are added to tensors by the GPU's own instruction, and not in a loop that compares and swaps.
func TestAtomicAdditions(t *testing.T) {
	c := openCompiler(t, text.CUDA)
	for _, dt := range []dtype.DType{dtype.Float32, dtype.Float64} {
		s := text.Spec{Family: IndexFamily, Op: "add", Compute: dt, Block: threads, Outs: 1, Ins: 2}
		s.Types = [text.MaxOperands]dtype.DType{dt, dt, dtype.Int64}
		src, err := s.Source()
		must(t, err)
		ptx, err := c.compile(src, "compute_80")
		must(t, err)
		if text := string(ptx); strings.Contains(text, ".cas.") || !strings.Contains(text, ".add.f"+dt.String()[5:]) {
			t.Errorf("%v is added by other instructions:\n%s", dt, text)
		}
	}
}

// A compiler's log comes before the source, of which the lines are shown that the log names.
func TestCompileError(t *testing.T) {
	e := &loader.CompileError{Spec: text.Spec{Family: ScanFamily, Op: "cumsum"},
		Source: strings.Repeat("line\n", 40) + "wrong\n" + strings.Repeat("line\n", 40),
		Log:    "1:41:1: error: unknown name 'wrong'\n1 error generated\n"}
	got := strings.Split(e.Error(), "\n")
	if len(got) != 3+7 || got[1] != "1:41:1: error: unknown name 'wrong'" || got[6] != ">  41  wrong" || got[3] != "   38  line" {
		t.Errorf("%q", got)
	}
	for _, log := range []string{"23:41:1: error: a", "k.cl:41:1: error: a", "k.cu(41): error: a", "<source>:41:7: error: a",
		"error: /home/a/.cache/pocl/kcache/tempfile_c88BUa.cl:41:13: a",
		"error: /home/a/tempfile_c88BUa.cl:41:2 <Spelling=<scratch space>:25:1>: a"} { // in a macro
		e.Log = log
		if !strings.Contains(e.Error(), "\n>  41  wrong\n") || strings.Count(e.Error(), "\n>") != 1 {
			t.Errorf("%s: %s", log, e)
		}
	}
	e.Log = "CL_BUILD_PROGRAM_FAILURE"
	if want := "kernel: scan cumsum() doesn't compile:\nCL_BUILD_PROGRAM_FAILURE"; e.Error() != want {
		t.Errorf("a log that names no line: %q", e.Error())
	}
}
