package kernel

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chorus-comms/chorus/device/gpu/abi"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/internal/dl"
	"github.com/chorus-comms/chorus/internal/testutil"
)

// gpuCompiler is NVRTC or hiprtc, which need no GPU, of this machine or the tests' Python packages.
type gpuCompiler struct {
	abi.Compiler
	target Target
}

func openCompiler(t *testing.T, target Target) *gpuCompiler {
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

// compile compiles a source for an architecture.
func (c *gpuCompiler) compile(src Source, arch string) error {
	p, text, name := new(abi.Program), append([]byte(src.For(c.target)), 0), []byte("kernel.cu\x00")
	if o := c.Create(p, &text[0], &name[0], 0, nil, nil); o != abi.Compiled {
		return fmt.Errorf("%v", o)
	}
	defer c.Destroy(p)
	option := append([]byte("--gpu-architecture="+arch), 0)
	list := []*byte{&option[0]}
	if o := c.Compile(*p, 1, &list[0]); o != abi.Compiled {
		n := new(uint64)
		c.LogSize(*p, n)
		log := make([]byte, *n+1)
		c.Log(*p, &log[0])
		return &CompileError{Source: src.For(c.target), Log: strings.TrimRight(string(log), "\x00\n")}
	}
	return nil
}

// specs are kernels of all families: for each operation one for each kind of type, and some for the other types.
func specs() []Spec {
	var all []Spec
	for _, o := range Ops() {
		for _, dt := range types {
			compute, result, err := o.Types(dt)
			if err != nil {
				continue
			}
			s := Spec{Family: ElementwiseFamily, Op: o.Name, Compute: compute, Block: threads, Outs: uint8(o.results()),
				Ins: uint8(o.Ins), Form: uint8(o.Numbers), Dims: uint8(dt % 4), Wide: dt%5 == 0,
				Extra: [4]int32{int32(o.Integers)}}
			for k := range o.results() + o.Ins {
				s.Types[k] = dt
				if k < o.results() {
					s.Types[k] = result
				}
			}
			all = append(all, s)
		}
	}
	for _, r := range Reductions() {
		for _, dt := range types {
			if !r.Defined(Opmath(dt)) {
				continue
			}
			for form := range uint8(4) {
				s := Spec{Family: ReduceFamily, Op: r.Name, Compute: Opmath(dt), Block: threads, Outs: uint8(r.Results()), Ins: 1,
					Form: form, Dims: uint8(dt % 3), Extra: [4]int32{int32(dt % 2)}, Wide: dt%5 == 0}
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
	for _, op := range []string{"take", "put", "add", "mul", "amax", "amin"} {
		for _, dt := range types {
			s := Spec{Family: IndexFamily, Op: op, Compute: Opmath(dt), Block: threads, Outs: 1, Ins: 2 + uint8(dt%3),
				Values: uint16(dt % 2), Dims: uint8(dt % 4), Wide: dt%5 == 0}
			if op == "take" {
				s.Values = 0
			}
			s.Types = [MaxOperands]dtype.DType{dt, dt, dtype.Int64, dtype.Int32, dtype.Int64}
			known := op == "take" || op == "put" || indexExpression(op, s.Compute) != ""
			if known && (dt != dtype.Complex128 || op != "mul") {
				all = append(all, s)
			}
		}
	}
	for _, op := range slices.Sorted(maps.Keys(rowOps)) {
		for _, dt := range types {
			o, form := rowOps[op], uint8(dt%2)
			if !dt.IsFloating() {
				continue
			}
			s := Spec{Family: RowFamily, Op: op, Compute: Opmath(dt), Block: threads, Outs: uint8(1 + len(o.rowOut)),
				Ins: uint8(o.ins + o.rowIns + o.weights), Dims: uint8(dt % 3), Wide: dt%5 == 0, Form: form}
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
		s := Spec{Family: MatmulFamily, Compute: Opmath(dt), Block: threads, Outs: 1, Ins: 3, Dims: uint8(k % 3),
			Wide: k%5 == 0,
			Form: uint8(k % 2), Types: [MaxOperands]dtype.DType{dt, dt, dt, dt}}
		if dt.IsFloating() {
			s.Op = "gelu"
		}
		all = append(all, s)
	}
	for k, op := range slices.Sorted(maps.Keys(distributions)) {
		for _, dt := range []dtype.DType{dtype.Float32, dtype.Float64, dtype.Float16, dtype.BFloat16} {
			s := Spec{Family: RandomFamily, Op: op, Compute: Opmath(dt), Block: threads, Outs: 1, Dims: uint8(k % 3)}
			s.Types[0] = dt
			if dt == dtype.Float64 {
				s.Form = 1
			}
			if distributions[op].integer {
				s.Compute = dtype.Int64
			}
			all = append(all, s)
		}
	}
	return all
}

// Every kernel is taken by NVRTC and hiprtc, for old and new devices. Other forms than the longest have a sample of
// each family.
func TestCompile(t *testing.T) {
	for target, archs := range map[Target][]string{CUDA: {"compute_75", "compute_90"}, HIP: {"gfx90a", "gfx942"}} {
		t.Run(target.String(), func(t *testing.T) {
			c := openCompiler(t, target)
			bad := 0
			for k, s := range specs() {
				if !sampled(k, 131, 13) {
					continue
				}
				src, err := s.Source()
				if err != nil {
					t.Errorf("%v: %v", s, err)
					continue
				}
				for _, arch := range archs {
					if err := c.compile(src, arch); err != nil && bad < 20 {
						bad++
						e := (*CompileError)(nil)
						if errors.As(err, &e) {
							e.Spec = s
						}
						t.Errorf("%s: %v", arch, err)
						break
					}
				}
			}
		})
	}
}
