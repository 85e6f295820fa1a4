package kern

import (
	"bytes"
	"cmp"
	"math/rand/v2"
	"os"
	"testing"
	"unsafe"

	"github.com/chorus-comms/chorus/dtype"
)

func TestCopy(t *testing.T) {
	const most = 3*copyRun + 777
	r := rand.New(rand.NewPCG(5, 6))
	src := newMemory(dtype.Uint8, most, 3)
	src.fillRandom(r)
	eachLevel(t, func(t *testing.T) {
		for name, f := range map[string]func(dst, src unsafe.Pointer, bytes int){"Copy": Copy, "CopyNT": CopyNT} {
			sizes := []int{511, 1024, 4095, 65537, most}
			for n := range 400 {
				sizes = append(sizes, n)
			}
			for _, n := range sizes {
				dst := newMemory(dtype.Uint8, n+9, r.IntN(64))
				f(dst.ptr(), src.ptr(), n)
				dst.intact(t, n)
				if !bytes.Equal(dst.bytes()[:n], src.bytes()[:n]) {
					t.Fatalf("%s of %d bytes differs", name, n)
				}
			}
			same := newMemory(dtype.Uint8, 1000, 1)
			copy(same.bytes(), src.bytes())
			f(same.ptr(), same.ptr(), 1000)
			if !bytes.Equal(same.bytes(), src.bytes()[:1000]) {
				t.Fatalf("%s onto itself changed the memory", name)
			}
		}
	})
}

func TestFill(t *testing.T) {
	for _, dt := range dtype.All() {
		elem := newMemory(dt, 1, 0)
		for i := range elem.bytes() {
			elem.bytes()[i] = byte(i + 1)
		}
		for _, n := range []int{0, 1, 2, 3, 17, 255, 256, 257, 4096, 5001, 100_003} {
			dst := newMemory(dt, n+1, 3)
			Fill(dt, dst.ptr(), n, elem.ptr())
			dst.intact(t, n)
			if !bytes.Equal(dst.bytes()[:n*dt.Size()], bytes.Repeat(elem.bytes(), n)) {
				t.Fatalf("%d of %v are not all the element", n, dt)
			}
		}
	}
}

func TestAllocates(t *testing.T) {
	a, b := make([]byte, 64<<10), make([]byte, 64<<10)
	p, q := unsafe.Pointer(&a[0]), unsafe.Pointer(&b[0])
	eachLevel(t, func(t *testing.T) {
		for name, call := range map[string]func(){
			"copy":    func() { Copy(p, q, len(a)) },
			"copyNT":  func() { CopyNT(p, q, len(a)) },
			"scale":   func() { Scale(dtype.BFloat16, p, p, 333, 2) },
			"average": func() { Average(dtype.Int32, p, 333, 2) },
			"convert": func() { Convert(dtype.Float16, p, dtype.Float32, q, 333) },
			"fill":    func() { Fill(dtype.Float32, p, 333, q) },
			"on stack": func() {
				x, y := float32(1), uint8(0)
				Convert(dtype.Uint8, unsafe.Pointer(&y), dtype.Float32, unsafe.Pointer(&x), 1)
				CopyNT(unsafe.Pointer(&y), unsafe.Pointer(&x), 1)
			},
		} {
			if n := testing.AllocsPerRun(10, call); n != 0 {
				t.Errorf("%s allocates %v times", name, n)
			}
		}
	})
}

func TestPause(t *testing.T) {
	for _, n := range []int{-1, 0, 1, 100} {
		Pause(n) // must come back
	}
}

func TestLevels(t *testing.T) {
	names := Levels()
	first := cmp.Or(os.Getenv("CHORUS_KERNELS"), names[0])
	if names[len(names)-1] != "portable" || Level() != first {
		t.Errorf("level %s of %v", Level(), names)
	}
	if levelNamed("portable") != &portable || levelNamed("nonesuch") != levels[0] || levelNamed("") != levels[0] {
		t.Error("a name that there isn't must stand for the best level")
	}
	restore := SetLevel("portable")
	if Level() != "portable" {
		t.Error("SetLevel had no effect")
	}
	restore()
	if Level() != first {
		t.Error("restore had no effect")
	}
	defer func() {
		if recover() == nil {
			t.Error("no panic for a level that does not exist")
		}
	}()
	SetLevel("mmx")
}
