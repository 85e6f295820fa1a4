//go:build cgo

package capi

// #include "shim.h"
import "C"

import (
	"fmt"
	"strings"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/kernel"
)

// networkNames are the operations of the kinds of kernels that neural networks are made of.
var networkNames = map[C.int32_t][]string{
	C.CHORUS_KERNEL_CONVOLUTION: {"convolution", "convolution_backward"},
	C.CHORUS_KERNEL_POOL: {"max", "max_backward", "average", "average_backward", "im2col", "col2im", "max_unpool",
		"max_unpool_backward"},
	C.CHORUS_KERNEL_UPSAMPLE: {"nearest", "nearest_backward", "nearest_exact", "nearest_exact_backward", "linear",
		"linear_backward", "cubic", "cubic_backward"},
	C.CHORUS_KERNEL_PAD: {"reflect", "reflect_backward", "replicate", "replicate_backward", "circular",
		"circular_backward"},
	C.CHORUS_KERNEL_GRID_SAMPLE: {"bilinear", "bilinear_backward", "nearest", "nearest_backward"},
	C.CHORUS_KERNEL_ATTENTION:   {"attention", "attention_backward"},
	C.CHORUS_KERNEL_BATCH_NORM:  {"batch_norm", "batch_norm_backward"},
	C.CHORUS_KERNEL_BAG:         {"embedding_bag", "embedding_backward", "weights_backward"},
	C.CHORUS_KERNEL_DISTANCE:    {"cdist", "cdist_backward"},
	C.CHORUS_KERNEL_NLL:         {"nll_loss", "nll_loss_backward"},

	C.CHORUS_KERNEL_SCALED_MATMUL: {"scaled_matmul"},
	C.CHORUS_KERNEL_SPARSE_MATMUL: {"sparse_matmul"},
}

// spatial is how many dimensions of space images have at most.
const spatial = 3

// networkForm is where a call's description stays while it is added, so that none is allocated.
type networkForm struct {
	convolution kernel.Convolution
	pool        kernel.Pool
	upsampling  kernel.Upsampling
	scales      [spatial]float64
	grid        kernel.GridSampling
	attention   kernel.Attention
	batch       kernel.BatchNorm
	bags        kernel.Bags
	nll         kernel.NLL
	product     kernel.Scales
	sparse      kernel.SparseRows
}

// addNetwork adds an operation of networkNames.
func (c *kernelCall) addNetwork(kind int, op string, outs, ins []kernel.Operand, numbers []*kernel.Number,
	integers []int, bad device.Ptr) error {
	p, form := &c.plan, &c.network
	forward, backward := strings.CutSuffix(op, "_backward")
	wants := func(nOuts, nIns, nNumbers, nIntegers int) error {
		return wantsKernel(op, outs, ins, numbers, integers, nOuts, nIns, nNumbers, nIntegers)
	}
	switch kind {
	case C.CHORUS_KERNEL_CONVOLUTION:
		if len(integers) < 2 {
			return wants(len(outs), 3, 0, 2)
		}
		x := &form.convolution
		*x = kernel.Convolution{Transposed: integers[0] != 0, Groups: integers[1]}
		list := integers[2:]
		d := len(list) / 3
		if !backward {
			if err := wants(1, 3, 0, 2+3*d); err != nil {
				return err
			}
		} else if err := wants(3, 3, 0, 2+3*d); err != nil {
			return err
		}
		x.Stride, x.Padding, x.Dilation = list[:d], list[d:2*d], list[2*d:]
		if backward {
			return p.ConvolutionBackward(outs[0], outs[1], outs[2], ins[0], ins[1], ins[2], x)
		}
		return p.Convolution(outs[0], ins[0], ins[1], ins[2], x)
	case C.CHORUS_KERNEL_POOL:
		return c.addPool(op, outs, ins, integers, bad, wants)
	case C.CHORUS_KERNEL_UPSAMPLE:
		if err := wants(1, 1, len(numbers), 2); err != nil {
			return err
		}
		u := &form.upsampling
		*u = kernel.Upsampling{Mode: forward, AlignCorners: integers[0] != 0, Antialias: integers[1] != 0}
		if n := len(numbers); n > 0 && n <= spatial {
			for k, v := range numbers {
				form.scales[k] = v.Float
			}
			u.Scales = form.scales[:n]
		}
		if backward {
			return p.UpsampleBackward(outs[0], ins[0], u)
		}
		return p.Upsample(outs[0], ins[0], u)
	case C.CHORUS_KERNEL_PAD:
		if err := wants(1, 1, 0, len(integers)); err != nil {
			return err
		}
		if backward {
			return p.PadImageBackward(forward, outs[0], ins[0], integers)
		}
		return p.PadImage(forward, outs[0], ins[0], integers)
	case C.CHORUS_KERNEL_GRID_SAMPLE:
		g := &form.grid
		if len(integers) != 2 || integers[0] < 0 || integers[0] > 2 {
			return wants(len(outs), len(ins), 0, 2)
		}
		*g = kernel.GridSampling{Mode: forward, Border: [...]string{"zeros", "border", "reflection"}[integers[0]],
			AlignCorners: integers[1] != 0}
		if backward {
			if err := wants(2, 3, 0, 2); err != nil {
				return err
			}
			return p.GridSampleBackward(outs[0], outs[1], ins[0], ins[1], ins[2], g)
		}
		if err := wants(1, 2, 0, 2); err != nil {
			return err
		}
		return p.GridSample(outs[0], ins[0], ins[1], g)
	case C.CHORUS_KERNEL_ATTENTION:
		if len(ins) == 0 || len(numbers) != 2 || len(integers) != 3 {
			return wants(len(outs), len(ins), 2, 3)
		}
		a := &form.attention
		*a = kernel.Attention{Scale: numbers[0], Causal: integers[0] != 0, Dropout: numbers[1].Float,
			Random: randomAt(ins, integers)}
		if !backward {
			if err := wants(2, 5, 2, 3); err != nil {
				return err
			}
			a.Mask = ins[3]
			return p.Attention(outs[0], outs[1], ins[0], ins[1], ins[2], a)
		}
		if err := wants(3, 8, 2, 3); err != nil {
			return err
		}
		a.Mask = ins[6]
		return p.AttentionBackward(outs[0], outs[1], outs[2], ins[0], ins[1], ins[2], ins[3], ins[4], ins[5], a)
	case C.CHORUS_KERNEL_BATCH_NORM:
		if !backward {
			if err := wants(3, 5, 2, 1); err != nil {
				return err
			}
			form.batch = kernel.BatchNorm{Weight: ins[1], Bias: ins[2], RunningMean: ins[3], RunningVar: ins[4],
				SavedMean: outs[1], SavedRstd: outs[2], Training: integers[0] != 0, Momentum: numbers[0].Float,
				Eps: numbers[1].Float}
			return p.BatchNorm(outs[0], ins[0], &form.batch)
		}
		if err := wants(3, 7, 1, 1); err != nil {
			return err
		}
		form.batch = kernel.BatchNorm{Weight: ins[2], RunningMean: ins[3], RunningVar: ins[4], SavedMean: ins[5],
			SavedRstd: ins[6], Training: integers[0] != 0, Eps: numbers[0].Float}
		return p.BatchNormBackward(outs[0], outs[1], outs[2], ins[0], ins[1], &form.batch)
	case C.CHORUS_KERNEL_BAG:
		return c.addBag(op, outs, ins, integers, bad, wants)
	case C.CHORUS_KERNEL_DISTANCE:
		if backward {
			if err := wants(1, 4, 1, 0); err != nil {
				return err
			}
			return p.DistanceBackward(outs[0], ins[0], ins[1], ins[2], ins[3], numbers[0].Float)
		}
		if err := wants(1, 2, 1, 0); err != nil {
			return err
		}
		return p.Distance(outs[0], ins[0], ins[1], numbers[0].Float)
	case C.CHORUS_KERNEL_SCALED_MATMUL:
		if err := wants(1, 6, 0, 3); err != nil {
			return err
		}
		form.product = kernel.Scales{A: ins[3], B: ins[4], Result: ins[5]}
		for k, o := range [...]*kernel.Operand{&outs[0], &ins[0], &ins[1]} {
			if err := float8(&form.product, o, k, integers[k]); err != nil {
				return err
			}
		}
		return p.ScaledMatmul(outs[0], ins[0], ins[1], ins[2], &form.product)
	case C.CHORUS_KERNEL_SPARSE_MATMUL:
		if err := wants(1, 5, 2, min(len(integers), 1)); err != nil {
			return err
		}
		p.Atomics = len(integers) == 1 && integers[0] == 2
		form.sparse = kernel.SparseRows{Starts: ins[0], Places: ins[1], Values: ins[2]}
		return p.SparseMatmul(outs[0], &form.sparse, ins[3], ins[4], numbers[0], numbers[1])
	case C.CHORUS_KERNEL_NLL:
		if len(integers) != 3 || integers[1] < 0 || integers[1] > int(kernel.Sum) {
			return wants(len(outs), len(ins), 0, 3)
		}
		l := &form.nll
		*l = kernel.NLL{Class: integers[0], Averaging: kernel.Averaging(integers[1]), Ignore: int64(integers[2]), Bad: bad}
		if backward {
			if err := wants(1, 4, 0, 3); err != nil {
				return err
			}
			l.Weight = ins[2]
			return p.NLLBackward(outs[0], ins[0], ins[1], ins[3], l)
		}
		if err := wants(2, 3, 0, 3); err != nil {
			return err
		}
		l.Weight = ins[2]
		return p.NLL(outs[0], outs[1], ins[0], ins[1], l)
	}
	return fmt.Errorf("%wkind %d", errKernelArgs, kind)
}

// addPool adds an operation on windows of images.
func (c *kernelCall) addPool(op string, outs, ins []kernel.Operand, integers []int, bad device.Ptr,
	wants func(nOuts, nIns, nNumbers, nIntegers int) error) error {
	p, x := &c.plan, &c.network.pool
	switch op {
	case "max_unpool":
		if err := wants(1, 2, 0, 0); err != nil {
			return err
		}
		return p.MaxUnpool(outs[0], ins[0], ins[1], bad)
	case "max_unpool_backward":
		if err := wants(1, 2, 0, 0); err != nil {
			return err
		}
		return p.MaxUnpoolBackward(outs[0], ins[0], ins[1], bad)
	}
	if len(integers) < 2 || (len(integers)-2)%4 != 0 {
		return wants(len(outs), len(ins), 0, 2)
	}
	list := integers[2:]
	d := len(list) / 4
	*x = kernel.Pool{CountPadding: integers[0] != 0, Divisor: integers[1], Adaptive: d == 0}
	if d > 0 {
		x.Kernel, x.Stride, x.Padding, x.Dilation = list[:d], list[d:2*d], list[2*d:3*d], list[3*d:]
	}
	nOuts, nIns := 1, 1
	switch op {
	case "max":
		nOuts = 2
	case "max_backward":
		nIns = 2
	case "average", "average_backward":
		x.Dilation = nil
	}
	if err := wants(nOuts, nIns, 0, len(integers)); err != nil {
		return err
	}
	switch op {
	case "max":
		return p.MaxPool(outs[0], outs[1], ins[0], x)
	case "max_backward":
		return p.MaxPoolBackward(outs[0], ins[0], ins[1], x)
	case "average":
		return p.AveragePool(outs[0], ins[0], x)
	case "average_backward":
		return p.AveragePoolBackward(outs[0], ins[0], x)
	case "im2col":
		return p.Columns(outs[0], ins[0], x)
	}
	return p.AddColumns(outs[0], ins[0], x)
}

// addBag adds an operation on the bags of an embedding.
func (c *kernelCall) addBag(op string, outs, ins []kernel.Operand, integers []int, bad device.Ptr,
	wants func(nOuts, nIns, nNumbers, nIntegers int) error) error {
	p, b := &c.plan, &c.network.bags
	if len(integers) != 3 || integers[0] < 0 || integers[0] > int(kernel.BagMax) {
		return wants(len(outs), len(ins), 0, 3)
	}
	*b = kernel.Bags{Mode: kernel.BagMode(integers[0]), Padding: integers[1], Bad: bad}
	switch op {
	case "embedding_bag":
		if err := wants(4, 4, 0, 3); err != nil {
			return err
		}
		b.Indexes, b.Offsets, b.Weights = ins[1], ins[2], ins[3]
		b.Bag, b.Size, b.Max = outs[1], outs[2], outs[3]
		return p.EmbeddingBag(outs[0], ins[0], b)
	case "embedding_backward":
		if err := wants(1, 6, 0, 3); err != nil {
			return err
		}
		b.Indexes, b.Weights, b.Bag, b.Size, b.Max = ins[1], ins[2], ins[3], ins[4], ins[5]
		return p.EmbeddingBackward(outs[0], ins[0], b, integers[2] != 0)
	}
	if err := wants(1, 4, 0, 3); err != nil {
		return err
	}
	b.Indexes, b.Bag = ins[2], ins[3]
	return p.EmbeddingWeightsBackward(outs[0], ins[0], ins[1], b)
}

// group takes the three integers that say how a normalization's rows are groups of channels.
func group(n *kernel.Norm, integers []int) {
	if len(integers) == 3 {
		n.Groups, n.Channels, n.Inner = integers[0], integers[1], integers[2]
	}
}

// wantsKernel is an error unless a kernel has its numbers of arguments.
func wantsKernel(op string, outs, ins []kernel.Operand, numbers []*kernel.Number, integers []int, nOuts, nIns, nNumbers,
	nIntegers int) error {
	if len(outs) != nOuts || len(ins) != nIns || len(numbers) != nNumbers || len(integers) != nIntegers {
		return fmt.Errorf("%wkernel %s has %d results, %d inputs, %d numbers and %d integers, not %d, %d, %d and %d",
			errKernelArgs, op, nOuts, nIns, nNumbers, nIntegers, len(outs), len(ins), len(numbers), len(integers))
	}
	return nil
}

// float8 makes matrix k of a product one of a format of 8 bits; 0 is none.
func float8(s *kernel.Scales, o *kernel.Operand, k, format int) error {
	if format == 0 {
		return nil
	}
	if o.Type != dtype.Uint8 || format < 0 || format > 4 {
		return refused("a scaled product of %v in format %d", o.Type, format)
	}
	o.Type = [...]dtype.DType{dtype.Float8E4M3FN, dtype.Float8E5M2}[(format-1)%2]
	if format > 2 {
		s.FNUZ |= 1 << k
	}
	return nil
}
