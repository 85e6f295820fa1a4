package kernels

import (
	"fmt"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/kernel"
	"github.com/chorus-comms/chorus/kernel/loader"
)

// Products of matrices, attention, embeddings and distances.

type matmul struct {
	Op          string
	Out         kernel.Operand `row:"out"`
	A, B        kernel.Operand
	C           kernel.Operand `row:"optional"`
	Alpha, Beta *kernel.Number
	Atomics     bool `row:"optional"`
}

func (x *matmul) open(p *kernel.Plan, l *loader.Loader) {
	if x.A.Type == dtype.Int8 {
		p.FusedGEMM = l.FusedGEMM()
	}
}

func (x *matmul) add(p *kernel.Plan) error {
	p.Atomics = x.Atomics
	return p.Matmul(x.Out, x.A, x.B, x.C, x.Alpha, x.Beta, x.Op)
}

type scaledMatmul struct {
	Out                         kernel.Operand `row:"out"`
	A, B                        kernel.Operand
	Bias                        kernel.Operand `row:"optional"`
	ScaleA, ScaleB              kernel.Operand
	ScaleOut                    kernel.Operand `row:"optional"`
	FormatOut, FormatA, FormatB int

	of kernel.Scales
}

func (x *scaledMatmul) open(p *kernel.Plan, l *loader.Loader) { p.FusedGEMM = l.FusedGEMM() }

func (x *scaledMatmul) add(p *kernel.Plan) error {
	x.of = kernel.Scales{A: x.ScaleA, B: x.ScaleB, Result: x.ScaleOut}
	formats := [...]int{x.FormatOut, x.FormatA, x.FormatB}
	for k, o := range [...]*kernel.Operand{&x.Out, &x.A, &x.B} {
		if formats[k] == 0 {
			continue
		}
		if o.Type != dtype.Uint8 || formats[k] < 0 || formats[k] > 4 {
			return fmt.Errorf("%w: a scaled product of %v in format %d", ErrArguments, o.Type, formats[k])
		}
		o.Type = [...]dtype.DType{dtype.Float8E4M3FN, dtype.Float8E5M2}[(formats[k]-1)%2]
		if formats[k] > 2 {
			x.of.FNUZ |= 1 << k
		}
	}
	return p.ScaledMatmul(x.Out, x.A, x.B, x.Bias, &x.of)
}

type sparseMatmul struct {
	Out                     kernel.Operand `row:"out"`
	Starts, Columns, Values kernel.Operand // the first place of each row and their count, and the columns and elements
	B                       kernel.Operand
	C                       kernel.Operand `row:"optional"`
	Alpha, Beta             *kernel.Number
	Library                 int `row:"optional"`

	of kernel.SparseRows
}

func (x *sparseMatmul) open(p *kernel.Plan, l *loader.Loader) {
	if x.Library > 0 {
		p.SpMM = l.SpMM()
	}
}

func (x *sparseMatmul) add(p *kernel.Plan) error {
	p.Atomics = x.Library == 2
	x.of = kernel.SparseRows{RowOffsets: x.Starts, ColumnIndices: x.Columns, Values: x.Values}
	return p.SparseMatmul(x.Out, &x.of, x.B, x.C, x.Alpha, x.Beta)
}

// masked is how an attention weighs.
type masked struct {
	Mask        kernel.Operand `row:"optional"`
	Scale       *kernel.Number
	DropoutRate float64
	Causal      bool
	random

	of kernel.Attention
}

// weights describes it.
func (m *masked) weights() *kernel.Attention {
	m.of = kernel.Attention{Mask: m.Mask, Scale: m.Scale, Causal: m.Causal, Dropout: m.DropoutRate, Random: m.numbers()}
	return &m.of
}

type attention struct {
	Out, Sums         kernel.Operand `row:"out"`
	Query, Key, Value kernel.Operand
	masked
}

func (x *attention) add(p *kernel.Plan) error {
	return p.Attention(x.Out, x.Sums, x.Query, x.Key, x.Value, x.weights())
}

type attentionBackward struct {
	GradQuery, GradKey, GradValue kernel.Operand `row:"out"`
	Grad, Out, Sums               kernel.Operand
	Query, Key, Value             kernel.Operand
	masked
}

func (x *attentionBackward) add(p *kernel.Plan) error {
	return p.AttentionBackward(x.GradQuery, x.GradKey, x.GradValue, x.Grad, x.Out, x.Sums, x.Query, x.Key, x.Value,
		x.weights())
}

// bags are those of an embedding's indexes.
type bags struct {
	Mode, Padding int
	ByFrequency   bool
	Bad           device.Ptr

	of kernel.Bags
}

// describe sets what all operations on bags need.
func (b *bags) describe() error {
	if b.Mode < 0 || b.Mode > int(kernel.BagMax) {
		return fmt.Errorf("%w: mode %d of bags", ErrArguments, b.Mode)
	}
	b.of = kernel.Bags{Mode: kernel.BagMode(b.Mode), Padding: b.Padding, Bad: b.Bad}
	return nil
}

type embeddingBag struct {
	Out, Bags, Counts kernel.Operand `row:"out"`
	Most              kernel.Operand `row:"out,optional"`
	Table             kernel.Operand
	Indexes, Offsets  kernel.Operand
	Weights           kernel.Operand `row:"optional"`
	bags
}

func (x *embeddingBag) add(p *kernel.Plan) error {
	if err := x.describe(); err != nil {
		return err
	}
	x.of.Indexes, x.of.Offsets, x.of.Weights = x.Indexes, x.Offsets, x.Weights
	x.of.Bag, x.of.Size, x.of.Max = x.Bags, x.Counts, x.Most
	return p.EmbeddingBag(x.Out, x.Table, &x.of)
}

type embeddingBackward struct {
	Out                         kernel.Operand `row:"out"`
	Grad, Indexes               kernel.Operand
	Weights, Bags, Counts, Most kernel.Operand `row:"optional"`
	bags
}

func (x *embeddingBackward) add(p *kernel.Plan) error {
	if err := x.describe(); err != nil {
		return err
	}
	x.of.Indexes, x.of.Weights, x.of.Bag, x.of.Size, x.of.Max = x.Indexes, x.Weights, x.Bags, x.Counts, x.Most
	return p.EmbeddingBackward(x.Out, x.Grad, &x.of, x.ByFrequency)
}

type weightsBackward struct {
	Out                        kernel.Operand `row:"out"`
	Grad, Table, Indexes, Bags kernel.Operand
	bags
}

func (x *weightsBackward) add(p *kernel.Plan) error {
	if err := x.describe(); err != nil {
		return err
	}
	x.of.Indexes, x.of.Bag = x.Indexes, x.Bags
	return p.EmbeddingWeightsBackward(x.Out, x.Grad, x.Table, &x.of)
}

type distance struct {
	Out  kernel.Operand `row:"out"`
	A, B kernel.Operand
	Norm float64
}

func (x *distance) add(p *kernel.Plan) error { return p.Distance(x.Out, x.A, x.B, x.Norm) }

type distanceBackward struct {
	GradA                 kernel.Operand `row:"out"`
	Grad, A, B, Distances kernel.Operand
	Norm                  float64
}

func (x *distanceBackward) add(p *kernel.Plan) error {
	return p.DistanceBackward(x.GradA, x.Grad, x.A, x.B, x.Distances, x.Norm)
}
