//go:build !darwin

package sys

func cpuModel() string { return "unknown" }
