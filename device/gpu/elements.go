package gpu

import _ "embed"

//go:embed elements.cu
var elements []byte

// ElementsImage is [device.Elements].ElementsImage: a source, which needs NVRTC or hiprtc.
func (d *Driver) ElementsImage(int) ([]byte, error) { return elements, nil }
