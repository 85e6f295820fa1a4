package opencl

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/chorus-comms/chorus/device/driver"
	"github.com/chorus-comms/chorus/device/opencl/abi"
)

// A device without shared virtual memory takes buffers as arguments, and a pointer may lead anywhere into one. So its
// kernels are compiled with a buffer and an offset for each pointer:
//
//	kernel void add(global chorus_at *at_x, ulong by_x, ...) { global int *x = (global void *)(at_x + by_x); ... }
//
// OpenCL also has parts of buffers, but what kernels do with parts that overlap is undefined, and nothing says here
// where the memory behind a pointer ends. Where the kernels' heads aren't found in the source, such as those that macros
// make, the source is compiled as it is. For a pointer that isn't a buffer's beginning, another kernel then calls the
// one of the source. Kernels that declare local memory can't be called: devices may refuse it, and PoCL 3.0 then gives
// all blocks the same memory. These kernels, and those of programs without a source, are given parts after all, which
// begin at multiples of the device's alignment.

// pointee is the type that pointers to buffers have in kernels with offsets. The library tells it of their parameters.
const pointee = "chorus_at"

// withOffsets is withOffsets, if the device needs it and its compiler isn't known to refuse the text.
func (b *dev) withOffsets(source []byte) ([]byte, bool) {
	if b.svm != 0 {
		return nil, false
	}
	text, ok := withOffsets(string(source))
	return []byte(text), ok && !b.isRefused([]byte(text))
}

var (
	headText    = regexp.MustCompile(`\b(?:KERNEL|kernel|__kernel)\s+void\s+\w+\s*\(`)
	pointerText = regexp.MustCompile(`^\s*([\w\s]*\b(?:(GLOBAL|global|__global)|constant|__constant)\b[\w\s]*\*\s*` +
		`(?:(?:const|volatile|restrict|__restrict)\s+)*)(\w+)((?:\s+\w+)*\s*)$`)
	macroText  = regexp.MustCompile(`(?m)^#\s*(?:define|undef)\s+(\w+)\b(.*)$`)
	pointsText = regexp.MustCompile(`\b(?:GLOBAL|global|__global|constant|__constant)\b.*\*`)
	wordText   = regexp.MustCompile(`\w+`)
)

// withOffsets is a source whose kernels take offsets; false if it has none that could. Definitions of macros that have
// pointers to buffers are expanded in heads. It's false, too, where such a macro has several.
func withOffsets(source string) (string, bool) {
	macros, defined := map[string]string{}, map[string]int{}
	for _, m := range macroText.FindAllStringSubmatch(source, -1) {
		if defined[m[1]]++; !strings.HasPrefix(m[2], "(") && pointsText.MatchString(m[2]) {
			macros[m[1]] = m[2]
		}
	}
	var out strings.Builder
	out.WriteString("typedef uchar " + pointee + ";\n")
	done, any, several := 0, false, false
	for _, at := range headText.FindAllStringIndex(source, -1) {
		end := closing(source, at[1])
		if end < 0 || !strings.HasPrefix(strings.TrimLeft(source[end+1:], " \t\r\n"), "{") {
			return "", false
		}
		parameters := wordText.ReplaceAllStringFunc(source[at[1]:end], func(w string) string {
			if text, ok := macros[w]; ok {
				several = several || defined[w] > 1
				return text
			}
			return w
		})
		parameters, pointers := shifted(parameters)
		body := end + 1 + strings.Index(source[end+1:], "{") + 1
		out.WriteString(source[done:at[1]] + parameters + ") {" + pointers)
		done, any = body, any || pointers != ""
	}
	out.WriteString(source[done:])
	return out.String(), any && !several
}

// closing is where a parenthesis ends that begins before a place; -1 if it doesn't.
func closing(s string, from int) int {
	for i, depth := from, 1; i < len(s); i++ {
		switch s[i] {
		case '(':
			depth++
		case ')':
			if depth--; depth == 0 {
				return i
			}
		}
	}
	return -1
}

// shifted are a kernel's parameters with offsets, and the declarations of pointers.
func shifted(parameters string) (with, declarations string) {
	var list []string
	for text := range strings.SplitSeq(parameters, ",") { // a type with a comma is no pointer then, and stays
		m := pointerText.FindStringSubmatch(text)
		if m == nil {
			list = append(list, text)
			continue
		}
		declared, name, more := m[1], m[3], m[4]
		space, restrict := "constant", ""
		if m[2] != "" {
			space = "global"
		}
		if strings.Contains(declared, "restrict") {
			restrict = "restrict "
		}
		list = append(list, fmt.Sprintf("%s %s *%sat_%s, ulong by_%s%s", space, pointee, restrict, name, name, more))
		declarations += fmt.Sprintf(" %s%s = (%s void *)(at_%s + by_%s);", declared, name, space, name, name)
	}
	return strings.Join(list, ","), declarations
}

// withoutOffsets are the parameters of kernels that take offsets, without these; false if not all pointers have one.
func withoutOffsets(kernels map[string][]param) (map[string][]param, bool) {
	without := map[string][]param{}
	for name, params := range kernels {
		if !told(params) {
			return nil, false
		}
		var list []param
		for i := 0; i < len(params); i++ {
			p := params[i]
			if p.Address == abi.AddressGlobal || p.Address == abi.AddressConstant {
				if !strings.Contains(p.Type, pointee) {
					return nil, false
				}
				p.Type = "pointer"
				i++
			}
			list = append(list, p)
		}
		without[name] = list
	}
	return without, true
}

// behind is the kernel that takes offsets where this one doesn't, compiled when it's first needed. The kernel is locked.
func (k *kernel) behind(op string) (abi.Kernel, error) {
	if k.caller == 0 && k.refused == nil {
		k.caller, k.refused = k.call(op)
	}
	return k.caller, k.refused
}

func (k *kernel) call(op string) (abi.Kernel, error) {
	b := k.m.b
	refuse := func(why error) (abi.Kernel, error) {
		return 0, driver.Errorf(driver.ErrUnsupported, b.Name, op, "an argument doesn't point to a multiple of %d bytes of "+
			"its allocation, which the device without shared virtual memory needs, and no other kernel can call this one: %w",
			b.align, why)
	}
	source, err := k.callingSource()
	if err != nil {
		return refuse(err)
	}
	p, err := b.compiled(op, []byte(source))
	if err != nil {
		return refuse(err)
	}
	defer b.ProgramFree(p.h) // the kernel keeps it
	return b.kernel(op, p.h, k.attrs.Name+callerSuffix)
}

const callerSuffix = "_at"

func (k *kernel) callingSource() (string, error) {
	if k.m.source == nil {
		return "", fmt.Errorf("its module isn't a source")
	}
	if k.attrs.SharedBytes > 0 {
		return "", fmt.Errorf("it declares local memory")
	}
	var parameters, arguments []string
	for i, p := range k.params {
		if !p.Known {
			return "", fmt.Errorf("the compiler doesn't tell its parameters")
		}
		space := map[uint32]string{abi.AddressGlobal: "global", abi.AddressConstant: "constant"}[p.Address]
		if space == "" {
			parameters = append(parameters, fmt.Sprintf("%s a%d", p.Type, i))
			arguments = append(arguments, fmt.Sprintf("a%d", i))
			continue
		}
		parameters = append(parameters, fmt.Sprintf("%s uchar *a%d, ulong o%d", space, i, i))
		arguments = append(arguments, fmt.Sprintf("(%s %s)(a%d + o%[3]d)", space, p.Type, i))
	}
	if k.local {
		parameters, arguments = append(parameters, "local "+k.localType+" shared"), append(arguments, "shared")
	}
	return fmt.Sprintf("%s\nkernel void %s%s(%s) { %s(%s); }\n", k.m.source, k.attrs.Name, callerSuffix,
		strings.Join(parameters, ", "), k.attrs.Name, strings.Join(arguments, ", ")), nil
}
