package kernels

import (
	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/kernel"
)

// Operations on elements, places and random numbers.

// computed are operands of any number, and the type that the operation computes in.
type computed struct {
	Op      string
	Compute dtype.DType
	Outs    []kernel.Operand `row:"out"`
	Ins     []kernel.Operand
	Numbers []*kernel.Number
}

type elementwise struct{ computed }

func (x *elementwise) add(p *kernel.Plan) error {
	return p.Elementwise(x.Op, x.Compute, x.Outs, x.Ins, x.Numbers...)
}

type reduce struct {
	Op      string
	Compute dtype.DType
	Outs    []kernel.Operand `row:"out"`
	In      kernel.Operand
	Numbers []*kernel.Number
	Dims    []int
}

func (x *reduce) add(p *kernel.Plan) error {
	return p.Reduce(x.Op, x.Compute, x.Outs, x.In, x.Dims, x.Numbers...)
}

type scan struct {
	Op      string
	Compute dtype.DType
	Outs    []kernel.Operand `row:"out"`
	In      kernel.Operand
	Dim     int
}

func (x *scan) add(p *kernel.Plan) error { return p.Scan(x.Op, x.Compute, x.Outs, x.In, x.Dim) }

type triangle struct {
	Op       string
	Out      kernel.Operand `row:"out"`
	In       kernel.Operand
	Diagonal int
}

func (x *triangle) add(p *kernel.Plan) error {
	return p.Triangle(x.Out, x.In, x.Op == "triu", x.Diagonal)
}

type arange struct {
	Compute     dtype.DType
	Out         kernel.Operand `row:"out"`
	Start, Step *kernel.Number
}

func (x *arange) add(p *kernel.Plan) error { return p.Arange(x.Out, x.Compute, x.Start, x.Step) }

type linspace struct {
	Compute    dtype.DType
	Out        kernel.Operand `row:"out"`
	Start, End float64
}

func (x *linspace) add(p *kernel.Plan) error { return p.Linspace(x.Out, x.Compute, x.Start, x.End) }

type eye struct {
	Out kernel.Operand `row:"out"`
}

func (x *eye) add(p *kernel.Plan) error { return p.Eye(x.Out) }

type index struct {
	Op      string
	Out     kernel.Operand `row:"out"`
	In      kernel.Operand
	Indexes []kernel.Index
	Bad     device.Ptr
}

func (x *index) add(p *kernel.Plan) error {
	if x.Op == "take" {
		return p.Take(x.Out, x.In, x.Bad, x.Indexes...)
	}
	return p.Put(x.Op, x.Out, x.In, x.Bad, x.Indexes...)
}

type roll struct {
	Out        kernel.Operand `row:"out"`
	In         kernel.Operand
	Shift, Dim int
}

func (x *roll) add(p *kernel.Plan) error { return p.Roll(x.Out, x.In, x.Shift, x.Dim) }

// random are numbers of chorus_random_take.
type random struct {
	State        kernel.Operand `row:"optional"`
	Seed, Offset int
}

func (r *random) numbers() kernel.Random {
	return kernel.Random{Seed: uint64(r.Seed), Offset: uint64(r.Offset), State: r.State.Ptr}
}

type dropout struct {
	Out, Mask kernel.Operand `row:"out"`
	In        kernel.Operand
	Keep      float64
	random
}

func (x *dropout) add(p *kernel.Plan) error {
	return p.Dropout(x.Out, x.Mask, x.In, x.numbers(), x.Keep)
}

type shuffle struct {
	Data kernel.Operand `row:"out"`
	Keys kernel.Operand
	random
}

func (x *shuffle) add(p *kernel.Plan) error { return p.Shuffle(x.Data, x.Keys, x.numbers()) }
