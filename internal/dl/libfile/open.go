package libfile

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/chorus-comms/chorus/internal/sys"
)

// File is a library's file that is open.
type File struct {
	*elf.File
	file *os.File
}

// maxSection bounds what is read of a section: a file may announce more than there is memory.
const maxSection = 256 << 20

// Open opens a library's file, which may be anything else. The error doesn't name it.
func Open(path string) (*File, error) {
	f, size, err := sys.OpenRegular(path)
	if err != nil {
		return nil, err
	}
	parsed, err := elf.NewFile(f)
	if cut := whole(f, size); cut != nil {
		err = cut
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("it's no shared library: %w", err)
	}
	return &File{parsed, f}, nil
}

// Close closes the file.
func (f *File) Close() error { return f.file.Close() }

// errCut says that the dynamic linker would map memory behind the end of a file, whose use is a SIGBUS.
var errCut = errors.New("its end is missing")

// whole is errCut if a file lacks a part that the dynamic linker maps. It needs no sections, which stand at the end. Of
// a file that isn't one of this machine's, which the linker refuses, it's nil.
func whole(file io.ReaderAt, size int64) error {
	var head elf.Header64
	if err := binary.Read(io.NewSectionReader(file, 0, size), binary.NativeEndian, &head); err != nil ||
		string(head.Ident[:len(elf.ELFMAG)]) != elf.ELFMAG || elf.Class(head.Ident[elf.EI_CLASS]) != elf.ELFCLASS64 {
		return nil
	}
	if head.Phoff > uint64(size) {
		return errCut
	}
	table := io.NewSectionReader(file, int64(head.Phoff), size-int64(head.Phoff))
	for range head.Phnum {
		var p elf.Prog64
		if err := binary.Read(table, binary.NativeEndian, &p); err != nil {
			return errCut
		}
		if elf.ProgType(p.Type) == elf.PT_LOAD && (p.Off > uint64(size) || p.Filesz > uint64(size)-p.Off) {
			return errCut
		}
	}
	return nil
}

// Defined are the symbols that the library has for others.
func (f *File) Defined() (map[string]bool, error) {
	for _, s := range f.Sections {
		if s.Size > maxSection && s.Type != elf.SHT_PROGBITS && s.Type != elf.SHT_NOBITS {
			return nil, fmt.Errorf("its section %s has %d bytes", s.Name, s.Size)
		}
	}
	symbols, err := f.DynamicSymbols()
	if err != nil {
		return nil, err
	}
	there := map[string]bool{}
	for _, s := range symbols {
		if s.Section != elf.SHN_UNDEF {
			there[s.Name] = true
		}
	}
	return there, nil
}

// Constants is what the section .rodata has, where texts are; nil if there is none.
func (f *File) Constants() []byte {
	section := f.Section(".rodata")
	if section == nil || section.Size > maxSection {
		return nil
	}
	data, err := section.Data()
	if err != nil {
		return nil
	}
	return data
}

// Check says why the dynamic linker must not open a library: it would wait for a FIFO, read a device without an end, and
// map a file that was cut short, which ends the process. The linker itself says what else is wrong. A place without a
// slash is a name, of which the file in LD_LIBRARY_PATH is checked.
func Check(place string) error {
	if strings.Contains(place, "/") {
		return check(place)
	}
	for _, folder := range filepath.SplitList(os.Getenv("LD_LIBRARY_PATH")) {
		if path := filepath.Join(folder, place); folder != "" && exists(path) {
			return check(path)
		}
	}
	return nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func check(path string) error {
	f, size, err := sys.OpenRegular(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	defer f.Close()
	if err := whole(f, size); err != nil {
		return fmt.Errorf("%s: it's no shared library: %w", path, err)
	}
	return nil
}
