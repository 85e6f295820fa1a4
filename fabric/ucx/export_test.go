package ucx

import "testing"

// Pretend has the kernel describe RDMA devices in a folder, and takes transports of these families for fast ones, until
// the test ends.
func Pretend(t testing.TB, folder string, families ...string) {
	devices, fast := sysfs, fastTransports
	sysfs, fastTransports = folder, families
	t.Cleanup(func() { sysfs, fastTransports = devices, fast })
}
