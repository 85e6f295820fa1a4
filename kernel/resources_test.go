package kernel

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/internal/testutil"
	"github.com/chorus-comms/chorus/kernel/text"
)

// resources are what a thread or a block of a compiled kernel takes of a GPU.
type resources struct {
	registers int // of a thread, 32 bits each
	spilled   int // registers that didn't fit, as AMD's compiler counts them
	stack     int // bytes of a thread in the device's memory: spilled registers, and arrays
	shared    int // bytes of a block
}

// most is the larger of each.
func (r resources) most(o resources) resources {
	return resources{max(r.registers, o.registers), max(r.spilled, o.spilled), max(r.stack, o.stack),
		max(r.shared, o.shared)}
}

func (r resources) String() string {
	return fmt.Sprintf("%d registers, %d spilled, %d B of stack, %d B shared", r.registers, r.spilled, r.stack, r.shared)
}

// openImage opens what NVRTC and hiprtc return. hiprtc may wrap it in a bundle.
func openImage(image []byte) (*elf.File, error) {
	if at := bytes.Index(image, []byte(elf.ELFMAG)); at > 0 && bytes.HasPrefix(image, []byte("__CLANG_OFFLOAD_BUNDLE__")) {
		image = image[at:]
	}
	return testutil.ELF(image)
}

// readResources reads them from an image, which holds one kernel.
func readResources(image []byte) (resources, error) {
	f, err := openImage(image)
	if err != nil {
		return resources{}, err
	}
	if f.Machine == elf.EM_CUDA {
		return cudaResources(f)
	}
	return amdResources(f)
}

// A cubin says its resources, whether its word for ELF's version has that or, as CUDA 12 writes it, CUDA's.
func TestCubinResources(t *testing.T) {
	cubin := func(version uint32) []byte {
		info := []byte{4, 0x11, 8, 0, 1, 0, 0, 0, 16, 0, 0, 0, 4, 0x2f, 8, 0, 1, 0, 0, 0, 40, 0, 0, 0}
		names := []byte("\x00.shstrtab\x00.nv.info\x00.nv.shared.f\x00")
		ident := [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT),
			0x33, 7}
		const header, section = 64, 64
		at := uint64(header)
		var b bytes.Buffer
		for _, part := range []any{
			elf.Header64{Ident: ident, Type: uint16(elf.ET_EXEC), Machine: uint16(elf.EM_CUDA), Version: version,
				Shoff: at + uint64(len(names)+len(info)), Ehsize: header, Shentsize: section, Shnum: 4, Shstrndx: 1},
			names, info, elf.Section64{},
			elf.Section64{Name: 1, Type: uint32(elf.SHT_STRTAB), Off: at, Size: uint64(len(names))},
			elf.Section64{Name: 11, Type: uint32(elf.SHT_LOPROC), Off: at + uint64(len(names)), Size: uint64(len(info))},
			elf.Section64{Name: 20, Type: uint32(elf.SHT_NOBITS), Off: at, Size: 1280},
		} {
			if err := binary.Write(&b, binary.LittleEndian, part); err != nil {
				t.Fatal(err)
			}
		}
		return b.Bytes()
	}
	for _, version := range []uint32{uint32(elf.EV_CURRENT), 115, 129} {
		r, err := readResources(cubin(version))
		if want := (resources{registers: 40, stack: 16, shared: 1280}); err != nil || r != want {
			t.Errorf("version %d: %v, %v, want %v", version, r, err, want)
		}
	}
}

// cudaResources reads a cubin, whose .nv.info has attributes of 4 bytes (format, attribute, size) and their data. The
// numbers are those of LLVM's and Nouveau's readers.
func cudaResources(f *elf.File) (r resources, err error) {
	const (
		sized     = 4    // EIFMT_SVAL
		frameSize = 0x11 // EIATTR_FRAME_SIZE: a symbol and its bytes of stack
		registers = 0x2f // EIATTR_REGCOUNT: a symbol and its registers
	)
	for _, s := range f.Sections {
		switch {
		case strings.HasPrefix(s.Name, ".nv.shared."):
			r.shared += int(s.Size)
		case s.Name == ".nv.info":
			b, err := s.Data()
			if err != nil {
				return r, err
			}
			for len(b) >= 4 {
				size := 0
				if b[0] == sized {
					size = int(binary.LittleEndian.Uint16(b[2:]))
				}
				if size == 8 && len(b) >= 12 {
					switch n := int(binary.LittleEndian.Uint32(b[8:])); b[1] {
					case frameSize:
						r.stack = max(r.stack, n)
					case registers:
						r.registers = max(r.registers, n)
					}
				}
				b = b[min(4+size, len(b)):]
			}
		}
	}
	if r.registers == 0 {
		return r, errors.New("no kernel in it")
	}
	return r, nil
}

// amdResources reads the metadata of a code object: a note with a map in MessagePack.
func amdResources(f *elf.File) (resources, error) {
	const metadata = 32 // NT_AMDGPU_METADATA
	for _, s := range f.Sections {
		if s.Type != elf.SHT_NOTE {
			continue
		}
		b, err := s.Data()
		if err != nil {
			return resources{}, err
		}
		for len(b) >= 12 {
			name, size := int(binary.LittleEndian.Uint32(b)+3)&^3, int(binary.LittleEndian.Uint32(b[4:]))
			typ := binary.LittleEndian.Uint32(b[8:])
			b = b[12+name:]
			if typ == metadata {
				p := unpacker{b[:size]}
				all, _ := p.value().(map[string]any)
				list, _ := all["amdhsa.kernels"].([]any)
				if len(list) != 1 {
					return resources{}, fmt.Errorf("%d kernels in it", len(list))
				}
				k, _ := list[0].(map[string]any)
				n := func(key string) int { v, _ := k[key].(int); return v }
				return resources{n(".vgpr_count"), n(".vgpr_spill_count"), n(".private_segment_fixed_size"),
					n(".group_segment_fixed_size")}, nil
			}
			b = b[(size+3)&^3:]
		}
	}
	return resources{}, errors.New("no metadata in it")
}

// unpacker reads the kinds of MessagePack's values that the metadata has.
type unpacker struct{ b []byte }

func (p *unpacker) take(n int) []byte {
	x := p.b[:n]
	p.b = p.b[n:]
	return x
}

func (p *unpacker) number(bytes int) (n int) {
	for _, b := range p.take(bytes) {
		n = n<<8 | int(b)
	}
	return n
}

func (p *unpacker) value() any {
	switch k := p.number(1); {
	case k < 0x80:
		return k
	case k < 0x90:
		return p.fields(k & 0xf)
	case k < 0xa0:
		return p.list(k & 0xf)
	case k < 0xc0:
		return string(p.take(k & 0x1f))
	case k == 0xc2, k == 0xc3:
		return k == 0xc3
	case k >= 0xcc && k <= 0xcf:
		return p.number(1 << (k - 0xcc))
	case k >= 0xd9 && k <= 0xdb:
		return string(p.take(p.number(1 << (k - 0xd9))))
	case k == 0xdc, k == 0xdd:
		return p.list(p.number(2 << (k - 0xdc)))
	case k == 0xde, k == 0xdf:
		return p.fields(p.number(2 << (k - 0xde)))
	case k >= 0xe0:
		return k - 0x100
	}
	return nil
}

func (p *unpacker) list(n int) (all []any) {
	for range n {
		all = append(all, p.value())
	}
	return all
}

func (p *unpacker) fields(n int) map[string]any {
	all := map[string]any{}
	for range n {
		key, _ := p.value().(string)
		all[key] = p.value()
	}
	return all
}

// usage is the most that kernels take, by family and architecture.
type usage map[text.Family]map[string]resources

// tiled reports whether a family's kernels hold tiles in registers, which may be too many.
func tiled(f text.Family) bool {
	return f == AttentionFamily || f == MatmulFamily || f == ConvolutionFamily
}

// mostShared is what a block can have on every GPU without asking for more.
const mostShared = 48 << 10

// mostSpilled is how many registers a kernel may spill: none but gradients of attention, on GPUs with 256 registers for
// a thread and in double precision.
func mostSpilled(s text.Spec, arch string) int {
	switch {
	case s.Family != AttentionFamily:
		return 0
	case s.Compute == dtype.Float64:
		return 400
	case arch == "gfx906":
		return 128
	}
	return 0
}

// add notes a compiled kernel. It fails if the kernel takes more than it should.
func (u usage) add(s text.Spec, arch string, image []byte) error {
	r, err := readResources(image)
	if err != nil {
		return fmt.Errorf("reading what the compiler made: %w", err)
	}
	if u[s.Family] == nil {
		u[s.Family] = map[string]resources{}
	}
	u[s.Family][arch] = u[s.Family][arch].most(r)
	if r.spilled > mostSpilled(s, arch) || r.shared > mostShared {
		return fmt.Errorf("%v takes %v", s, r)
	}
	return nil
}

// log prints the table of docs/kernels.md: registers, and after a plus those that were spilled.
func (u usage) log(t *testing.T, archs []string) {
	var lines []string
	for f, by := range u {
		var cells []string
		var all resources
		for _, arch := range archs {
			r := by[arch]
			cell := fmt.Sprint(r.registers)
			if r.spilled > 0 {
				cell += fmt.Sprintf(" + %d", r.spilled)
			}
			cells, all = append(cells, cell), all.most(r)
		}
		lines = append(lines, fmt.Sprintf("| %v | %s | %d | %d |", f, strings.Join(cells, " | "), all.stack, all.shared))
	}
	slices.Sort(lines)
	t.Logf("| family | %s | stack | shared memory |\n%s", strings.Join(archs, " | "), strings.Join(lines, "\n"))
}
