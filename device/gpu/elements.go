package gpu

import "github.com/chorus-comms/chorus/device/internal/elements"

// ElementsImage is [device.Elements].ElementsImage: a source, which needs NVRTC or hiprtc.
func (d *Driver) ElementsImage(int) ([]byte, error) { return elements.Source, nil }
