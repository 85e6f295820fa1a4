//go:build !darwin

package cpuinfo

func model() string { return "unknown" }
