package kern

import "golang.org/x/sys/cpu"

// nativeLevels lists the instruction sets that this processor has and GODEBUG leaves on. BMI2, F16C and FMA came with
// AVX2 on every processor, but a virtual machine may hide them one by one.
func nativeLevels() []*level {
	var usable []*level
	x := &cpu.X86
	if x.HasAVX512F && x.HasAVX512BW && x.HasAVX512DQ && x.HasAVX512VL && x.HasBMI2 {
		if x.HasAVX512BF16 {
			usable = append(usable, &avx512bf16)
		}
		usable = append(usable, &avx512)
	}
	if x.HasAVX2 && x.HasF16C && x.HasFMA {
		usable = append(usable, &avx2)
	}
	return usable
}
