package chorusgomlx

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"

	"github.com/gomlx/gomlx/backends"
	"github.com/gomlx/gomlx/pkg/core/dtypes"
	"github.com/gomlx/gomlx/pkg/core/graph"
	"github.com/gomlx/gomlx/pkg/core/tensors"
	mlcontext "github.com/gomlx/gomlx/pkg/ml/context"
	"github.com/gomlx/gomlx/pkg/ml/context/initializers"
	"github.com/gomlx/gomlx/pkg/ml/train"
	"github.com/gomlx/gomlx/pkg/ml/train/optimizers"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/tensor"
)

// Scope is where the variables with the gradients are.
const Scope = "chorus_gradients"

// A Base is an optimizer that can be given gradients, as GoMLX's are.
type Base interface {
	optimizers.Interface
	train.OptimizeWithGradients
}

// An Optimizer applies the average of the gradients of all ranks. It's for one trainer, and used by one goroutine.
type Optimizer struct {
	c       *comm.Comm
	backend backends.Backend
	base    Base

	mlctx   *mlcontext.Context // of the trainer's graph; nil before there is one
	loss    dtypes.DType
	pairs   []pair          // as that graph has them
	apply   *mlcontext.Exec // nil until it's needed
	checked bool            // all ranks have begun with the same variables
}

// pair is a variable and its gradient.
type pair struct{ of, gradient *mlcontext.Variable }

var _ optimizers.Interface = (*Optimizer)(nil)

// New returns an optimizer that averages gradients over c's ranks, and has base apply the average.
func New(c *comm.Comm, backend backends.Backend, base Base) *Optimizer {
	return &Optimizer{c: c, backend: backend, base: base}
}

// UpdateGraph implements optimizers.Interface: it leaves the gradients in variables, for Step.
func (o *Optimizer) UpdateGraph(ctx *mlcontext.Context, g *graph.Graph, loss *graph.Node) {
	if !loss.Shape().IsScalar() {
		panic(fmt.Errorf("chorusgomlx: the loss has the shape %s, and must be a scalar", loss.Shape()))
	}
	gradients := ctx.BuildTrainableVariablesGradientsGraph(loss)
	var trained []*mlcontext.Variable
	for v := range ctx.IterVariables() { // in the order of the gradients
		if v.Trainable && v.InUseByGraph(g) {
			trained = append(trained, v)
		}
	}
	if len(trained) != len(gradients) {
		panic(fmt.Errorf("chorusgomlx: %d gradients for %d variables", len(gradients), len(trained)))
	}
	o.mlctx, o.loss, o.pairs, o.apply = ctx, loss.DType(), nil, nil
	for i, v := range trained {
		to := ctx.Checked(false).InAbsPath(mlcontext.ScopeSeparator+Scope+v.Scope()).
			WithInitializer(initializers.Zero).VariableWithShape(v.Name(), gradients[i].Shape()).SetTrainable(false)
		to.SetValueGraph(gradients[i])
		o.pairs = append(o.pairs, pair{v, to})
	}
}

// Clear implements optimizers.Interface.
func (o *Optimizer) Clear(ctx *mlcontext.Context) error {
	var err error
	for _, p := range o.pairs {
		err = errors.Join(err, ctx.DeleteVariable(p.gradient.Scope(), p.gradient.Name()))
	}
	o.mlctx, o.pairs, o.apply = nil, nil, nil
	return errors.Join(err, o.base.Clear(ctx))
}

// Step averages the gradients of the trainer's last step, and applies the average. All ranks call it. An error of the
// communicator leaves the variables as they were; the gradients may be averaged in part.
func (o *Optimizer) Step(ctx context.Context) error {
	if o.mlctx == nil {
		return errors.New("chorusgomlx: Step before the trainer's first step")
	}
	if !o.checked {
		if err := o.check(ctx); err != nil {
			return err
		}
		o.checked = true
	}
	for _, p := range o.pairs {
		err := inPlace(p.gradient, func(x *tensor.Tensor) error { return o.c.AllReduce(ctx, x, comm.Avg) })
		if err != nil {
			return fmt.Errorf("chorusgomlx: the gradient of %s: %w", p.of.ScopeAndName(), err)
		}
	}
	if o.apply == nil {
		x, err := mlcontext.NewExecAny(o.backend, o.mlctx.Checked(false), o.applyGraph)
		if err != nil {
			return fmt.Errorf("chorusgomlx: the graph that applies gradients: %w", err)
		}
		o.apply = x.WithName("chorus apply gradients")
	}
	if _, err := o.apply.Exec(); err != nil {
		return fmt.Errorf("chorusgomlx: applying the gradients: %w", err)
	}
	return nil
}

// applyGraph is the graph of the second half of a step.
func (o *Optimizer) applyGraph(ctx *mlcontext.Context, g *graph.Graph) *graph.Node {
	ctx.SetTraining(g, true)
	gradients := make([]*graph.Node, len(o.pairs))
	for i, p := range o.pairs {
		p.of.ValueGraph(g) // which makes it one of this graph's
		gradients[i] = p.gradient.ValueGraph(g)
	}
	o.base.UpdateGraphWithGradients(ctx, gradients, o.loss)
	return graph.ScalarZero(g, dtypes.Int32) // a graph has a result
}

// Attach has a loop of the trainer call Step behind each of its steps, before other hooks. ctx is for the operations.
func (o *Optimizer) Attach(ctx context.Context, loop *train.Loop) {
	loop.OnStep("chorus: average the gradients", -1000, func(*train.Loop, []*tensors.Tensor) error { return o.Step(ctx) })
}

// check compares the variables of the ranks before the first step.
func (o *Optimizer) check(ctx context.Context) error {
	h := fnv.New64a()
	for _, p := range o.pairs {
		fmt.Fprintln(h, p.of.ScopeAndName(), p.of.Shape())
		err := inPlace(p.of, func(x *tensor.Tensor) error {
			raw, err := x.Bytes()
			h.Write(raw)
			return err
		})
		if err != nil {
			return fmt.Errorf("chorusgomlx: %s: %w", p.of.ScopeAndName(), err)
		}
	}
	all := make([]uint64, o.c.Size())
	if err := o.c.AllGatherSingle(ctx, tensor.Of(all), tensor.Of([]uint64{h.Sum64()})); err != nil {
		return fmt.Errorf("chorusgomlx: comparing the variables of the ranks: %w", err)
	}
	for r, sum := range all {
		if sum != all[0] {
			return fmt.Errorf("chorusgomlx: %w: rank %d doesn't begin with the variables of rank 0: every rank calls Sync "+
				"before its first step, and builds the same model", comm.ErrMismatch, r)
		}
	}
	return nil
}

// Sync gives all ranks the variables of rank 0, as far as there are any: those of a checkpoint, and the state of the
// random numbers, from which the others begin. All ranks call it before they train, with the same variables, and again
// when they should have the same state beside the parameters.
func Sync(ctx context.Context, c *comm.Comm, mlctx *mlcontext.Context) error {
	if mlctx.GetVariableByScopeAndName(mlcontext.RootScope, mlcontext.RNGStateVariableName) == nil {
		if err := mlctx.ResetRNGState(); err != nil {
			return fmt.Errorf("chorusgomlx: %w", err)
		}
	}
	var vars []*mlcontext.Variable
	var mine []string
	for v := range mlctx.IterVariables() {
		if v.HasValue() {
			vars, mine = append(vars, v), append(mine, v.ScopeAndName()+" "+v.Shape().String())
		}
	}
	lists, err := comm.AllGather(ctx, comm.Objects{C: c}, mine)
	if err != nil {
		return fmt.Errorf("chorusgomlx: comparing the variables of the ranks: %w", err)
	}
	for r, list := range lists {
		if fmt.Sprint(list) != fmt.Sprint(lists[0]) {
			return fmt.Errorf("chorusgomlx: %w: rank %d has the variables %q, and rank 0 %q", comm.ErrMismatch, r, list,
				lists[0])
		}
	}
	for _, v := range vars {
		err := inPlace(v, func(x *tensor.Tensor) error { return c.Broadcast(ctx, x, 0) })
		if err != nil {
			return fmt.Errorf("chorusgomlx: variable %s: %w", v.ScopeAndName(), err)
		}
	}
	return nil
}

// elements are the types of gradients that can be averaged.
var elements = map[dtypes.DType]dtype.DType{
	dtypes.Float64: dtype.Float64, dtypes.Float32: dtype.Float32, dtypes.Float16: dtype.Float16,
	dtypes.BFloat16: dtype.BFloat16,
}

// inPlace calls f with the memory of a variable's value; of bytes, if it isn't a floating-point number's.
func inPlace(v *mlcontext.Variable, f func(x *tensor.Tensor) error) error {
	value, err := v.Value()
	if err != nil || value.Size() == 0 {
		return err
	}
	dt, ok := elements[v.DType()]
	if !ok {
		dt = dtype.Uint8
	}
	failed := value.MutableBytes(func(data []byte) {
		var x *tensor.Tensor
		if x, err = tensor.FromBytes(dt, data, len(data)/dt.Size()); err == nil {
			err = f(x)
		}
	})
	return errors.Join(failed, err)
}
