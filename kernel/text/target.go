package text

import (
	"embed"
	"strings"
)

// Target is a language that the dialect is compiled as.
type Target uint8

const (
	OpenCL Target = iota // OpenCL C 1.2 and later
	CUDA                 // NVRTC's C++
	HIP                  // hiprtc's C++
)

func (t Target) String() string { return [...]string{"opencl", "cuda", "hip"}[t] }

// TargetOf is the target of the devices of a driver, by the driver's name; false for a driver that compiles no sources.
func TargetOf(driver string) (Target, bool) {
	for t := OpenCL; t <= HIP; t++ {
		if t.String() == driver {
			return t, true
		}
	}
	return 0, false
}

// dialects are the texts of which kernels are made, for each language and for each kind of numbers.
//
//go:embed dialect
var dialects embed.FS

// dialect is the text of a file of dialects.
func dialect(name string) string {
	text, err := dialects.ReadFile("dialect/" + name + ".h")
	if err != nil {
		panic("kernel: " + err.Error())
	}
	return string(text)
}

func (t Target) header() string {
	switch t {
	case CUDA:
		return dialect("gpu") + dialect("cuda")
	case HIP:
		return dialect("gpu") + dialect("hip")
	}
	return dialect("opencl")
}

// Source is the text of a kernel, with one function.
type Source struct {
	Entry string // the function's name
	Body  string // in the dialect, without a header

	F64      bool // it has numbers of 64 bits, which not every device of OpenCL has
	Atomic64 bool // it has atomic operations on words of 64 bits

	// Part says that a launch has a part of the grid: the kernel's first parameters are where that begins, in three
	// dimensions, and how many blocks the whole grid has in the first one.
	Part bool
}

// For is the whole text for a target.
func (s Source) For(t Target) string {
	defines := ""
	if s.F64 {
		defines += "#define USES_F64\n"
	}
	if s.Atomic64 {
		defines += "#define USES_ATOMIC64\n"
	}
	body := s.Body
	if s.Part {
		defines += "#define PART\n"
		const first = "i64 first_x, i64 first_y, i64 first_z, i64 blocks_x, "
		for _, name := range []string{"ENTRY", s.Entry} {
			head := "KERNEL void " + name + "("
			body = strings.ReplaceAll(body, head, head+first)
		}
	}
	return defines + t.header() + dialect("common") + body
}
