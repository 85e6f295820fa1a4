//go:build cgo

package capi

// #include "shim.h"
import "C"

import (
	"fmt"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/kernel"
)

// orderedTakes are how many results, inputs, numbers and integers an operation has.
var orderedTakes = map[string][4]int{
	"sort": {2, 1, 0, 2}, "kthvalue": {2, 1, 0, 2}, "median": {2, 1, 0, 1}, "nanmedian": {2, 1, 0, 1}, "mode": {2, 1, 0, 1},
	"searchsorted": {1, 3, 0, 1}, "isin": {1, 2, 0, 1}, "bincount": {1, 2, 0, 0}, "histc": {1, 1, 2, 0},
	"nonzero": {1, 1, 0, 0}, "masked_select": {1, 2, 0, 0}, "masked_scatter": {1, 2, 0, 0}, "starts": {1, 1, 0, 0},
	"inverse": {1, 2, 0, 0}, "lengths": {1, 1, 0, 1}, "roll": {1, 1, 0, 2}, "update_scale": {2, 1, 2, 1},
}

// ordered adds operations that sort, search, count and choose elements.
func (c *kernelCall) ordered(op string, outs, ins []kernel.Operand, numbers []*kernel.Number,
	integers []int, bad device.Ptr) error {
	p := &c.plan
	want, ok := orderedTakes[op]
	if got := [4]int{len(outs), len(ins), len(numbers), len(integers)}; !ok || got != want {
		return fmt.Errorf("%wkernel %s has %v results, inputs, numbers and integers, not %v", errKernelArgs, op, want, got)
	}
	switch op {
	case "sort":
		return p.Sort(outs[0], outs[1], ins[0], integers[0], integers[1] != 0)
	case "kthvalue":
		return p.Kth(outs[0], outs[1], ins[0], integers[0], integers[1])
	case "median", "nanmedian":
		return p.Median(outs[0], outs[1], ins[0], integers[0], op == "nanmedian")
	case "mode":
		return p.Mode(outs[0], outs[1], ins[0], integers[0])
	case "searchsorted":
		return p.Search(outs[0], ins[0], ins[1], ins[2], integers[0] != 0)
	case "isin":
		return p.Contains(outs[0], ins[0], ins[1], integers[0] != 0)
	case "bincount":
		return p.Bincount(outs[0], ins[0], ins[1], bad)
	case "histc":
		return p.Histc(outs[0], ins[0], numbers[0].Float, numbers[1].Float)
	case "nonzero":
		return p.Nonzero(outs[0], ins[0])
	case "masked_select":
		return p.MaskedSelect(outs[0], ins[0], ins[1])
	case "masked_scatter":
		return p.MaskedScatter(outs[0], ins[0], ins[1])
	case "starts":
		return p.Starts(outs[0], ins[0])
	case "inverse":
		return p.Inverse(outs[0], ins[0], ins[1])
	case "lengths":
		return p.Lengths(outs[0], ins[0], integers[0])
	case "roll":
		return p.Roll(outs[0], ins[0], integers[0], integers[1])
	}
	return p.UpdateScale(outs[0], outs[1], ins[0], numbers[0].Float, numbers[1].Float, integers[0])
}
