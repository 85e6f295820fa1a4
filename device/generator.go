package device

import "github.com/chorus-comms/chorus/device/rng"

// Generator returns the device's default random number generator. The first call makes it, with a seed that differs
// from run to run. For memory that the host computes on, it's mt19937 with PyTorch's CPU rules. For other devices, it's
// Philox with the rules of CUDA kernels, without a GPU's limit on threads.
func (d *Device) Generator() (rng.Generator, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.gen == nil {
		g := d.NewGenerator(rng.DefaultSeed)
		if _, err := rng.SeedRandomly(g); err != nil {
			return nil, err
		}
		d.gen = g
	}
	return d.gen, nil
}

// NewGenerator returns another generator of the device's kind.
func (d *Device) NewGenerator(seed uint64) rng.Generator {
	if d.props.HostAccess {
		return rng.NewCPU(seed)
	}
	return rng.NewCUDA(seed, rng.GPU{})
}
