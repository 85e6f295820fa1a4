//go:build !linux

package accinte

// bound is nothing where threads have no ids to be told by: the driver is no [device.Threads] there.
type bound struct{}
