package opencl

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/chorus-comms/chorus/device/driver"
	"github.com/chorus-comms/chorus/device/opencl/abi"
)

// A device without shared virtual memory takes buffers as arguments. For a pointer that isn't a buffer's beginning, the
// kernel is compiled again with a buffer and an offset for each pointer:
//
//	kernel void add_at(global uchar *a0, ulong o0, ...) { global int *x = (global int *)(a0 + o0); ... }
//
// OpenCL also has parts of buffers, but what kernels do with parts that overlap is undefined, and nothing says here
// where the memory behind a pointer ends. Where the kernel's head isn't found in the source, such as one that a macro
// makes, another kernel calls it. Kernels that declare local memory can't be called: devices may refuse it, and PoCL 3.0
// then gives all blocks the same memory. These kernels, and those of programs without a source, are given parts after
// all, which begin at multiples of the device's alignment.

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
		return 0, driver.Errorf(driver.ErrUnsupported, b.Name, op, "an argument doesn't point to a multiple of %d bytes of "+
			"its allocation, which the device without shared virtual memory needs, and no other kernel can call this one: %w",
			b.align, why)
	}
	source, err := k.shiftedSource()
	if err != nil {
		return refuse(err)
	}
	p, err := b.build(op, []byte(source))
	if err != nil {
		return refuse(err)
	}
	defer b.ProgramFree(p.h) // the kernel keeps it
	return b.kernel(op, p.h, k.attrs.Name+shiftedSuffix)
}

func (k *kernel) shiftedSource() (string, error) {
	if k.m.source == nil {
		return "", fmt.Errorf("its module isn't a source")
	}
	var parameters, arguments, types []string
	for i, p := range k.params {
		if !p.Known {
			return "", fmt.Errorf("the compiler doesn't tell its parameters")
		}
		space := map[uint32]string{abi.AddressGlobal: "global", abi.AddressConstant: "constant"}[p.Address]
		if space == "" {
			parameters, types = append(parameters, fmt.Sprintf("%s a%d", p.Type, i)), append(types, "")
			arguments = append(arguments, fmt.Sprintf("a%d", i))
			continue
		}
		parameters = append(parameters, fmt.Sprintf("%s uchar *a%d, ulong o%d", space, i, i))
		types = append(types, fmt.Sprintf("%s %s", space, p.Type))
		arguments = append(arguments, fmt.Sprintf("(%s)(a%d ? a%[2]d + o%[2]d : a%[2]d)", types[i], i))
	}
	if k.local {
		parameters, types = append(parameters, "local "+k.localType+" shared"), append(types, "")
		arguments = append(arguments, "shared")
	}
	if source, ok := withOffsets(string(k.m.source), k.attrs.Name, types); ok {
		return source, nil
	}
	if k.attrs.SharedBytes > 0 {
		return "", fmt.Errorf("it declares local memory")
	}
	return fmt.Sprintf("%s\nkernel void %s%s(%s) { %s(%s); }\n", k.m.source, k.attrs.Name, shiftedSuffix,
		strings.Join(parameters, ", "), k.attrs.Name, strings.Join(arguments, ", ")), nil
}

// withOffsets is a source in which a kernel has offsets, and its name the suffix. types has the type of each parameter
// that is a pointer to a buffer, and "" for others. It's false unless the source has one definition by that name.
func withOffsets(source, name string, types []string) (string, bool) {
	found := regexp.MustCompile(`\bvoid\s+`+regexp.QuoteMeta(name)+`\s*\(`).FindAllStringIndex(source, -1)
	if len(found) != 1 {
		return "", false
	}
	from, depth, to := found[0][1], 1, -1
	var texts []string // of the parameters
	for i, start := from, from; i < len(source) && to < 0; i++ {
		switch c := source[i]; {
		case c == '(':
			depth++
		case c == ')':
			depth--
		case c != ',' || depth > 1:
			continue
		}
		if depth == 0 || depth == 1 && source[i] == ',' {
			texts = append(texts, strings.TrimSpace(source[start:i]))
			start = i + 1
		}
		if depth == 0 {
			to = i
		}
	}
	if to < 0 || len(texts) != len(types) || !strings.HasPrefix(strings.TrimLeft(source[to+1:], " \t\r\n"), "{") {
		return "", false
	}
	var pointers strings.Builder
	for i, t := range types {
		if t == "" {
			continue
		}
		if strings.Contains(texts[i], "[") {
			return "", false
		}
		at, offset := fmt.Sprintf("chorus_a%d", i), fmt.Sprintf("chorus_o%d", i)
		fmt.Fprintf(&pointers, " %s = (%s)(%s ? %[3]s + %s : %[3]s);", texts[i], t, at, offset)
		space, _, _ := strings.Cut(t, " ")
		texts[i] = fmt.Sprintf("%s uchar *%s, ulong %s", space, at, offset)
	}
	body := to + 1 + strings.Index(source[to+1:], "{") + 1
	head := found[0][0]
	return fmt.Sprintf("%svoid %s%s(%s) {%s%s", source[:head], name, shiftedSuffix, strings.Join(texts, ", "), &pointers,
		source[body:]), true
}
