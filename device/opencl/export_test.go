package opencl

import (
	"strings"

	"github.com/chorus-comms/chorus/device/driver"
	"github.com/chorus-comms/chorus/device/opencl/abi"
)

// HasExtension reports whether a device of the library has an extension.
func HasExtension(l *Library, name string) bool {
	for _, p := range l.platforms {
		for _, id := range l.deviceIDs(p) {
			all, _ := text(l, "clGetDeviceInfo", l.DeviceInfo, id, abi.DeviceExtensions)
			if strings.Contains(" "+all+" ", " "+name+" ") {
				return true
			}
		}
	}
	return false
}

// ProtectPoCL and SetForLibraries are protectPoCL and setForLibraries.
var ProtectPoCL, SetForLibraries = protectPoCL, setForLibraries

// HalfWritten is halfWritten.
var HalfWritten = halfWritten

// OnPart calls f when a driver whose memory can't be touched makes a part of a buffer.
func OnPart(d driver.Driver, f func()) {
	for _, b := range d.(*Driver).devs {
		part := b.BufferPart
		b.BufferPart = func(of abi.Mem, flags uint64, kind uint32, region *[2]uintptr, r *abi.Result) abi.Mem {
			f()
			return part(of, flags, kind, region, r)
		}
	}
}

// ProgramOf is the driver's program in an image, and whether its kernels take offsets.
func ProgramOf(data []byte) ([]byte, bool, error) {
	m, err := parseImage(data)
	if err != nil {
		return nil, false, err
	}
	return m.Program, m.Offsets, nil
}
