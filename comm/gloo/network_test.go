package gloo_test

import "testing"

// TestLazy is TestWithPyTorch with ranks of PyTorch that connect when they first need to.
func TestLazy(t *testing.T) {
	steps := append(everything([]string{"float32"}, 17), groups(4)...)
	compare(t, 4, []string{"pgpg"}, steps, "TORCH_GLOO_LAZY_INIT=1")
}

// TestSeveralInterfaces is TestWithPyTorch where the collectives take turns on two interfaces; of the messages, those
// to anyone take the first, and those of rings the second, by their tags.
func TestSeveralInterfaces(t *testing.T) {
	t.Setenv("GLOO_SOCKET_IFNAME", "lo,lo")
	steps := append(everything([]string{"float32"}, 17), groups(4)...)
	compare(t, 4, []string{"pggg", "gppg"}, steps, "GLOO_SOCKET_IFNAME=lo,lo")
}
