package opencl

import (
	"strings"
	"testing"
)

// A kernel's pointers to buffers get offsets where its head is there, or is so after macros with pointers are expanded.
func TestWithOffsets(t *testing.T) {
	const typed = "typedef uchar chorus_at;\n"
	for source, want := range map[string]string{
		"DEVICE int g(global int *x) { return *x; }\nKERNEL void f(GLOBAL const int *restrict x, int n,\n" +
			"\tconstant float *y) {\n\tx[0];\n}": "DEVICE int g(global int *x) { return *x; }\n" +
			"KERNEL void f(global chorus_at *restrict at_x, ulong by_x, int n,constant chorus_at *at_y, ulong by_y) {" +
			" GLOBAL const int *restrict x = (global void *)(at_x + by_x);\n\tconstant float *y = (constant void *)" +
			"(at_y + by_y);\n\tx[0];\n}",
		"#define POINTERS GLOBAL f32 *o0, GLOBAL const f32 *i0\n#define MORE , layout l\nkernel void ENTRY(POINTERS MORE)\n{}": "" +
			"#define POINTERS GLOBAL f32 *o0, GLOBAL const f32 *i0\n#define MORE , layout l\nkernel void ENTRY(" +
			"global chorus_at *at_o0, ulong by_o0,global chorus_at *at_i0, ulong by_i0 MORE) {" +
			"GLOBAL f32 *o0 = (global void *)(at_o0 + by_o0); GLOBAL const f32 *i0 = (global void *)(at_i0 + by_i0);}",
		"kernel void f(int n, local char *s) {}\n__kernel void g(volatile __global char *c, local int *s) {}": "" +
			"kernel void f(int n, local char *s) {}\n__kernel void g(global chorus_at *at_c, ulong by_c, local int *s) {" +
			"volatile __global char *c = (global void *)(at_c + by_c);}",
		"kernel void f(int n) {}":                      "",
		"kernel void f(global int x[], PARAMETERS) {}": "",
		"kernel void f(global int *x);":                "",
		"kernel void f(global int *x":                  "",
		"kernel void f(global int *x) MORE {}":         "",
		"MAKE(f, global int *x)":                       "",
		"#ifdef B\n#define A global int *x\n#else\n#define A int n\n#endif\nkernel void f(A, global int *y) {}": "",
	} {
		got, ok := withOffsets(source)
		space := strings.NewReplacer(" ", "", "\n", "", "\t", "").Replace
		if ok != (want != "") || ok && space(got) != space(typed+want) {
			t.Errorf("%s\n%v: %q", source, ok, got)
		}
	}
}
