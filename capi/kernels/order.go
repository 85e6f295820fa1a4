package kernels

import (
	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/kernel"
)

// Operations that sort, search, count and choose elements.

// sorted are an order's elements, and their places.
type sorted struct {
	Values, Indexes kernel.Operand `row:"out,optional"`
	In              kernel.Operand
	Dim             int
}

type sort struct {
	sorted
	Descending bool
}

func (x *sort) add(p *kernel.Plan) error {
	return p.Sort(x.Values, x.Indexes, x.In, x.Dim, x.Descending)
}

type kth struct {
	sorted
	K int
}

func (x *kth) add(p *kernel.Plan) error { return p.Kth(x.Values, x.Indexes, x.In, x.Dim, x.K) }

type median struct {
	Op string
	sorted
}

func (x *median) add(p *kernel.Plan) error {
	return p.Median(x.Values, x.Indexes, x.In, x.Dim, x.Op == "nanmedian")
}

type mode struct{ sorted }

func (x *mode) add(p *kernel.Plan) error { return p.Mode(x.Values, x.Indexes, x.In, x.Dim) }

type search struct {
	Out            kernel.Operand `row:"out"`
	Values, Sorted kernel.Operand
	Sorter         kernel.Operand `row:"optional"`
	Right          bool
}

func (x *search) add(p *kernel.Plan) error {
	return p.Search(x.Out, x.Values, x.Sorted, x.Sorter, x.Right)
}

type contains struct {
	Out            kernel.Operand `row:"out"`
	Values, Sorted kernel.Operand
	Invert         bool
}

func (x *contains) add(p *kernel.Plan) error { return p.Contains(x.Out, x.Values, x.Sorted, x.Invert) }

type bincount struct {
	Out     kernel.Operand `row:"out"`
	In      kernel.Operand
	Weights kernel.Operand `row:"optional"`
	Bad     device.Ptr
}

func (x *bincount) add(p *kernel.Plan) error { return p.Bincount(x.Out, x.In, x.Weights, x.Bad) }

type histogram struct {
	Out       kernel.Operand `row:"out"`
	In        kernel.Operand
	Low, High float64
}

func (x *histogram) add(p *kernel.Plan) error { return p.Histc(x.Out, x.In, x.Low, x.High) }

type nonzero struct {
	Out kernel.Operand `row:"out"`
	In  kernel.Operand
}

func (x *nonzero) add(p *kernel.Plan) error { return p.Nonzero(x.Out, x.In) }

type maskedSelect struct {
	Out      kernel.Operand `row:"out"`
	In, Mask kernel.Operand
}

func (x *maskedSelect) add(p *kernel.Plan) error { return p.MaskedSelect(x.Out, x.In, x.Mask) }

type maskedScatter struct {
	Out      kernel.Operand `row:"out"`
	Mask, In kernel.Operand
}

func (x *maskedScatter) add(p *kernel.Plan) error { return p.MaskedScatter(x.Out, x.Mask, x.In) }

type starts struct {
	Out kernel.Operand `row:"out"`
	In  kernel.Operand
}

func (x *starts) add(p *kernel.Plan) error { return p.Starts(x.Out, x.In) }

type inverse struct {
	Out    kernel.Operand `row:"out"`
	Starts kernel.Operand
	Order  kernel.Operand `row:"optional"`
}

func (x *inverse) add(p *kernel.Plan) error { return p.Inverse(x.Out, x.Starts, x.Order) }

type lengths struct {
	Out      kernel.Operand `row:"out"`
	Places   kernel.Operand
	Elements int
}

func (x *lengths) add(p *kernel.Plan) error { return p.Lengths(x.Out, x.Places, x.Elements) }
