package opencl

import (
	"fmt"
	"strings"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/device/opencl/abi"
)

// A device without shared virtual memory takes buffers as arguments, and parts of buffers that begin at multiples of
// its alignment. For a pointer in between, the kernel is compiled again behind another one, which takes a buffer and an
// offset for each pointer:
//
//	kernel void add_at(global uchar *a0, ulong o0, ...) { add((global int *)(a0 + o0), ...); }

const shiftedSuffix = "_at"

// shifted is the kernel that takes offsets, compiled when it's first needed. The kernel is locked.
func (k *kernel) shifted(op string) (abi.Kernel, error) {
	if k.behind != 0 || k.refused != nil {
		return k.behind, k.refused
	}
	k.behind, k.refused = k.shift(op)
	return k.behind, k.refused
}

func (k *kernel) shift(op string) (abi.Kernel, error) {
	b := k.m.b
	refuse := func(why error) (abi.Kernel, error) {
		return 0, device.Errorf(device.ErrUnsupported, b.name, op, "an argument doesn't point to a multiple of %d bytes of "+
			"its allocation, which the device without shared virtual memory needs, and no other kernel can call this one: %w",
			b.align, why)
	}
	source, err := k.shiftedSource()
	if err != nil {
		return refuse(err)
	}
	h, err := b.build(op, []byte(source))
	if err != nil {
		return refuse(err)
	}
	defer b.ProgramFree(h) // the kernel keeps it
	r, title := new(abi.Result), append([]byte(k.attrs.Name+shiftedSuffix), 0)
	made := b.KernelMake(h, &title[0], r)
	return made, b.result(op, "clCreateKernel", *r)
}

func (k *kernel) shiftedSource() (string, error) {
	if !sourceOf(k.m.image) {
		return "", fmt.Errorf("its module isn't a source")
	}
	var parameters, arguments []string
	for i, p := range k.params {
		if !p.known {
			return "", fmt.Errorf("the compiler doesn't tell its parameters")
		}
		space := map[uint32]string{abi.AddressGlobal: "global", abi.AddressConstant: "constant"}[p.address]
		if space == "" {
			parameters = append(parameters, fmt.Sprintf("%s a%d", p.typ, i))
			arguments = append(arguments, fmt.Sprintf("a%d", i))
			continue
		}
		parameters = append(parameters, fmt.Sprintf("%s uchar *a%d, ulong o%d", space, i, i))
		arguments = append(arguments, fmt.Sprintf("(%s %s)(a%d ? a%d + o%d : a%d)", space, p.typ, i, i, i, i))
	}
	if k.local {
		parameters = append(parameters, "local "+k.localType+" shared")
		arguments = append(arguments, "shared")
	}
	return fmt.Sprintf("%s\nkernel void %s%s(%s) { %s(%s); }\n", k.m.image, k.attrs.Name, shiftedSuffix,
		strings.Join(parameters, ", "), k.attrs.Name, strings.Join(arguments, ", ")), nil
}
