package abi

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// header reads one of the headers that distributions have in a package (Debian: opencl-c-headers), without comments.
func header(t *testing.T, name string) string {
	t.Helper()
	for _, folder := range append(filepath.SplitList(os.Getenv("C_INCLUDE_PATH")), "/usr/include") {
		if text, err := os.ReadFile(filepath.Join(folder, "CL", name)); err == nil {
			return string(regexp.MustCompile(`(?s)/\*.*?\*/|//[^\n]*`).ReplaceAll(text, nil))
		}
	}
	t.Skipf("left out: no CL/%s in C_INCLUDE_PATH and /usr/include", name)
	return ""
}

// sizes are those of what C calls the types of parameters. Those of questions (cl_..._info) have 4 bytes, and all else
// is a pointer or a handle.
var sizes = map[string]uintptr{"cl_uint": 4, "cl_int": 4, "cl_bool": 4, "unsigned int": 4, "cl_buffer_create_type": 4,
	"size_t": 8, "cl_device_type": 8, "cl_mem_flags": 8, "cl_map_flags": 8, "cl_svm_mem_flags": 8,
	"cl_command_queue_properties": 8}

func size(c string) uintptr {
	if n, ok := sizes[c]; ok {
		return n
	}
	if strings.HasSuffix(c, "_info") {
		return 4
	}
	return 8
}

// Every function of the tables is one of the headers', with parameters of these sizes.
func TestFunctions(t *testing.T) {
	text := regexp.MustCompile(`\(\s*CL_CALLBACK[^)]*\)\s*\([^)]*\)`).ReplaceAllString(header(t, "cl.h"), "* callback")
	text += header(t, "cl_ext.h")
	all := fields()
	commands := reflect.TypeFor[CommandTable]()
	for i := range commands.NumField() {
		all = append(all, commands.Field(i))
	}
	for _, f := range all {
		name := f.Tag.Get("dl")
		m := regexp.MustCompile(`\b` + name + `\s*\(([^;]*?)\)\s*(?:CL_|;)`).FindStringSubmatch(text)
		if m == nil {
			t.Errorf("%s is not in the header", name)
			continue
		}
		var c []string
		for p := range strings.SplitSeq(m[1], ",") {
			p = strings.Join(strings.Fields(strings.ReplaceAll(p, "const ", " ")), " ")
			if strings.Contains(p, "*") {
				p = "*"
			} else if words := strings.Fields(p); len(words) > 1 {
				p = strings.Join(words[:len(words)-1], " ")
			}
			c = append(c, p)
		}
		fits := f.Type.NumIn() == len(c)
		for i := 0; fits && i < len(c); i++ {
			fits = f.Type.In(i).Size() == size(c[i])
		}
		if !fits {
			t.Errorf("%s is %v here, and takes %q in the header", name, f.Type, c)
		}
	}
}

// The places of functions in the table of a driver are the header's.
func TestSlots(t *testing.T) {
	text := header(t, "cl_icd.h")
	_, body, _ := strings.Cut(text, "struct _cl_icd_dispatch {")
	body, _, _ = strings.Cut(body, "};")
	at := map[string]int{}
	n := 0
	for _, m := range regexp.MustCompile(`\b(?:cl_api_cl\w+|void\s*\*)\s*(cl\w+)\s*;`).FindAllStringSubmatch(body, -1) {
		if _, seen := at[m[1]]; !seen { // some are there for Windows and once more for others
			at[m[1]] = n
			n++
		}
	}
	for name, slot := range Slots() {
		if at[name] != slot {
			t.Errorf("%s is at %d here, and at %d in the header", name, slot, at[name])
		}
	}
}

// So are the values of constants.
func TestConstants(t *testing.T) {
	text := header(t, "cl.h") + header(t, "cl_ext.h")
	in := func(name string) (v int64, ok bool) {
		m := regexp.MustCompile(`#define\s+` + name + `\s+\(?(1\s*<<\s*\d+|-?\w+)\)?`).FindStringSubmatch(text)
		if m == nil {
			return 0, false
		}
		if _, shift, found := strings.Cut(m[1], "<<"); found {
			n, _ := strconv.Atoi(strings.TrimSpace(shift))
			return 1 << n, true
		}
		v, err := strconv.ParseInt(m[1], 0, 64)
		return v, err == nil
	}
	for r, name := range names {
		if v, ok := in(name); !ok || v != int64(r) {
			t.Errorf("%s is %d here, and %d in the header (%t)", name, r, v, ok)
		}
	}
	for name, want := range map[string]int64{"CL_PLATFORM_VERSION": PlatformVersion,
		"CL_PLATFORM_EXTENSIONS": PlatformExtensions, "CL_DEVICE_TYPE_ALL": AllDevices, "CL_DEVICE_TYPE_CPU": DeviceCPU,
		"CL_DEVICE_TYPE": DeviceType, "CL_DEVICE_MAX_COMPUTE_UNITS": DeviceComputeUnits,
		"CL_DEVICE_MAX_WORK_GROUP_SIZE": DeviceWorkGroupSize, "CL_DEVICE_MAX_WORK_ITEM_SIZES": DeviceWorkItemSizes,
		"CL_DEVICE_MAX_MEM_ALLOC_SIZE": DeviceMaxAllocation, "CL_DEVICE_MEM_BASE_ADDR_ALIGN": DeviceAddressAlign,
		"CL_DEVICE_GLOBAL_MEM_SIZE": DeviceGlobalMemory, "CL_DEVICE_LOCAL_MEM_SIZE": DeviceLocalMemory,
		"CL_DEVICE_AVAILABLE": DeviceAvailable, "CL_DEVICE_COMPILER_AVAILABLE": DeviceCompilerAvailable,
		"CL_DEVICE_SINGLE_FP_CONFIG": DeviceSingleFloat, "CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT": RoundedDivision,
		"CL_DEVICE_NAME": DeviceName, "CL_DRIVER_VERSION": DeviceDriverVersion, "CL_DEVICE_VERSION": DeviceVersion,
		"CL_DEVICE_EXTENSIONS": DeviceExtensions, "CL_DEVICE_HOST_UNIFIED_MEMORY": DeviceUnifiedMemory,
		"CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT": DeviceVectorFloat,
		"CL_DEVICE_OPENCL_C_VERSION":          DeviceLanguageVersion, "CL_DEVICE_SVM_CAPABILITIES": DeviceSVM,
		"CL_DEVICE_UUID_KHR": DeviceUUID, "CL_DEVICE_SVM_COARSE_GRAIN_BUFFER": SVMCoarse,
		"CL_DEVICE_SVM_FINE_GRAIN_BUFFER": SVMBuffers, "CL_DEVICE_SVM_FINE_GRAIN_SYSTEM": SVMSystem,
		"CL_QUEUE_PROPERTIES": QueueProperties, "CL_QUEUE_PROFILING_ENABLE": QueueProfiling,
		"CL_QUEUE_PRIORITY_KHR": QueuePriority, "CL_QUEUE_PRIORITY_HIGH_KHR": QueuePriorityHigh,
		"CL_QUEUE_PRIORITY_MED_KHR": QueuePriorityMedium, "CL_MEM_READ_WRITE": MemReadWrite,
		"CL_MEM_ALLOC_HOST_PTR": MemAllocHostPtr, "CL_MEM_SVM_FINE_GRAIN_BUFFER": MemSVMFine, "CL_MAP_READ": MapRead,
		"CL_MAP_WRITE": MapWrite, "CL_BUFFER_CREATE_TYPE_REGION": BufferRegion, "CL_PROGRAM_KERNEL_NAMES": ProgramKernelNames,
		"CL_PROGRAM_DEVICES": ProgramDevices, "CL_PROGRAM_BINARY_SIZES": ProgramBinarySizes,
		"CL_PROGRAM_BINARIES":  ProgramBinaries,
		"CL_PROGRAM_BUILD_LOG": BuildLog, "CL_KERNEL_NUM_ARGS": KernelNumArgs, "CL_KERNEL_WORK_GROUP_SIZE": KernelGroupSize,
		"CL_KERNEL_LOCAL_MEM_SIZE": KernelLocal, "CL_KERNEL_PRIVATE_MEM_SIZE": KernelPrivate,
		"CL_KERNEL_ARG_ADDRESS_QUALIFIER": ArgAddress, "CL_KERNEL_ARG_TYPE_NAME": ArgTypeName,
		"CL_KERNEL_ARG_ADDRESS_GLOBAL": AddressGlobal, "CL_KERNEL_ARG_ADDRESS_LOCAL": AddressLocal,
		"CL_KERNEL_ARG_ADDRESS_CONSTANT": AddressConstant, "CL_KERNEL_ARG_ADDRESS_PRIVATE": AddressPrivate,
		"CL_EVENT_COMMAND_EXECUTION_STATUS": EventStatus, "CL_COMPLETE": Complete, "CL_PROFILING_COMMAND_END": ProfileEnd,
		"CL_PROFILING_COMMAND_QUEUED": ProfileQueued, "CL_PROFILING_COMMAND_START": ProfileStart,
		"CL_CONTEXT_PLATFORM": ContextPlatform, "CL_DEVICE_COMMAND_BUFFER_CAPABILITIES_KHR": DeviceCommands,
		"CL_DEVICE_COMMAND_BUFFER_REQUIRED_QUEUE_PROPERTIES_KHR": DeviceCommandsQueue,
		"CL_COMMAND_BUFFER_CAPABILITY_SIMULTANEOUS_USE_KHR":      CommandsSimultaneous,
		"CL_COMMAND_BUFFER_FLAGS_KHR":                            CommandsFlags,
		"CL_COMMAND_BUFFER_SIMULTANEOUS_USE_KHR":                 CommandsSimultaneously} {
		if v, ok := in(name); !ok || v != want {
			t.Errorf("%s is %#x here, and %#x in the header (%t)", name, want, v, ok)
		}
	}
}

// Each function has a name and a place of its own.
func TestTable(t *testing.T) {
	seen := map[int]string{}
	for name, slot := range Slots() {
		if seen[slot] != "" {
			t.Errorf("%s and %s are at %d", name, seen[slot], slot)
		}
		seen[slot] = name
	}
	if len(seen) != reflect.TypeFor[Table]().NumField() {
		t.Errorf("%d places for %d functions", len(seen), reflect.TypeFor[Table]().NumField())
	}
}
