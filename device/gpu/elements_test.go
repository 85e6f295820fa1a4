//go:build linux && (amd64 || arm64)

package gpu

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"os"
	command "os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"github.com/chorus-comms/chorus/device/internal/elements"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/internal/dl"
	"github.com/chorus-comms/chorus/kern"
)

// prelude lets a C compiler of the host take the kernel, of which grid has a function.
const prelude = `
#define KERNEL static
#define DEVICE static
struct dim { unsigned x, y, z; };
static struct dim blockIdx, blockDim = {256, 1, 1}, threadIdx;
`

const grid = `
void run(void *dst, const void *src, i64 n, const struct layout *l) {
	for (blockIdx.x = 0; (i64)blockIdx.x * 256 < n; blockIdx.x++)
		for (threadIdx.x = 0; threadIdx.x < 256; threadIdx.x++)
			copy_elements(dst, src, n, *l);
}
`

// hostElements is copy_elements, compiled for the host.
func hostElements(t *testing.T) dl.Func {
	cc, err := command.LookPath("cc")
	if err != nil {
		t.Skip("left out: no C compiler (cc)")
	}
	dir := t.TempDir()
	source, library := filepath.Join(dir, "elements.c"), filepath.Join(dir, "elements.so")
	text := bytes.Join([][]byte{[]byte(prelude), elements.Source, []byte(grid)}, nil)
	if err := os.WriteFile(source, text, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := command.Command(cc, "-O1", "-fno-strict-aliasing", "-shared", "-fPIC", "-Wall", "-Wno-unknown-pragmas", "-o",
		library, source).CombinedOutput()
	if err != nil || len(out) > 0 {
		t.Fatalf("%v: %s", err, out)
	}
	lib, err := dl.Source{Name: "elements", Candidates: []string{library}}.Open()
	if err != nil {
		t.Fatal(err)
	}
	f, ok := lib.Symbol("run")
	if !ok {
		t.Fatal("no function run")
	}
	return dl.Func(f)
}

// layout is the kernel's, of dimensions that end with these.
func layout(to, from dtype.DType, sizes, dst, src []int) []byte {
	b := binary.NativeEndian.AppendUint32(nil, uint32(to))
	b = binary.NativeEndian.AppendUint32(b, uint32(from))
	for _, list := range [][]int{sizes, dst, src} {
		for range 8 - len(list) {
			b = binary.NativeEndian.AppendUint64(b, 1)
		}
		for _, x := range list {
			b = binary.NativeEndian.AppendUint64(b, uint64(x))
		}
	}
	return b
}

// samples are numbers of a type: all bits there are of up to 16, and else random ones, small ones, and those at the
// ends of ranges.
func samples(dt dtype.DType) (b []byte, n int) {
	if size := dt.Size(); size <= 2 {
		n = 1 << (8 * size)
		if dt == dtype.Bool {
			n = 2
		}
		for i := range n {
			b = append(b, binary.LittleEndian.AppendUint16(nil, uint16(i))[:size]...)
		}
		return b, n
	}
	r := rand.New(rand.NewPCG(1, uint64(dt)))
	n = 20_000
	numbers := []float64{0, math.Copysign(0, -1), 1, -1, 0.5, 448, 464, 480, 57344, 61440, 65504, 65519.99, 65520, 65536,
		math.Inf(1), math.Inf(-1), math.NaN(), math.MaxFloat32, math.MaxFloat64, 1e-45, 5e-324, 1 << 31, -1 << 31, 1<<31 - 1,
		1 << 63, -1 << 63, 1 << 64, 255.5, -0.9, 1<<53 + 2, 6e-8, 2.98e-8, 2.981e-8, 1.5e-45}
	for i := range n {
		f, bits := numbers[i%len(numbers)], r.Uint64()
		if i%3 == 0 {
			f *= 1 + r.Float64()/1024
		} else if i%3 == 1 {
			f = r.NormFloat64() * math.Exp2(float64(r.IntN(80)-40))
		}
		word := func(bytes int) {
			if i%4 == 0 {
				b = append(b, binary.NativeEndian.AppendUint64(nil, bits>>r.IntN(64))[:bytes]...)
			} else if bytes == 4 {
				b = binary.NativeEndian.AppendUint32(b, math.Float32bits(float32(f)))
			} else {
				b = binary.NativeEndian.AppendUint64(b, math.Float64bits(f))
			}
		}
		switch dt {
		case dtype.Uint32, dtype.Int32:
			b = binary.NativeEndian.AppendUint32(b, uint32(bits>>r.IntN(32)))
		case dtype.Uint64, dtype.Int64:
			v := bits >> r.IntN(64)
			if i%4 == 0 { // halfway between two of bfloat16, or next to that
				v = 1<<62 | bits>>57<<55 | 1<<54 | bits&1
			}
			b = binary.NativeEndian.AppendUint64(b, v)
		case dtype.Float32:
			word(4)
		case dtype.Float64:
			word(8)
		case dtype.Complex64:
			word(4)
			word(4)
		case dtype.Complex128:
			word(8)
			word(8)
		}
	}
	return b, n
}

// Every type is converted to every other as package kern does, to the bit, but for what is in a NaN.
func TestElementsConvert(t *testing.T) {
	f := hostElements(t)
	for _, from := range dtype.All() {
		src, n := samples(from)
		for _, to := range dtype.All() {
			want, got := make([]byte, n*to.Size()), make([]byte, n*to.Size())
			kern.Convert(to, unsafe.Pointer(&want[0]), from, unsafe.Pointer(&src[0]), n)
			l := layout(to, from, []int{n}, []int{to.Size()}, []int{from.Size()})
			call(f, got, src, n, l)
			bad := 0
			for i := range n {
				x, y := want[i*to.Size():][:to.Size()], got[i*to.Size():][:to.Size()]
				if !bytes.Equal(x, y) && !bothNaN(to, x, y) && bad < 3 {
					bad++
					t.Errorf("%v to %v: % x becomes % x, want % x", from, to, src[i*from.Size():][:from.Size()], y, x)
				}
			}
		}
	}
}

func call(f dl.Func, dst, src []byte, n int, layout []byte) {
	f.Call(uintptr(unsafe.Pointer(&dst[0])), uintptr(unsafe.Pointer(&src[0])), uintptr(n),
		uintptr(unsafe.Pointer(&layout[0])))
	runtime.KeepAlive([][]byte{dst, src, layout})
}

// bothNaN compares parts of which each is the same, or NaN in both.
func bothNaN(dt dtype.DType, x, y []byte) bool {
	part := dt
	switch dt {
	case dtype.Complex64:
		part = dtype.Float32
	case dtype.Complex128:
		part = dtype.Float64
	}
	if !part.IsFloating() {
		return false
	}
	for i := 0; i < len(x); i += part.Size() {
		var a, b float64
		kern.Convert(dtype.Float64, unsafe.Pointer(&a), part, unsafe.Pointer(&x[i]), 1)
		kern.Convert(dtype.Float64, unsafe.Pointer(&b), part, unsafe.Pointer(&y[i]), 1)
		if !bytes.Equal(x[i:i+part.Size()], y[i:i+part.Size()]) && (a == a || b == b) {
			return false
		}
	}
	return true
}

// Elements lie where the steps say, backwards and at odd addresses too.
func TestElementsLayout(t *testing.T) {
	f := hostElements(t)
	src := make([]byte, 4*6*5*16+1)
	for i := range src {
		src[i] = byte(i * 7)
	}
	for _, dt := range dtype.All() {
		for odd := range 2 {
			s := dt.Size()
			sizes := []int{3, 5, 2}
			from, to := []int{6 * s, s, 20 * s}, []int{2 * s, 6 * s, s}
			got, want := make([]byte, 30*16+1), make([]byte, 30*16+1)
			for i := range 3 {
				for j := range 5 {
					for k := range 2 {
						copy(want[odd+i*to[0]+j*to[1]+k*to[2]:][:s], src[odd+i*from[0]+j*from[1]+k*from[2]:][:s])
					}
				}
			}
			call(f, got[odd:], src[odd:], 30, layout(dt, dt, sizes, to, from))
			if !bytes.Equal(got, want) {
				t.Errorf("%v at %d: other elements, or elsewhere", dt, odd)
			}
		}
	}
}

// Dimensions of one element, which have any step, and up to eight of others.
func TestElementsDimensions(t *testing.T) {
	f := hostElements(t)
	r := rand.New(rand.NewPCG(3, 4))
	for range 50 {
		sizes, to, from := make([]int, 8), make([]int, 8), make([]int, 8)
		n := 1
		for k := 7; k >= 0; k-- {
			sizes[k] = 1 + r.IntN(3)
			to[k], from[k] = n, n
			n *= sizes[k]
		}
		order := r.Perm(8)
		step := 1
		for _, k := range order { // the source's dimensions lie in another order
			from[k] = step
			step *= sizes[k]
		}
		for k := range sizes {
			if sizes[k] == 1 {
				to[k], from[k] = r.IntN(1<<40), r.IntN(1<<40)
			}
		}
		src, got, want := make([]byte, n), make([]byte, n), make([]byte, n)
		for i := range src {
			src[i] = byte(r.IntN(256))
		}
		for i := range n {
			at, rest := 0, i
			for k := 7; k >= 0; k-- {
				if sizes[k] > 1 {
					at += rest % sizes[k] * from[k]
				}
				rest /= sizes[k]
			}
			want[i] = src[at]
		}
		call(f, got, src, n, layout(dtype.Uint8, dtype.Uint8, sizes, to, from))
		if !bytes.Equal(got, want) {
			t.Errorf("sizes %v, steps %v and %v: other elements, or elsewhere", sizes, to, from)
		}
	}
}

// NVRTC takes it. An element is found without a division of 64 bits, and with at most one for each dimension but the
// outermost.
func TestElementsCompile(t *testing.T) {
	c := realCompiler(t)
	by, err := c.choose(90)
	if err != nil {
		t.Fatal(err)
	}
	for _, target := range []string{"compute_75", "sm_90"} {
		image, err := c.compile(elements.Source, choice{by.tool, target})
		if err != nil || !bytes.Contains(image, []byte("copy_elements")) {
			t.Errorf("%s: %v", target, err)
		}
		if strings.HasPrefix(target, "sm") { // no text
			continue
		}
		count := func(words ...string) (n int) {
			for _, word := range words {
				n += bytes.Count(image, []byte(word))
			}
			return n
		}
		if n := count("div.s64", "div.u64", "rem.s64", "rem.u64"); n > 0 {
			t.Errorf("%d divisions of 64 bits in the program", n)
		}
		if n := count("div.u32", "rem.u32"); n > 8 {
			t.Errorf("%d divisions in the program, for 8 dimensions", n)
		}
		if n := count(".local"); n > 0 {
			t.Error("the program keeps variables in memory")
		}
	}
}
