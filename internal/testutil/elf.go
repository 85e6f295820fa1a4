package testutil

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"slices"
)

// ELF opens a program of a GPU, as a compiler has made it. Cubins of CUDA 12 and earlier have CUDA's version, 129 for
// 12.9, in the word for ELF's, which debug/elf refuses.
func ELF(image []byte) (*elf.File, error) {
	const machine, version, end = 18, 20, 24
	if bytes.HasPrefix(image, []byte(elf.ELFMAG)) && len(image) >= end &&
		elf.Machine(binary.LittleEndian.Uint16(image[machine:])) == elf.EM_CUDA {
		image = slices.Clone(image)
		binary.LittleEndian.PutUint32(image[version:], uint32(elf.EV_CURRENT))
	}
	return elf.NewFile(bytes.NewReader(image))
}
