//go:build !linux

package accinte

// bound is empty where threads have no ids: the driver doesn't implement [device.Threads] there.
type bound struct{}
