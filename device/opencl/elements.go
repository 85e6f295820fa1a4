package opencl

import "github.com/chorus-comms/chorus/device/internal/elements"

// ElementsImage is [device.Elements].ElementsImage: a source, which needs a device with numbers of 64 bits (fp64).
func (d *Driver) ElementsImage(int) ([]byte, error) { return elements.Source, nil }
