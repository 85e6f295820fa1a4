package opencl

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"

	"github.com/chorus-comms/chorus/device/opencl/abi"
)

// image is a program that the device's compiler has made of a source, with what its library may not tell once the
// program is loaded: Intel's then knows no kernel's parameters. ModuleCompile gives it, processes that compile send it,
// and files keep it.
type image struct {
	Program []byte
	Kernels map[string][]param // by name
	Offsets bool               `json:",omitempty"` // kernels take them
	Source  []byte             `json:",omitempty"` // for kernels that take none, of a device that needs them
}

// imageMagic begins an image. The zero tells it from a source.
const imageMagic = "chorus opencl image 1\n\x00"

// errNoImage is of what isn't an image, or not a whole one.
var errNoImage = errors.New("the image is damaged, or another version's")

func (m *image) encode() ([]byte, error) {
	text, err := json.Marshal(m)
	return append([]byte(imageMagic), text...), err
}

// parseImage reads an image. It doesn't give a driver what may be no program: some crash at that.
func parseImage(data []byte) (*image, error) {
	text, ok := bytes.CutPrefix(data, []byte(imageMagic))
	m := new(image)
	if !ok || json.Unmarshal(text, m) != nil || len(m.Program) == 0 {
		return nil, errNoImage
	}
	return m, nil
}

// imageOf is the image of a program that the library has made of a source.
func (b *dev) imageOf(h abi.Program) (*image, error) {
	kernels, err := b.kernelsOf(h)
	if err != nil {
		return nil, err
	}
	data, err := b.program(h)
	return &image{Program: data, Kernels: kernels}, err
}

// kernelsOf asks the library for the parameters of a program's kernels.
func (b *dev) kernelsOf(h abi.Program) (map[string][]param, error) {
	names, err := b.kernelNames(h)
	if err != nil {
		return nil, err
	}
	kernels := map[string][]param{}
	for _, name := range names {
		k, err := b.kernel("look up a function", h, name)
		if err != nil {
			return nil, err
		}
		kernels[name], err = b.parameters(k)
		b.KernelFree(k)
		if err != nil {
			return nil, err
		}
	}
	return kernels, nil
}

func (b *dev) kernelNames(h abi.Program) ([]string, error) {
	names, err := text(b.Library, "clGetProgramInfo", b.ProgramInfo, h, abi.ProgramKernelNames)
	if err != nil || names == "" {
		return nil, err
	}
	return strings.Split(names, ";"), nil
}

func (b *dev) kernel(op string, h abi.Program, name string) (abi.Kernel, error) {
	r, title := new(abi.Result), append([]byte(name), 0)
	k := b.KernelMake(h, &title[0], r)
	return k, b.result(op, "clCreateKernel", *r)
}
