package abi

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"github.com/chorus-comms/chorus/internal/dl"
)

// sites are the places of files in Python's folders of packages.
func sites(names ...string) (paths []string) {
	folders, _ := filepath.Glob("../../../.venv/lib/python3*/site-packages")
	for _, s := range folders { // and where the environment's path files lead
		files, _ := filepath.Glob(filepath.Join(s, "*.pth"))
		for _, f := range files {
			text, _ := os.ReadFile(f)
			folders = append(folders, strings.Fields(string(text))...)
		}
	}
	for _, name := range names {
		for _, s := range folders {
			paths = append(paths, filepath.Join(s, name))
		}
	}
	return paths
}

// header reads a vendor's header from the Python packages that bring one, without comments.
func header(t *testing.T, names ...string) string {
	t.Helper()
	for _, path := range sites(names...) {
		text, err := os.ReadFile(path)
		if err == nil {
			t.Log(path)
			text = regexp.MustCompile(`(?s)/\*.*?\*/|//[^\n]*`).ReplaceAll(text, nil)
			return string(text)
		}
	}
	t.Skipf("left out: no Python package has %v", names)
	return ""
}

func cudaHeader(t *testing.T) string {
	return header(t, "nvidia/cu13/include/cuda.h", "nvidia/cuda_runtime/include/cuda.h",
		"triton/backends/nvidia/include/cuda.h")
}

func hipHeader(t *testing.T) string {
	return header(t, "triton/backends/amd/include/hip/hip_runtime_api.h") +
		header(t, "triton/backends/amd/include/hip/driver_types.h")
}

// sizes are those of what C calls the types of parameters; all else must be a pointer.
var sizes = map[string]uintptr{"int": 4, "unsigned": 4, "unsigned int": 4, "uint32_t": 4, "cuuint32_t": 4,
	"unsigned char": 1, "size_t": 8, "unsigned long long": 8, "CUdeviceptr": 8, "hipDeviceptr_t": 8, "CUdevice": 4,
	"hipDevice_t": 4, "CUcontext": 8, "CUstream": 8, "hipStream_t": 8, "CUevent": 8, "hipEvent_t": 8, "CUgraph": 8,
	"hipGraph_t": 8, "CUgraphExec": 8, "CUmodule": 8, "hipModule_t": 8, "CUfunction": 8, "CUlibrary": 8, "CUkernel": 8,
	"hipFunction_t": 8, "CUfunction_attribute": 4, "hipFunction_attribute": 4, "nvrtcProgram": 8, "nvrtcResult": 4,
	"hipGraphExec_t": 8, "CUgraphNode": 8, "hipGraphNode_t": 8, "CUhostFn": 8,
	"hipHostFn_t": 8, "CUipcMemHandle": 64, "CUipcEventHandle": 64, "hipIpcMemHandle_t": 64, "hipIpcEventHandle_t": 64,
	"CUresult": 4, "hipError_t": 4, "CUdevice_attribute": 4, "hipDeviceAttribute_t": 4, "CUpointer_attribute": 4,
	"hipPointer_attribute": 4, "CUstreamCaptureMode": 4, "hipStreamCaptureMode": 4, "hipMemcpyKind": 4, "cublasHandle_t": 8, "cublasOperation_t": 4,
	"cudaDataType": 4, "cublasComputeType_t": 4, "cublasGemmAlgo_t": 4, "cublasAtomicsMode_t": 4, "cublasStatus_t": 4,
	"cudaStream_t": 8, "long long int": 8, "cufftType": 4, "uint64_t": 8, "int64_t": 8, "cudaDataType_t": 4,
	"cublasLtHandle_t": 8, "cublasLtMatmulDesc_t": 8, "cublasLtMatrixLayout_t": 8, "cublasLtMatmulPreference_t": 8,
	"cublasLtMatmulDescAttributes_t": 4, "cublasLtMatmulPreferenceAttributes_t": 4, "cusolverDnHandle_t": 8,
	"cublasFillMode_t": 4, "cusolverEigMode_t": 4, "signed char": 1, "cublasSideMode_t": 4, "cublasDiagType_t": 4,
	"cusparseHandle_t": 8, "cusparseConstSpMatDescr_t": 8, "cusparseConstDnMatDescr_t": 8, "cusparseDnMatDescr_t": 8,
	"cusparseIndexType_t": 4, "cusparseIndexBase_t": 4, "cusparseOrder_t": 4, "cusparseOperation_t": 4,
	"cusparseSpMMAlg_t": 4, "cusparseStatus_t": 4}

// parameters returns the types of a function's, of all declarations that the header has.
func parameters(text, name string) (all [][]string) {
	declaration := regexp.MustCompile(`(?:CUresult\s+CUDAAPI|cusolverStatus_t\s+CUSOLVERAPI|cusparseStatus_t\s+CUSPARSEAPI|(?:cublasStatus_t|size_t)\s+CUBLASWINAPI|cufftResult\s+CUFFTAPI|nvrtcResult|hipError_t|const char\s*\*(?:\s+(?:CUBLASWINAPI|CUSPARSEAPI))?)\s*` + name +
		`\s*\(([^;{]*)\)\s*;`)
	for _, m := range declaration.FindAllStringSubmatch(text, -1) {
		var types []string
		for p := range strings.SplitSeq(regexp.MustCompile(`__dparm\([^)]*\)|=[^,]*`).ReplaceAllString(m[1], ""), ",") {
			p = strings.TrimSpace(strings.ReplaceAll(strings.Join(strings.Fields(p), " "), "const ", ""))
			if strings.Contains(p, "*") || strings.HasSuffix(p, "[]") {
				p = "*"
			} else if words := strings.Fields(p); len(words) > 1 {
				p = strings.Join(words[:len(words)-1], " ")
			}
			types = append(types, p)
		}
		all = append(all, types)
	}
	return all
}

// fits reports whether a Go function takes what a C function does. Pointers are words, and the other way round.
func fits(f reflect.Type, c []string) bool {
	if f.NumIn() != len(c) {
		return false
	}
	for i, p := range c {
		size, known := sizes[p]
		if p == "*" {
			size, known = 8, true
		}
		if f.In(i) == reflect.TypeFor[PeerRef]() && (p == "int" || p == "CUcontext") {
			continue
		}
		if !known || f.In(i).Size() != size {
			return false
		}
	}
	return true
}

// Every function that the table names is one of the header's, with parameters of these sizes.
func TestFunctions(t *testing.T) {
	for _, x := range []struct {
		prefix string
		header func(*testing.T) string
	}{{"cu", cudaHeader}, {"hip", hipHeader}} {
		t.Run(x.prefix, func(t *testing.T) {
			text, seen := x.header(t), 0
			Symbols(func(field reflect.StructField, names []string) {
				for _, name := range names {
					if !strings.HasPrefix(name, x.prefix) {
						continue
					}
					seen++
					c := parameters(text, name)
					if base, ok := strings.CutSuffix(name, "R0600"); ok && strings.Contains(text, "#define "+base+" "+name) {
						c = append(c, parameters(text, base)...)
					}
					if base, ok := strings.CutSuffix(name, "_v2"); ok {
						macro := regexp.MustCompile(`#\s*define\s+` + base + `\s+(?:__CUDA_API_PTSZ\()?` + name + `\b`)
						if !macro.MatchString(text) {
							t.Errorf("%s is not what %s stands for", name, base)
						}
						c = append(parameters(text, base), c...)
					} else if name == "cuGraphInstantiateWithFlags" { // declared by the name that stands for it
						c = append(c, parameters(text, "cuGraphInstantiate")...)
					}
					found := false
					for _, one := range c {
						if name == "cuStreamWaitValue32_v2" {
							one = append(one, "uint32_t") // HIP's bits, which it doesn't look at
						}
						found = found || fits(field.Type, one)
					}
					if !found {
						t.Errorf("%s is %v here, and takes %v in the header", name, field.Type, c)
					}
				}
			})
			if seen < 50 {
				t.Errorf("%d functions were compared", seen)
			}
		})
	}
}

// The structure of HIP's properties is the header's, as a compiler lays it out.
func TestHIPProperties(t *testing.T) {
	hipHeader(t)
	for _, folder := range sites("triton/backends/amd/include") {
		if _, err := os.Stat(folder); err != nil {
			continue
		}
		var p HIPProperties
		source := fmt.Sprintf("#define __HIP_PLATFORM_AMD__\n#include <hip/hip_runtime_api.h>\n"+
			"_Static_assert(__builtin_offsetof(hipDeviceProp_tR0600, gcnArchName) == %d, \"place\");\n"+
			"_Static_assert(sizeof(hipDeviceProp_tR0600) <= %d, \"size\");\n"+
			"_Static_assert(sizeof((hipDeviceProp_tR0600 *)0)->gcnArchName == %d, \"name\");\n",
			unsafe.Offsetof(p.Architecture), unsafe.Sizeof(p), len(p.Architecture))
		cc := exec.Command("cc", "-fsyntax-only", "-I"+folder, "-x", "c", "-")
		cc.Stdin = strings.NewReader(source)
		if out, err := cc.CombinedOutput(); errors.Is(err, exec.ErrNotFound) {
			t.Skip("left out: ", err)
		} else if err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	t.Skip("left out: no Python package has the folder of HIP's headers")
}

// So is every function of the library of products that is cuBLAS's, and its numbers.
func TestBLAS(t *testing.T) {
	text := header(t, "nvidia/cu13/include/cublas_api.h", "nvidia/cublas/include/cublas_api.h")
	BLASSymbols(func(field reflect.StructField, names []string) {
		if !strings.HasPrefix(names[0], "cublas") {
			t.Errorf("%v is not cuBLAS's first", names)
		}
		c := parameters(text, names[0])
		if len(c) == 0 || !fits(field.Type, c[0]) {
			t.Errorf("%s is %v here, and takes %v in the header", names[0], field.Type, c)
		}
	})
	n, types := FamilyNamed("cuda").Numbers(), header(t, "nvidia/cu13/include/library_types.h",
		"nvidia/cuda_runtime/include/library_types.h")
	for name, want := range map[string]int32{"CUBLAS_OP_N": n.Straight, "CUBLAS_OP_T": n.Transposed,
		"CUBLAS_COMPUTE_32F": n.In32, "CUBLAS_COMPUTE_64F": n.In64, "CUBLAS_GEMM_DEFAULT": n.Default,
		"CUBLAS_STATUS_ALLOC_FAILED": int32(n.AllocFailed), "CUBLAS_STATUS_INVALID_VALUE": int32(n.InvalidValue),
		"CUBLAS_STATUS_ARCH_MISMATCH": int32(n.ArchMismatch), "CUBLAS_STATUS_NOT_SUPPORTED": int32(n.NotSupported),
		"CUDA_R_32F": Real32, "CUDA_R_64F": Real64, "CUDA_R_16F": Real16, "CUDA_R_16BF": RealB16, "CUDA_C_32F": Complex32,
		"CUDA_C_64F": Complex64, "CUBLAS_OP_C": n.Conjugated, "CUBLAS_SIDE_LEFT": n.Left, "CUBLAS_SIDE_RIGHT": n.Right,
		"CUBLAS_FILL_MODE_LOWER": n.Lower, "CUBLAS_FILL_MODE_UPPER": n.Upper, "CUBLAS_DIAG_NON_UNIT": n.General,
		"CUBLAS_DIAG_UNIT": n.Unit, "CUBLAS_ATOMICS_NOT_ALLOWED": 0, "CUBLAS_ATOMICS_ALLOWED": 1} {
		m := regexp.MustCompile(`\b` + name + `\s*=\s*(-?\d+)`).FindStringSubmatch(text + types)
		if m == nil || m[1] != strconv.Itoa(int(want)) {
			t.Errorf("%s is %d here, and %v in the header", name, want, m)
		}
	}
}

// The cuBLAS of the Python packages opens, and says itself that it has no GPU.
func TestRealBLAS(t *testing.T) {
	if os.Getenv("CHORUS_TEST_LONG") == "" {
		t.Skip("left out: CHORUS_TEST_LONG=1 loads a library of hundreds of megabytes")
	}
	var table BLAS
	lib, err := dl.Source{Name: "cuBLAS", Candidates: sites("nvidia/cu13/lib/libcublas.so.13",
		"nvidia/cublas/lib/libcublas.so.1*")}.Open()
	if err != nil {
		t.Skip("left out: ", err)
	}
	caps, err := lib.Resolve(&table)
	if err != nil || !caps.Has("workspaces") || !caps.Has("texts") || !caps.Has("versions") {
		t.Fatal(err)
	}
	h := new(BLASHandle)
	switch s := table.Create(h); s {
	case Done:
		table.Destroy(*h)
	case 1:
		if text := table.Text(s); text != "the library was not initialized" {
			t.Errorf("Create: %q", text)
		}
	default:
		t.Errorf("Create: %v", s)
	}
}

// ltAttributes are the names of attributes and other numbers that cuBLASLt and hipBLASLt give other values.
func ltAttributes(n LtNumbers) map[string]int32 {
	return map[string]int32{"MATMUL_DESC_TRANSA": n.TransA, "MATMUL_DESC_TRANSB": n.TransB,
		"MATMUL_DESC_EPILOGUE": n.Epilogue, "MATMUL_DESC_BIAS_POINTER": n.Bias, "MATMUL_DESC_BIAS_DATA_TYPE": n.BiasType,
		"MATMUL_DESC_A_SCALE_POINTER": n.ScaleA, "MATMUL_DESC_B_SCALE_POINTER": n.ScaleB,
		"MATMUL_DESC_D_SCALE_POINTER": n.ScaleOut, "MATMUL_DESC_A_SCALE_MODE": n.ScaleModeA,
		"MATMUL_DESC_B_SCALE_MODE": n.ScaleModeB, "EPILOGUE_BIAS": LtEpilogueBias, "EPILOGUE_RELU_BIAS": LtEpilogueRelu,
		"MATMUL_MATRIX_SCALE_OUTER_VEC_32F": LtScaleOuter, "MATMUL_PREF_MAX_WORKSPACE_BYTES": LtMostWorkspace}
}

// So is every function of the library of fused products that is cuBLASLt's, its numbers, and what it writes. The
// numbers of types are those of both headers.
func TestLt(t *testing.T) {
	text := header(t, "nvidia/cu13/include/cublasLt.h", "nvidia/cublas/include/cublasLt.h")
	LtSymbols(func(field reflect.StructField, names []string) {
		if !strings.HasPrefix(names[0], "cublasLt") || len(names) > 1 && field.Name != "Text" &&
			names[1] != "hipblasLt"+names[0][len("cublasLt"):] {
			t.Errorf("%v are not cuBLASLt's first, and the same of hipBLASLt's", names)
		}
		c := parameters(text, names[0])
		if len(c) == 1 && slices.Equal(c[0], []string{"void"}) {
			c[0] = nil
		}
		if len(c) == 0 || !fits(field.Type, c[0]) {
			t.Errorf("%s is %v here, and takes %v in the header", names[0], field.Type, c)
		}
	})
	n := FamilyNamed("cuda").LtNumbers()
	all := values(text)
	want := ltAttributes(n)
	for i, matrix := range "ABCD" {
		want["MATMUL_PREF_MIN_ALIGNMENT_"+string(matrix)+"_BYTES"] = n.AlignA + int32(i)
	}
	for name, want := range want {
		if got, ok := all["CUBLASLT_"+name]; !ok || got != int(want) {
			t.Errorf("CUBLASLT_%s is %d here, and %d in the header (%t)", name, want, got, ok)
		}
	}
	line := strings.Join(strings.Fields(text), " ")
	for _, part := range []string{fmt.Sprintf("{ uint64_t data[%d]; } cublasLtMatmulAlgo_t;", n.Algorithm),
		"{ cublasLtMatmulAlgo_t algo; size_t workspaceSize; cublasStatus_t state; float wavesCount; int reserved[4]; } " +
			"cublasLtMatmulHeuristicResult_t;"} {
		if !strings.Contains(line, part) {
			t.Errorf("the header lacks %q", part)
		}
	}
	if size := unsafe.Sizeof(LtResult{}); size != uintptr(8*n.Algorithm)+8+4+4+4*4 {
		t.Errorf("a result has %d bytes", size)
	}
	blas := values(header(t, "nvidia/cu13/include/cublas_api.h", "nvidia/cublas/include/cublas_api.h"))
	if got := blas["CUBLAS_COMPUTE_32I"]; got != int(n.In32I) {
		t.Errorf("CUBLAS_COMPUTE_32I is %d here, and %d in the header", n.In32I, got)
	}
	cuda := values(header(t, "nvidia/cu13/include/library_types.h", "nvidia/cuda_runtime/include/library_types.h"))
	hip := values(header(t, "triton/backends/amd/include/hip/library_types.h"))
	for name, want := range map[string]int32{"R_8I": Int8, "R_32I": Int32, "R_8F_E4M3": Float8E4M3,
		"R_8F_E5M2": Float8E5M2, "R_8F_E4M3_FNUZ": Float8E4M3FNUZ, "R_8F_E5M2_FNUZ": Float8E5M2FNUZ, "R_32F": Real32,
		"R_16F": Real16, "R_16BF": RealB16} {
		if got, ok := cuda["CUDA_"+name]; got != int(want) && (ok || !strings.HasSuffix(name, "FNUZ")) {
			t.Errorf("CUDA_%s is %d here, and %d in the header", name, want, got)
		}
		if got, ok := hip["HIP_"+name]; !ok || got != int(want) {
			t.Errorf("HIP_%s is %d here, and %d in the header (%t)", name, want, got, ok)
		}
	}
}

// The cuBLASLt of the Python packages opens, and says itself that it has no GPU. It takes descriptions without one:
// attributes of the sizes that are given here, and no others.
func TestRealLt(t *testing.T) {
	if os.Getenv("CHORUS_TEST_LONG") == "" {
		t.Skip("left out: CHORUS_TEST_LONG=1 loads a library of hundreds of megabytes")
	}
	var table Lt
	lib, err := dl.Source{Name: "cuBLASLt", Candidates: sites("nvidia/cu13/lib/libcublasLt.so.13",
		"nvidia/cublas/lib/libcublasLt.so.1*")}.Open()
	if err != nil {
		t.Skip("left out: ", err)
	}
	caps, err := lib.Resolve(&table)
	if err != nil || !caps.Has("texts") || !caps.Has("versions") || table.Version() < 110000 {
		t.Fatal(err)
	}
	h := new(LtHandle)
	switch s := table.Create(h); s {
	case Done:
		table.Destroy(*h)
	case 1:
		if text := table.Text(s); text != "the library was not initialized" {
			t.Errorf("Create: %q", text)
		}
	default:
		t.Errorf("Create: %v", s)
	}
	f := FamilyNamed("cuda")
	n, bad := f.LtNumbers(), f.Numbers().InvalidValue
	p, l, prefer := new(LtProduct), new(LtLayout), new(LtPreference)
	for what, s := range map[string]Status{"NewProduct": table.NewProduct(p, f.Numbers().In32, Real32),
		"NewLayout": table.NewLayout(l, Float8E4M3, 16, 32, 16), "NewPreference": table.NewPreference(prefer)} {
		if s != Done {
			t.Fatalf("%s: %v", what, s)
		}
	}
	value := new([8]byte)
	for number, bytes := range map[int32]uint64{n.TransA: 4, n.TransB: 4, n.Epilogue: 4, n.BiasType: 4,
		n.ScaleModeA: 4, n.ScaleModeB: 4, n.Bias: 8, n.ScaleA: 8, n.ScaleB: 8, n.ScaleOut: 8} {
		if s := table.SetProduct(*p, number, &value[0], bytes); s != Done {
			t.Errorf("attribute %d of %d bytes: %v", number, bytes, s)
		}
		if s := table.SetProduct(*p, number, &value[0], 12-bytes); s != bad {
			t.Errorf("attribute %d of %d bytes: %v", number, 12-bytes, s)
		}
	}
	value[1] = 1 // 256
	for number, bytes := range map[int32]uint64{LtMostWorkspace: 8, n.AlignA: 4, n.AlignA + 1: 4, n.AlignA + 2: 4,
		n.AlignA + 3: 4} {
		if s := table.SetPreference(*prefer, number, &value[0], bytes); s != Done {
			t.Errorf("preference %d of %d bytes: %v", number, bytes, s)
		}
	}
	if a, b, c := table.DropProduct(*p), table.DropLayout(*l), table.DropPreference(*prefer); a != Done || b != Done ||
		c != Done {
		t.Errorf("what isn't given back: %v, %v, %v", a, b, c)
	}
}

// So is every function of the library of transforms that is cuFFT's, but for the plan, which has 32 bits there and is a
// pointer in hipFFT. So are its numbers.
func TestFFT(t *testing.T) {
	text := header(t, "nvidia/cu13/include/cufft.h", "nvidia/cufft/include/cufft.h")
	FFTSymbols(func(field reflect.StructField, names []string) {
		if !strings.HasPrefix(names[0], "cufft") || names[1] != "hip"+names[0][2:] {
			t.Errorf("%v are not cuFFT's first, and the same of hipFFT's", names)
		}
		c := parameters(text, names[0])
		if len(c) == 0 {
			t.Errorf("%s isn't in the header", names[0])
			return
		}
		for i, p := range c[0] {
			if p == "cufftHandle" {
				c[0][i] = "cublasHandle_t" // of 8 bytes, in a register of as many
			}
		}
		if !fits(field.Type, c[0]) {
			t.Errorf("%s is %v here, and takes %v in the header", names[0], field.Type, c)
		}
	})
	all := values(text)
	for name, want := range map[string]int32{"CUFFT_R2C": R2C, "CUFFT_C2R": C2R, "CUFFT_C2C": C2C, "CUFFT_D2Z": D2Z,
		"CUFFT_Z2D": Z2D, "CUFFT_Z2Z": Z2Z, "CUFFT_INVERSE": FFTInverse} {
		if got, ok := all[name]; !ok || got != int(want) {
			t.Errorf("%s is %d here, and %d in the header (%t)", name, want, got, ok)
		}
	}
	if !regexp.MustCompile(`#define CUFFT_FORWARD -1\b`).MatchString(text) || FFTForward != -1 {
		t.Error("CUFFT_FORWARD is another number in the header")
	}
	for r, name := range FFTResultNames() {
		if r == FFTIncomplete || r == FFTParseError { // not in cuFFT 12
			continue
		}
		if got, ok := all["CUFFT_"+name]; !ok || got != int(r) {
			t.Errorf("CUFFT_%s is %d here, and %d in the header (%t)", name, r, got, ok)
		}
	}
}

// So is every function of the library of linear algebra that is cuSOLVER's, for each type of elements, and its numbers.
func TestSolver(t *testing.T) {
	text, seen := header(t, "nvidia/cu13/include/cusolverDn.h", "nvidia/cusolver/include/cusolverDn.h"), 0
	SolverSymbols(func(field reflect.StructField, names []string) {
		if !strings.HasPrefix(names[0], "cusolver") || names[1] != "hip"+names[0][2:] {
			t.Errorf("%v are not cuSOLVER's first, and the same of hipSOLVER's", names)
		}
		seen++
		_, near, _ := strings.Cut(text, " "+names[0]+"(") // without which the search takes seconds
		near, _, _ = strings.Cut(near, ";")
		c := parameters("cusolverStatus_t CUSOLVERAPI "+names[0]+"("+near+";", names[0])
		if len(c) == 0 || !fits(field.Type, c[0]) {
			t.Errorf("%s is %v here, and takes %v in the header", names[0], field.Type, c)
		}
	})
	if seen != 3+16*4 {
		t.Errorf("%d functions were compared", seen)
	}
	n, all := FamilyNamed("cuda").SolverNumbers(), values(header(t, "nvidia/cu13/include/cusolver_common.h",
		"nvidia/cusolver/include/cusolver_common.h")+
		header(t, "nvidia/cu13/include/cublas_api.h", "nvidia/cublas/include/cublas_api.h"))
	for name, want := range map[string]int32{"CUBLAS_OP_N": n.Straight, "CUBLAS_OP_T": n.Transposed,
		"CUBLAS_OP_C": n.Conjugated, "CUBLAS_FILL_MODE_LOWER": n.Lower, "CUBLAS_FILL_MODE_UPPER": n.Upper,
		"CUBLAS_SIDE_LEFT": n.Left, "CUBLAS_SIDE_RIGHT": n.Right, "CUSOLVER_EIG_MODE_NOVECTOR": n.NoVectors, "CUSOLVER_EIG_MODE_VECTOR": n.Vectors,
		"CUSOLVER_STATUS_SUCCESS": int32(Solved), "CUSOLVER_STATUS_ALLOC_FAILED": int32(n.AllocFailed),
		"CUSOLVER_STATUS_INVALID_VALUE": int32(n.InvalidValue), "CUSOLVER_STATUS_ARCH_MISMATCH": int32(n.ArchMismatch),
		"CUSOLVER_STATUS_INTERNAL_ERROR": int32(n.Internal), "CUSOLVER_STATUS_NOT_SUPPORTED": int32(n.NotSupported),
		"CUSOLVER_STATUS_MATRIX_TYPE_NOT_SUPPORTED": int32(n.BadType)} {
		if got, ok := all[name]; !ok || got != int(want) {
			t.Errorf("%s is %d here, and %d in the header (%t)", name, want, got, ok)
		}
	}
}

// The cuSOLVER of the Python packages has all functions, and says itself that it has no GPU.
func TestRealSolver(t *testing.T) {
	if os.Getenv("CHORUS_TEST_LONG") == "" {
		t.Skip("left out: CHORUS_TEST_LONG=1 loads a library of hundreds of megabytes")
	}
	var table Solver
	lib, err := dl.Source{Name: "cuSOLVER", Candidates: sites("nvidia/cu13/lib/libcusolver.so.12",
		"nvidia/cusolver/lib/libcusolver.so.1*")}.Open()
	if err != nil {
		t.Skip("left out: ", err)
	}
	if _, err := lib.Resolve(&table); err != nil {
		t.Fatal(err)
	}
	for i := range table.Of {
		named := lib.By(func(name string) (uintptr, bool) { return lib.Symbol(SolverSymbol(name, SolverTypes[i])) }, "")
		if _, err := named.Resolve(&table.Of[i]); err != nil {
			t.Errorf("%c: %v", SolverTypes[i], err)
		}
	}
	h := new(SolverHandle)
	switch s := table.Create(h); s {
	case Solved:
		table.Destroy(*h)
	case 1: // not initialized
	default:
		t.Errorf("Create: %v", s)
	}
}

// So is every function of the library of sparse matrices that is cuSPARSE's, and its numbers.
func TestSparse(t *testing.T) {
	text := header(t, "nvidia/cu13/include/cusparse.h", "nvidia/cusparse/include/cusparse.h")
	SparseSymbols(func(field reflect.StructField, names []string) {
		if !strings.HasPrefix(names[0], "cusparse") || names[1] != "hip"+names[0][2:] {
			t.Errorf("%v are not cuSPARSE's first, and the same of hipSPARSE's", names)
		}
		c := parameters(text, names[0])
		if len(c) == 0 || !fits(field.Type, c[0]) {
			t.Errorf("%s is %v here, and takes %v in the header", names[0], field.Type, c)
		}
	})
	all := values(text)
	for name, want := range map[string]int32{"STATUS_SUCCESS": int32(SparseDone),
		"STATUS_NOT_INITIALIZED": int32(SparseNoDevice), "STATUS_ALLOC_FAILED": int32(SparseAllocFailed),
		"STATUS_INVALID_VALUE": int32(SparseInvalidValue), "STATUS_ARCH_MISMATCH": int32(SparseArchMismatch),
		"STATUS_INTERNAL_ERROR": int32(SparseInternal), "STATUS_MATRIX_TYPE_NOT_SUPPORTED": int32(SparseBadType),
		"STATUS_NOT_SUPPORTED":          int32(SparseNotSupported),
		"STATUS_INSUFFICIENT_RESOURCES": int32(SparseNoResources), "OPERATION_NON_TRANSPOSE": SparseStraight,
		"OPERATION_TRANSPOSE": SparseTransposed, "INDEX_32I": SparseIndex32, "INDEX_64I": SparseIndex64,
		"INDEX_BASE_ZERO": SparseFromZero, "ORDER_COL": SparseColumnOrder, "ORDER_ROW": SparseRowOrder,
		"SPMM_CSR_ALG2": SparseByRows, "SPMM_CSR_ALG3": SparseSameBits} {
		if got, ok := all["CUSPARSE_"+name]; !ok || got != int(want) {
			t.Errorf("CUSPARSE_%s is %d here, and %d in the header (%t)", name, want, got, ok)
		}
	}
}

// The cuSPARSE of the Python packages opens, and says itself that it has no GPU. It takes descriptions without one, and
// refuses those that are none.
func TestRealSparse(t *testing.T) {
	if os.Getenv("CHORUS_TEST_LONG") == "" {
		t.Skip("left out: CHORUS_TEST_LONG=1 loads a library of hundreds of megabytes")
	}
	var table Sparse
	lib, err := dl.Source{Name: "cuSPARSE", Candidates: sites("nvidia/cu13/lib/libcusparse.so.12",
		"nvidia/cusparse/lib/libcusparse.so.1*")}.Open()
	if err != nil {
		t.Skip("left out: ", err)
	}
	if caps, err := lib.Resolve(&table); err != nil || !caps.Has("texts") {
		t.Fatal(err)
	}
	h := new(SparseHandle)
	switch s := table.Create(h); s {
	case SparseDone:
		if v := new(int32); table.Version(*h, v) != SparseDone || *v < 11000 {
			t.Errorf("version %d", *v)
		}
		table.Destroy(*h)
	case SparseNoDevice:
		if text := table.Text(s); text != "initialization error" {
			t.Errorf("Create: %q", text)
		}
	default:
		t.Errorf("Create: %v", s)
	}
	a, m := new(SparseRows), new(SparseDense)
	for _, c := range []struct {
		index, typ, order int32
		pitch             int64
		want              SparseStatus
	}{{SparseIndex32, Real32, SparseRowOrder, 5, SparseDone},
		{SparseIndex64, Complex64, SparseColumnOrder, 4, SparseDone},
		{SparseIndex64, RealB16, SparseRowOrder, 7, SparseDone},
		{SparseIndex32, Real32, SparseRowOrder, 4, SparseInvalidValue},
		{SparseIndex32, Real32, 3, 5, SparseInvalidValue},
		{99, Real32, SparseRowOrder, 5, SparseInvalidValue}} {
		rows := table.NewRows(a, 4, 3, 7, 4096, 8192, 12288, c.index, c.index, SparseFromZero, c.typ)
		dense := table.NewDense(m, 4, 5, c.pitch, 4096, c.typ, c.order)
		if c.want == SparseDone && (rows != SparseDone || dense != SparseDone) ||
			c.want != SparseDone && rows != c.want && dense != c.want {
			t.Errorf("%+v: %v, %v", c, rows, dense)
		}
		if rows == SparseDone && table.DropRows(*a) != SparseDone ||
			dense == SparseDone && table.DropDense(*m) != SparseDone {
			t.Errorf("%+v isn't given back", c)
		}
	}
}

// The cuFFT of the Python packages opens, and says itself that it has no GPU.
func TestRealFFT(t *testing.T) {
	if os.Getenv("CHORUS_TEST_LONG") == "" {
		t.Skip("left out: CHORUS_TEST_LONG=1 loads a library of hundreds of megabytes")
	}
	var table FFT
	lib, err := dl.Source{Name: "cuFFT", Candidates: sites("nvidia/cu13/lib/libcufft.so.12",
		"nvidia/cufft/lib/libcufft.so.1*")}.Open()
	if err != nil {
		t.Skip("left out: ", err)
	}
	if _, err := lib.Resolve(&table); err != nil {
		t.Fatal(err)
	}
	v, p, work := new(int32), new(FFTPlan), new(uint64)
	if r := table.Version(v); r != Transformed || *v < 10000 {
		t.Errorf("Version: %v, %d", r, *v)
	}
	switch r := table.Create(p); r {
	case Transformed:
		n := &[1]int64{8}
		if r := table.Make(*p, 1, &n[0], &n[0], 1, 8, &n[0], 1, 8, C2C, 1, work); r == Transformed {
			t.Log("there's a GPU")
		}
		table.Destroy(*p)
	case FFTSetupFailed, FFTInternalError, FFTInvalidDevice:
	default:
		t.Errorf("Create: %v", r)
	}
}

// So is every function of the compiler that is NVRTC's.
func TestCompiler(t *testing.T) {
	text, seen := header(t, "nvidia/cu13/include/nvrtc.h", "nvidia/cuda_nvrtc/include/nvrtc.h"), 0
	CompilerSymbols(func(field reflect.StructField, names []string) {
		if !strings.HasPrefix(names[0], "nvrtc") {
			t.Errorf("%v is not NVRTC's first", names)
		}
		c := parameters(text, names[0])
		if len(c) == 0 || !fits(field.Type, c[0]) {
			t.Errorf("%s is %v here, and takes %v in the header", names[0], field.Type, c)
		}
		seen++
	})
	if seen < 10 {
		t.Errorf("%d functions were compared", seen)
	}
	all := values(text)
	if all["NVRTC_SUCCESS"] != int(Compiled) || all["NVRTC_ERROR_COMPILATION"] != int(CompilationError) ||
		all["NVRTC_ERROR_BUILTIN_OPERATION_FAILURE"] != int(NoBuiltins) {
		t.Errorf("outcomes are others in the header")
	}
}

// values are those of all enumerators and of macros that are numbers.
func values(text string) map[string]int {
	all := map[string]int{}
	for _, m := range regexp.MustCompile(`#\s*define\s+(\w+)\s+(0x[0-9a-fA-F]+|\d+)\s`).FindAllStringSubmatch(text, -1) {
		v, err := strconv.ParseInt(m[2], 0, 64)
		if err == nil {
			all[m[1]] = int(v)
		}
	}
	for _, m := range regexp.MustCompile(`(?s)\benum\b[\w\s]*\{(.*?)\}`).FindAllStringSubmatch(text, -1) {
		next := 0
		body := regexp.MustCompile(`(?m)^\s*#.*$`).ReplaceAllString(m[1], "")
		for item := range strings.SplitSeq(body, ",") {
			name, value, set := strings.Cut(strings.TrimSpace(item), "=")
			name, value = strings.TrimSpace(name), strings.TrimSpace(value)
			if name == "" {
				continue
			}
			if set {
				v, err := strconv.ParseInt(value, 0, 64)
				next = int(v)
				if err != nil { // another's, or that of several together
					for part := range strings.SplitSeq(strings.Trim(value, "()"), "|") {
						next |= all[strings.TrimSpace(part)]
					}
				}
			}
			all[name] = next
			next++
		}
	}
	return all
}

// The constants are those of the headers.
func TestConstants(t *testing.T) {
	for prefix, list := range map[string]map[string]int{
		"cu": {
			"CUDA_ERROR_INVALID_VALUE": int(InvalidValue), "CUDA_ERROR_OUT_OF_MEMORY": int(OutOfMemory),
			"CUDA_ERROR_NOT_INITIALIZED": int(NotInitialized), "CUDA_ERROR_DEINITIALIZED": int(Deinitialized),
			"CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER": int(CallRequiresNewerDriver), "CUDA_ERROR_NO_DEVICE": int(NoDevice),
			"CUDA_ERROR_INVALID_DEVICE": int(InvalidDevice), "CUDA_ERROR_INVALID_IMAGE": int(InvalidImage),
			"CUDA_ERROR_INVALID_CONTEXT": int(InvalidContext), "CUDA_ERROR_NO_BINARY_FOR_GPU": int(NoBinaryForGPU),
			"CUDA_ERROR_ECC_UNCORRECTABLE":       int(ECCUncorrectable),
			"CUDA_ERROR_PEER_ACCESS_UNSUPPORTED": int(PeerAccessUnsupported), "CUDA_ERROR_INVALID_PTX": int(InvalidPTX),
			"CUDA_ERROR_NVLINK_UNCORRECTABLE":    int(NVLinkUncorrectable),
			"CUDA_ERROR_UNSUPPORTED_PTX_VERSION": int(UnsupportedPTX), "CUDA_ERROR_CONTAINED": int(Contained),
			"CUDA_ERROR_INVALID_SOURCE": int(InvalidSource), "CUDA_ERROR_INVALID_HANDLE": int(InvalidHandle),
			"CUDA_ERROR_NOT_FOUND": int(NotFound), "CUDA_ERROR_NOT_READY": int(NotReady),
			"CUDA_ERROR_ILLEGAL_ADDRESS":             int(IllegalAddress),
			"CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES":     int(LaunchOutOfResources),
			"CUDA_ERROR_LAUNCH_TIMEOUT":              int(LaunchTimeout),
			"CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED": int(PeerAccessEnabled),
			"CUDA_ERROR_PEER_ACCESS_NOT_ENABLED":     int(PeerAccessNotEnabled),
			"CUDA_ERROR_CONTEXT_IS_DESTROYED":        int(ContextIsDestroyed), "CUDA_ERROR_ASSERT": int(Assert),
			"CUDA_ERROR_HARDWARE_STACK_ERROR":  int(HardwareStackError),
			"CUDA_ERROR_ILLEGAL_INSTRUCTION":   int(IllegalInstruction),
			"CUDA_ERROR_MISALIGNED_ADDRESS":    int(MisalignedAddress),
			"CUDA_ERROR_INVALID_ADDRESS_SPACE": int(InvalidAddressSpace), "CUDA_ERROR_INVALID_PC": int(InvalidPC),
			"CUDA_ERROR_LAUNCH_FAILED": int(LaunchFailed), "CUDA_ERROR_TENSOR_MEMORY_LEAK": int(TensorMemoryLeak),
			"CUDA_ERROR_NOT_SUPPORTED": int(NotSupported), "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED": int(CaptureUnsupported),
			"CUDA_ERROR_STREAM_CAPTURE_INVALIDATED":  int(CaptureInvalidated),
			"CUDA_ERROR_STREAM_CAPTURE_MERGE":        int(CaptureMerge),
			"CUDA_ERROR_STREAM_CAPTURE_UNMATCHED":    int(CaptureUnmatched),
			"CUDA_ERROR_STREAM_CAPTURE_UNJOINED":     int(CaptureUnjoined),
			"CUDA_ERROR_STREAM_CAPTURE_ISOLATION":    int(CaptureIsolation),
			"CUDA_ERROR_STREAM_CAPTURE_IMPLICIT":     int(CaptureImplicit),
			"CUDA_ERROR_CAPTURED_EVENT":              int(CapturedEvent),
			"CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD": int(CaptureWrongThread),
			"CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE":   int(GraphExecUpdateFailure),
			"CUDA_ERROR_DEVICE_UNAVAILABLE":          int(DeviceUnavailable),
			"CUDA_ERROR_SYSTEM_NOT_READY":            int(SystemNotReady),
			"CUDA_ERROR_MPS_CLIENT_TERMINATED":       int(MPSClientTerminated),
			"CUDA_ERROR_EXTERNAL_DEVICE":             int(ExternalDevice), "CUDA_ERROR_UNKNOWN": int(Unknown),

			"CU_STREAM_NON_BLOCKING": StreamNonBlocking, "CU_EVENT_DISABLE_TIMING": EventDisableTiming,
			"CU_EVENT_INTERPROCESS": EventInterprocess, "CU_MEMHOSTALLOC_PORTABLE": HostPortable,
			"CU_MEMHOSTALLOC_DEVICEMAP": HostMapped, "CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS": IPCLazyPeerAccess,
			"CU_STREAM_WAIT_VALUE_GEQ": WaitValueGreater, "CU_STREAM_WAIT_VALUE_EQ": WaitValueEqual,
			"CU_STREAM_CAPTURE_MODE_RELAXED":                  CaptureModeRelaxed,
			"CU_STREAM_CAPTURE_MODE_GLOBAL":                   CaptureModeGlobal,
			"CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED": StreamPriorities,
			"CU_STREAM_CAPTURE_STATUS_NONE":                   CaptureNone,
			"CU_STREAM_CAPTURE_STATUS_ACTIVE":                 CaptureActive, "CU_STREAM_CAPTURE_STATUS_INVALIDATED": CaptureDiscarded,
			"CU_POINTER_ATTRIBUTE_MEMORY_TYPE":      PointerMemoryType,
			"CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL":   PointerDeviceOrdinal,
			"CU_POINTER_ATTRIBUTE_RANGE_START_ADDR": PointerRangeStart, "CU_POINTER_ATTRIBUTE_RANGE_SIZE": PointerRangeSize,
			"CU_MEMORYTYPE_HOST": MemoryHost, "CU_MEMORYTYPE_DEVICE": MemoryDevice,
			"CU_GRAPH_NODE_TYPE_KERNEL": NodeKernel, "CU_GRAPH_NODE_TYPE_MEMCPY": NodeMemcpy,
			"CU_GRAPH_NODE_TYPE_MEMSET": NodeMemset, "CU_GRAPH_NODE_TYPE_HOST": NodeHost,
			"CU_GRAPH_NODE_TYPE_GRAPH": NodeGraph, "CU_GRAPH_NODE_TYPE_EMPTY": NodeEmpty,
			"CU_GRAPH_NODE_TYPE_WAIT_EVENT": NodeWaitEvent, "CU_GRAPH_NODE_TYPE_EVENT_RECORD": NodeEventRecord,
			"CU_GRAPH_NODE_TYPE_BATCH_MEM_OP":          NodeBatchMemOp,
			"CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT": CUDAMultiprocessors, "CU_IPC_HANDLE_SIZE": 64,
			"CU_JIT_ERROR_LOG_BUFFER": JITErrorLog, "CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES": JITErrorLogBytes,
			"CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK":       CUDAShared,
			"CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": CUDASharedAtMost,
			"CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR":          CUDAMajor,
			"CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR":          CUDAMinor,
			"CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK":               FunctionMaxThreads,
			"CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES":                   FunctionShared,
			"CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES":                    FunctionLocal,
			"CU_FUNC_ATTRIBUTE_NUM_REGS":                            FunctionRegisters,
			"CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES":       FunctionDynamic,
		},
		"hip": {
			"hipErrorInvalidValue": int(InvalidValue), "hipErrorOutOfMemory": int(OutOfMemory),
			"hipErrorNotInitialized": int(NotInitialized), "hipErrorDeinitialized": int(Deinitialized),
			"hipErrorNoDevice": int(NoDevice), "hipErrorInvalidDevice": int(InvalidDevice),
			"hipErrorInvalidImage": int(InvalidImage), "hipErrorInvalidContext": int(InvalidContext),
			"hipErrorNoBinaryForGpu": int(NoBinaryForGPU), "hipErrorECCNotCorrectable": int(ECCUncorrectable),
			"hipErrorPeerAccessUnsupported": int(PeerAccessUnsupported), "hipErrorInvalidKernelFile": int(InvalidPTX),
			"hipErrorInvalidSource": int(InvalidSource), "hipErrorInvalidHandle": int(InvalidHandle),
			"hipErrorNotFound": int(NotFound), "hipErrorNotReady": int(NotReady),
			"hipErrorIllegalAddress": int(IllegalAddress), "hipErrorLaunchOutOfResources": int(LaunchOutOfResources),
			"hipErrorLaunchTimeOut": int(LaunchTimeout), "hipErrorPeerAccessAlreadyEnabled": int(PeerAccessEnabled),
			"hipErrorPeerAccessNotEnabled": int(PeerAccessNotEnabled),
			"hipErrorContextIsDestroyed":   int(ContextIsDestroyed), "hipErrorAssert": int(Assert),
			"hipErrorLaunchFailure": int(LaunchFailed), "hipErrorNotSupported": int(NotSupported),
			"hipErrorStreamCaptureUnsupported": int(CaptureUnsupported),
			"hipErrorStreamCaptureInvalidated": int(CaptureInvalidated), "hipErrorStreamCaptureMerge": int(CaptureMerge),
			"hipErrorStreamCaptureUnmatched": int(CaptureUnmatched), "hipErrorStreamCaptureUnjoined": int(CaptureUnjoined),
			"hipErrorStreamCaptureIsolation": int(CaptureIsolation), "hipErrorStreamCaptureImplicit": int(CaptureImplicit),
			"hipErrorCapturedEvent":            int(CapturedEvent),
			"hipErrorStreamCaptureWrongThread": int(CaptureWrongThread),
			"hipErrorGraphExecUpdateFailure":   int(GraphExecUpdateFailure), "hipErrorUnknown": int(Unknown),

			"hipStreamNonBlocking": StreamNonBlocking, "hipEventDisableTiming": EventDisableTiming,
			"hipEventInterprocess": EventInterprocess, "hipHostMallocPortable": HostPortable,
			"hipHostMallocMapped": HostMapped, "hipIpcMemLazyEnablePeerAccess": IPCLazyPeerAccess,
			"hipStreamWaitValueGte": WaitValueGreater, "hipStreamWaitValueEq": WaitValueEqual,
			"hipMallocSignalMemory": SignalMemory, "hipStreamCaptureModeRelaxed": CaptureModeRelaxed,
			"hipStreamCaptureModeGlobal":                  CaptureModeGlobal,
			"hipDeviceAttributeStreamPrioritiesSupported": StreamPriorities,
			"hipStreamCaptureStatusNone":                  CaptureNone, "hipStreamCaptureStatusActive": CaptureActive,
			"hipStreamCaptureStatusInvalidated": CaptureDiscarded, "HIP_POINTER_ATTRIBUTE_MEMORY_TYPE": PointerMemoryType,
			"HIP_POINTER_ATTRIBUTE_DEVICE_ORDINAL":   PointerDeviceOrdinal,
			"HIP_POINTER_ATTRIBUTE_RANGE_START_ADDR": PointerRangeStart,
			"HIP_POINTER_ATTRIBUTE_RANGE_SIZE":       PointerRangeSize, "hipMemoryTypeHost": MemoryHost,
			"hipMemoryTypeDevice": MemoryDevice, "hipMemoryTypeManaged": MemoryManaged,
			"hipGraphNodeTypeKernel": NodeKernel, "hipGraphNodeTypeMemcpy": NodeMemcpy,
			"hipGraphNodeTypeMemset": NodeMemset, "hipGraphNodeTypeHost": NodeHost, "hipGraphNodeTypeGraph": NodeGraph,
			"hipGraphNodeTypeEmpty": NodeEmpty, "hipGraphNodeTypeWaitEvent": NodeWaitEvent,
			"hipGraphNodeTypeEventRecord": NodeEventRecord, "hipGraphNodeTypeBatchMemOp": NodeBatchMemHIP,
			"hipDeviceAttributeMultiprocessorCount": HIPMultiprocessors, "hipMemcpyDefault": CopyByAddresses,
			"hipDeviceAttributeComputeCapabilityMajor": HIPMajor, "hipDeviceAttributeComputeCapabilityMinor": HIPMinor,
			"HIP_IPC_HANDLE_SIZE": 64, "hipDeviceAttributeMaxSharedMemoryPerBlock": HIPShared,
			"hipErrorInvalidConfiguration":             int(InvalidConfiguration),
			"HIP_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK": FunctionMaxThreads,
			"HIP_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES":     FunctionShared, "HIP_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES": FunctionLocal,
			"HIP_FUNC_ATTRIBUTE_NUM_REGS": FunctionRegisters,
		},
	} {
		t.Run(prefix, func(t *testing.T) {
			text := ""
			if prefix == "cu" {
				text = cudaHeader(t)
			} else {
				text = hipHeader(t)
			}
			all := values(text)
			for name, want := range list {
				if got, ok := all[name]; !ok || got != want {
					t.Errorf("%s is %d in the header (there: %v), and %d here", name, got, ok, want)
				}
			}
		})
	}
}
