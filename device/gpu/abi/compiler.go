package abi

import (
	"fmt"
	"path/filepath"
	"reflect"
	"strings"

	"github.com/chorus-comms/chorus/internal/dl/libfile"
)

// Outcome is nvrtcResult and hiprtcResult, which agree.
type Outcome int32

// The outcomes that are used.
const (
	Compiled         Outcome = 0
	CompilationError Outcome = 6
	NoBuiltins       Outcome = 7
)

func (o Outcome) String() string { return fmt.Sprintf("outcome %d", int32(o)) }

// Signatures that several functions of a compiler share.
type (
	Creating = func(p *Program, source, name *byte, n int32, headers, names **byte) Outcome
	Giving   = func(p Program, data *byte) Outcome
	Sizing   = func(p Program, n *uint64) Outcome
)

// Compiler is the functions of NVRTC and hiprtc, which make programs of sources. The tags are those of package
// internal/dl.
type Compiler struct {
	Version   func(major, minor *int32) Outcome                `dl:"nvrtcVersion|hiprtcVersion"`
	ErrorText func(o Outcome) string                           `dl:"nvrtcGetErrorString|hiprtcGetErrorString"`
	Create    Creating                                         `dl:"nvrtcCreateProgram|hiprtcCreateProgram"`
	Destroy   func(p *Program) Outcome                         `dl:"nvrtcDestroyProgram|hiprtcDestroyProgram"`
	Compile   func(p Program, n int32, options **byte) Outcome `dl:"nvrtcCompileProgram|hiprtcCompileProgram"`
	LogSize   Sizing                                           `dl:"nvrtcGetProgramLogSize|hiprtcGetProgramLogSize"`
	Log       Giving                                           `dl:"nvrtcGetProgramLog|hiprtcGetProgramLog"`
	CodeSize  Sizing                                           `dl:"nvrtcGetPTXSize|hiprtcGetCodeSize"`
	Code      Giving                                           `dl:"nvrtcGetPTX|hiprtcGetCode"`

	CUBINSize     Sizing                    `dl:"nvrtcGetCUBINSize" cap:"binaries" since:"11.2"`
	CUBIN         Giving                    `dl:"nvrtcGetCUBIN" cap:"binaries"`
	ArchCount     func(n *int32) Outcome    `dl:"nvrtcGetNumSupportedArchs" cap:"binaries"`
	Architectures func(list *int32) Outcome `dl:"nvrtcGetSupportedArchs" cap:"binaries"`
}

// CompilerSymbols is [Symbols] of the compiler's table.
func CompilerSymbols(f func(field reflect.StructField, names []string)) {
	t := reflect.TypeFor[Compiler]()
	for i := range t.NumField() {
		f(t.Field(i), strings.Split(t.Field(i).Tag.Get("dl"), "|"))
	}
}

// Candidates are where the family's library may be, in the order in which that's tried: what the dynamic linker finds,
// Python's packages, places of installation.
func (f *Family) Candidates() []string { return candidates(f.Places, f.Wheels) }

func candidates(files, packaged []string) []string {
	var names, places []string
	for _, c := range files {
		if strings.Contains(c, "/") {
			places = append(places, c)
		} else {
			names = append(names, c)
		}
	}
	return append(append(names, libfile.InWheels(packaged...)...), places...)
}

// CompilerCandidates are where the family's compiler may be, in the order in which that's tried: what the dynamic
// linker finds, the Python environment, places of installation. One of the driver's release comes first.
func (f *Family) CompilerCandidates(major int) []string {
	return ofRelease(candidates(f.Compilers, f.CompilerWheels), major)
}

// ofRelease puts the files of a release first.
func ofRelease(all []string, major int) []string {
	own := fmt.Sprintf(".so.%d", major)
	first, rest := []string{}, []string{}
	for _, c := range all {
		if strings.HasSuffix(filepath.Base(c), own) {
			first = append(first, c)
		} else {
			rest = append(rest, c)
		}
	}
	return append(first, rest...)
}
