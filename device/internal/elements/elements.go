// Package elements has the source of copy_elements, which drivers with compilers give out (device.Elements).
package elements

import _ "embed"

// Source is for NVRTC, hiprtc and compilers of OpenCL C, and for others with KERNEL and DEVICE defined before it.
//
//go:embed elements.cu
var Source []byte
