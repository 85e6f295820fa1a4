package kern

import "golang.org/x/sys/cpu"

// nativeLevels lists the instruction sets that this processor has and GODEBUG leaves on. BMI2 and F16C came with AVX2 on every
// processor, but a virtual machine may hide them one by one.
func nativeLevels() []*level {
	var usable []*level
	x := &cpu.X86
	if x.HasAVX512F && x.HasAVX512BW && x.HasAVX512DQ && x.HasAVX512VL && x.HasBMI2 {
		usable = append(usable, &avx512)
	}
	if x.HasAVX2 && x.HasF16C {
		usable = append(usable, &avx2)
	}
	return usable
}
