package gloo_test

import (
	"bytes"
	"testing"

	"go.uber.org/goleak"

	_ "github.com/chorus-comms/chorus/comm/gloo"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestTwo is a rank in Go and one of PyTorch.
func TestTwo(t *testing.T) {
	steps := []step{{Kind: "all_reduce", Op: "sum", DType: "float32", Count: 1000}, {Kind: "barrier", DType: "float32"},
		{Kind: "all_reduce", Op: "sum", DType: "int64", Count: 3}}
	for _, ranks := range splits(2) {
		t.Run(ranks, func(t *testing.T) {
			all := results(t, ranks, steps)
			if len(all[0]) != 4000+24 || !bytes.Equal(all[0], all[1]) {
				t.Errorf("%d and %d bytes that differ", len(all[0]), len(all[1]))
			}
		})
	}
}
