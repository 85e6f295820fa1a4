package opencl

import "testing"

// A kernel's head gets offsets where it's there once, as a definition of as many parameters as the compiler tells.
func TestWithOffsets(t *testing.T) {
	ints := []string{"global int*", "", "constant float*"}
	for _, x := range []struct {
		source string
		types  []string
		want   string
	}{
		{"DEVICE int g(int x) { return x; }\nkernel void f(GLOBAL const int *restrict x, int n, " +
			"constant float *y) {\n\tx[0];\n}", ints, "DEVICE int g(int x) { return x; }\nkernel void f_at(global uchar *chorus_a0, ulong chorus_o0, int n, " +
			"constant uchar *chorus_a2, ulong chorus_o2) { GLOBAL const int *restrict x = (global int*)" +
			"(chorus_a0 ? chorus_a0 + chorus_o0 : chorus_a0); constant float *y = (constant float*)" +
			"(chorus_a2 ? chorus_a2 + chorus_o2 : chorus_a2);\n\tx[0];\n}"},
		{"kernel void ff(int n) {}\nkernel void\nf (int n)\n{}", []string{""},
			"kernel void ff(int n) {}\nkernel void f_at(int n) {}"},
		{"kernel void f(TYPE(a, b) n) {}", []string{""}, "kernel void f_at(TYPE(a, b) n) {}"},
		{"kernel void f(global int x[], int n, constant float *y) {}", ints, ""},
		{"kernel void f(int n);\nkernel void f(int n) {}", []string{""}, ""},
		{"kernel void f(PARAMETERS) {}", ints, ""},
		{"MAKE(f, int n)", []string{""}, ""},
		{"kernel void f(int n", []string{""}, ""},
		{"kernel void f(int n) MORE {}", []string{""}, ""},
	} {
		if got, ok := withOffsets(x.source, "f", x.types); got != x.want || ok != (x.want != "") {
			t.Errorf("%s\n%v: %q", x.source, ok, got)
		}
	}
}
