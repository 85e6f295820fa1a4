package accl

import (
	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/device/accinte"
	"github.com/chorus-comms/chorus/device/driver"
)

// Name is the name under which the package registers itself.
const Name = "accl"

func init() {
	device.RegisterLoader(Name, func() (driver.Driver, error) { return New(Options{}) })
}

// Options say how the devices are.
type Options struct {
	Devices     int // 8 if 0
	MemoryBytes int // of each device; 4 GiB if 0
}

// Driver is a set of devices: the emulated ones of package accinte, with engines beside their memory.
type Driver struct{ *accinte.Driver }

// New makes devices. Close them to give their addresses back.
func New(o Options) (*Driver, error) {
	const usual = 8
	if o.Devices == 0 {
		o.Devices = usual
	}
	d, err := accinte.New(accinte.Options{Name: Name, Devices: o.Devices, MemoryBytes: o.MemoryBytes})
	if err != nil {
		return nil, err
	}
	return &Driver{d}, nil
}

// Properties is [driver.Driver].Properties.
func (d *Driver) Properties(dev int) (driver.Properties, error) {
	p, err := d.Driver.Properties(dev)
	if err == nil {
		p.Name = "Chorus ACCL engine"
		copy(p.UUID[:8], "accl\x00\x00\x00\x00")
	}
	return p, err
}
