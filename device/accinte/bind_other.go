//go:build !linux

package accinte

// bound is empty where threads have no ids: the driver doesn't implement [driver.Threads] there.
type bound struct{}
