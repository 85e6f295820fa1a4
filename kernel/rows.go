package kernel

import (
	"fmt"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/kernel/loader"
	"github.com/chorus-comms/chorus/kernel/text"
)

// RowFamily reduces the elements of each row, once or more, and computes the elements of a new row of them.
const RowFamily text.Family = 4

func init() { text.Register(RowFamily, "row", rowSource) }

// rowOp is an operation on rows of n elements. Expressions are of the row's inputs x, y, of numbers p, q that a row has
// one of each, of weights w, b of elements, and of the call's number s0.
type rowOp struct {
	ins, rowIns, weights, numbers int

	stages []rowStage
	out    string
	kept   string // out, of e: what the last stage has added, if a processor has stored that in the result
	rowOut []string
}

// rowStage is a reduction to one or two sums, or to the largest element, and a name for what comes of it.
type rowStage struct {
	v, u   string // what's added
	max    bool   // v is compared
	result string // statements, of a.v and a.u, that declare the names
	names  string // a letter each
}

var (
	softmaxStages = []rowStage{{v: "x", max: true, result: "T m = a.v == -(T)INFINITY ? 0 : a.v;", names: "m"},
		{v: "exp(x - m)", result: "T s = a.v;", names: "s"}}
	meanStages = []rowStage{{v: "x", result: "T p = a.v / n;", names: "p"},
		{v: "(x - p) * (x - p)", result: "T q = 1 / sqrt(a.v / n + s0);", names: "q"}}
)

// rowOps are the operations on rows.
var rowOps = map[string]rowOp{
	"softmax":     {ins: 1, stages: softmaxStages, out: "exp(x - m) / s", kept: "e * (1 / s)"},
	"log_softmax": {ins: 1, stages: softmaxStages, out: "x - m - log(s)"},
	"softmax_backward": {ins: 2, stages: []rowStage{{v: "x * y", result: "T s = a.v;", names: "s"}}, // gradient, result
		out: "y * (x - s)"},
	"log_softmax_backward": {ins: 2, stages: []rowStage{{v: "x", result: "T s = a.v;", names: "s"}},
		out: "x - exp(y) * s"},

	"layer_norm": {ins: 1, weights: 2, numbers: 1, stages: meanStages, out: "(x - p) * q * w + b", rowOut: []string{"p", "q"}},
	"layer_norm_backward": {ins: 2, rowIns: 2, weights: 1, // gradient, input; mean, 1/deviation
		stages: []rowStage{{v: "x * w", u: "x * w * (y - p) * q", result: "T s = a.v / n, t = a.u / n;", names: "st"}},
		out:    "q * (x * w - s - (y - p) * q * t)"},
	"rms_norm": {ins: 1, weights: 2, numbers: 1,
		stages: []rowStage{{v: "x * x", result: "T q = 1 / sqrt(a.v / n + s0);", names: "q"}},
		out:    "x * q * w + b", rowOut: []string{"q"}},
	"rms_norm_backward": {ins: 2, rowIns: 1, weights: 1,
		stages: []rowStage{{v: "x * w * y", result: "T s = a.v / n;", names: "s"}}, out: "p * (x * w - y * p * p * s)"},
}

// rows is what an operation on rows is given.
type rows struct {
	out            Operand
	ins            [2]Operand
	dim            int        // of the elements of a row
	rowOut, rowIns [2]Operand // one element a row, in the order of the rows' indexes, one after the other
	weights        [2]Operand // addresses of elements one after the other; no type: none
	share          [3]int     // weight of element k of row r: (r mod share[0])*share[1] + k / share[2]
	numbers        []*Number
}

// Softmax adds softmax or log_softmax over a dimension.
func (p *Plan) Softmax(op string, out, in Operand, dim int) error {
	return p.rows(op, &rows{out: out, ins: [2]Operand{in}, dim: dim, share: [3]int{1, 0, 1}})
}

// SoftmaxBackward adds the gradient of softmax or log_softmax, given that of its result, and its result.
func (p *Plan) SoftmaxBackward(op string, out, grad, result Operand, dim int) error {
	return p.rows(op+"_backward", &rows{out: out, ins: [2]Operand{grad, result}, dim: dim, share: [3]int{1, 0, 1}})
}

// Norm is a normalization of rows: of layers, of groups, or by the root of the mean square.
type Norm struct {
	Weight, Bias Operand // elements one after the other; the zero Operand: none
	Mean, Rstd   Operand // one element a row, results of forward and inputs of backward; Mean isn't used by rms_norm

	// Channel c of the weight is for elements c*Inner to (c+1)*Inner of a row, and groups of Channels of them take turns
	// with rows: of group_norm the group's channels and the number of elements of a channel. 0 both: element k has weight
	// k.
	Channels, Inner int
	Groups          int
}

func (n *Norm) share() [3]int {
	if n.Inner == 0 {
		return [3]int{1, 0, 1}
	}
	return [3]int{max(n.Groups, 1), n.Channels, n.Inner}
}

// Normalize adds layer_norm, or rms_norm, of the rows of the last dimension. A row has mean 0 and variance 1 (rms_norm:
// mean square 1) before weight and bias. group_norm is a layer_norm of rows of a group's elements.
func (p *Plan) Normalize(op string, out, in Operand, n *Norm, eps float64) error {
	r := &rows{out: out, ins: [2]Operand{in}, dim: len(in.Sizes) - 1, weights: [2]Operand{n.Weight, n.Bias},
		rowOut: [2]Operand{n.Mean, n.Rstd}, share: n.share(), numbers: []*Number{Float(eps)}}
	if op == "rms_norm" {
		r.rowOut[0] = n.Rstd
	}
	return p.rows(op, r)
}

// NormalizeBackward adds the gradient of a normalization's input, given that of its result, and its input. Those of
// weight and bias are sums over rows: see [Plan.NormalizeWeights].
func (p *Plan) NormalizeBackward(op string, out, grad, in Operand, n *Norm) error {
	r := &rows{out: out, ins: [2]Operand{grad, in}, dim: len(in.Sizes) - 1, weights: [2]Operand{n.Weight},
		rowIns: [2]Operand{n.Mean, n.Rstd}, share: n.share()}
	if op == "rms_norm" {
		r.rowIns[0] = n.Rstd
	}
	return p.rows(op+"_backward", r)
}

func (p *Plan) rows(op string, r *rows) error {
	o, ok := rowOps[op]
	if !ok {
		return fmt.Errorf("kernel: there is no operation %q on rows", op)
	}
	compute := text.Opmath(r.out.Type)
	if !compute.IsFloating() {
		return fmt.Errorf("kernel: %s of %v isn't defined", op, r.out.Type)
	}
	s := text.Spec{Family: RowFamily, Op: op, Compute: compute, Block: threads, Outs: uint8(1 + len(o.rowOut)),
		Ins: uint8(o.ins + o.rowIns + o.weights)}
	keep := &p.space
	*keep = space{count: 1, ops: 1 + o.ins}
	operands := [3]*Operand{&r.out, &r.ins[0], &r.ins[1]}
	n, steps, err := p.rowSpace(op, r, operands[:1+o.ins])
	if err != nil {
		return err
	}
	if keep.count == 0 || n == 0 && len(o.rowOut) == 0 {
		return nil
	}
	keep.squeeze()
	if keep.dims > text.MaxDims {
		return fmt.Errorf("kernel: %s: more than %d dimensions that don't join", op, text.MaxDims)
	}
	s.Dims, s.Wide = uint8(keep.dims), wide(n*keep.count, keep.count)
	for _, o := range operands[:1+o.ins] {
		s.Wide = s.Wide || wide(o.reach())
	}
	p.rowForm(&s, r, n, steps)
	k := 0
	var places [text.MaxOperands]device.Ptr
	use := func(x *Operand, part bool) error {
		if part && x.Type == dtype.Invalid {
			s.Extra[0] |= 1 << k // isn't there
			s.Types[k] = compute
		} else {
			if !x.Type.IsFloating() || !text.Supported(x.Type) {
				return fmt.Errorf("kernel: %s with %v", op, x.Type)
			}
			s.Types[k] = x.Type
		}
		places[k] = x.Ptr
		k++
		return nil
	}
	add := func(list []Operand, part bool) {
		for i := range list {
			if e := use(&list[i], part); e != nil && err == nil {
				err = e
			}
		}
	}
	p.one[0] = r.out
	add(p.one[:1], false)
	add(r.rowOut[:len(o.rowOut)], true)
	add(r.ins[:o.ins], false)
	add(r.rowIns[:o.rowIns], false)
	add(r.weights[:o.weights], true)
	if err != nil {
		return err
	}
	var c *loader.Call
	switch s.Form {
	case reduceThread:
		c = p.call(s, keep.count)
	case reduceGroup:
		c = p.groups(s, keep.count, int(s.Extra[3]))
	default:
		c = p.sharing(s, keep.count, n)
	}
	c.Elements = keep.count * max(n, 1)
	for _, at := range places[:k] {
		c.Args.Pointer(at)
	}
	p.rowArguments(c, r, n, steps)
	return nil
}

// rowArguments adds what follows the addresses.
func (p *Plan) rowArguments(c *loader.Call, r *rows, n int, steps [3]int) {
	keep, s := &p.space, &c.Spec
	c.Index(keep.count)
	c.Index(n)
	for i := range keep.ops {
		c.Index(steps[i])
	}
	for _, v := range r.numbers {
		v.add(&c.Args, s.Compute)
	}
	for _, v := range r.share {
		c.Index(v)
	}
	if s.Dims > 0 {
		keep.layout(&c.Args, s.Wide)
	}
}

// rowForm completes a spec with what is known of rows of n elements: what computes one, and where elements are
// neighbours.
func (p *Plan) rowForm(s *text.Spec, r *rows, n int, steps [3]int) {
	keep := &p.space
	near := keep.dims > 0 && keep.strides[1][0] == 1 && keep.count >= manyResults // neighbouring rows are neighbours
	switch group := p.groupOf(keep.count, n, steps[1] == 1); {
	case near || n <= fewElements && group == 0:
		s.Form = reduceThread
	case group > 0:
		s.Form, s.Extra[3] = reduceGroup, int32(group)
	default:
		s.Form = reduceBlock
	}
	for i := range keep.ops {
		if steps[i] == 1 {
			s.Extra[1] |= 1 << i
		}
	}
	if r.share[2] == 1 {
		s.Extra[2] |= eachWeight
	}
	if r.share[1] == 0 {
		s.Extra[2] |= sameWeights
	}
	if p.Cores > 0 {
		s.Extra[3] = int32(rowsAtOnce(n))
	}
}

// rowSpace fills the plan's space with the dimensions other than that of the rows, of which it returns how many elements
// one has and how far they are from each other in each operand.
func (p *Plan) rowSpace(op string, r *rows, operands []*Operand) (n int, steps [3]int, err error) {
	if r.dim < 0 && len(r.out.Sizes) > 0 || r.dim >= max(len(r.out.Sizes), 1) {
		return 0, steps, fmt.Errorf("kernel: %s over dimension %d of %d", op, r.dim, len(r.out.Sizes))
	}
	n = 1
	for _, x := range operands {
		if err := x.check("an operand"); err != nil {
			return n, steps, err
		}
		if x.Value != nil || len(x.Sizes) != len(r.out.Sizes) || len(x.Sizes) > maxRank {
			return n, steps, fmt.Errorf("kernel: %s of %v to %v", op, x.Sizes, r.out.Sizes)
		}
	}
	for d := len(r.out.Sizes) - 1; d >= 0; d-- {
		var strides [3]int
		for k, x := range operands {
			if x.Sizes[d] != r.out.Sizes[d] {
				return n, steps, fmt.Errorf("kernel: %s of %v to %v", op, x.Sizes, r.out.Sizes)
			}
			strides[k] = x.Strides[d]
		}
		if d == r.dim {
			n, steps = r.out.Sizes[d], strides
			continue
		}
		p.space.dim(r.out.Sizes[d], strides[:len(operands)]...)
	}
	return n, steps, nil
}

// How rows have weights, in Spec.Extra[2].
const (
	eachWeight  = 1 << iota // an element of a row has its own
	sameWeights             // all rows have the same
)

// rowWriter writes a kernel of an operation on rows.
type rowWriter struct {
	writer
	s text.Spec
	o rowOp
}

func rowSource(s text.Spec) (text.Source, error) {
	o, ok := rowOps[s.Op]
	if !ok || !s.Compute.IsFloating() {
		return text.Source{}, fmt.Errorf("kernel: there is no operation %s of %v on rows", s.Op, s.Compute)
	}
	w := rowWriter{s: s, o: o}
	w.Begin(s)
	w.Defines(s, 1+o.ins)
	w.DefineIf(s.Form == reduceThread, "ROW_OF_THREAD")
	if s.Form == reduceGroup {
		w.Define("ROW_OF_GROUP", "")
		w.Define("GROUP", s.Extra[3])
	}
	list := func(name, format string, n int) {
		text := ""
		for k := range n {
			text += fmt.Sprintf(format, k)
		}
		w.Define(name, text)
	}
	list("STEPS", ", I step%d", 1+o.ins)
	list("NUMBERS", ", T s%d", o.numbers)
	w.Define("BEGIN_ROW", w.begin())
	w.Define("ELEMENT", w.element())
	w.Define("OFFSET", w.at(0))
	w.Define("RESULT", fmt.Sprintf("T r = %s; o0[%s] = OUT0(r);", o.out, w.at(0)))
	w.Define("ROW_RESULTS", w.rowResults())
	known, findings := "", ""
	for k, stage := range o.stages {
		w.stage([...]string{"", "_2"}[k], &stage, known, k == len(o.stages)-1)
		for _, name := range stage.names {
			known += fmt.Sprintf("T %c = all_%[1]c[of]; ", name)
			findings += fmt.Sprintf("LOCAL T all_%c[BATCH]; ", name)
		}
	}
	if s.Vector {
		w.Define("VECTOR", "")
		w.Define("BATCH", max(1, min(s.Extra[3], int32(s.Block)))) // since each lane joins a row
		w.Define("FINDINGS", findings)
		w.Define("ALL_KNOWN(of)", known)
		if o.kept != "" && s.Types[0] == s.Compute { // an exponential costs a processor more than storing it
			w.Define("KEPT", o.kept)
		}
		w.Include("batch")
	}
	return w.File("row", "row_"+s.Op)
}

// stage defines the names of a stage. known are those of the stages before it.
func (w *rowWriter) stage(suffix string, stage *rowStage, known string, last bool) {
	init, join, keep := "0", "ADD", ""
	switch {
	case stage.max:
		init, join = "-(T)INFINITY", "LARGEST"
	case stage.u != "":
		join = "ADD_BOTH"
		w.Define("PAIRS", "")
	}
	for _, name := range stage.names {
		keep += fmt.Sprintf("all_%c[THREAD] = %[1]c; ", name)
	}
	if results := w.rowResults(); last && results != "" {
		keep += "I row = first + THREAD; " + results
	}
	w.Define("INIT"+suffix, init)
	w.Define("JOIN"+suffix, join)
	w.Define("VALUE"+suffix, stage.v)
	w.Define("OTHER"+suffix, stage.u)
	w.Define("FOUND"+suffix, stage.result)
	w.Define("KNOWN"+suffix+"(of)", known)
	w.Define("KEEP"+suffix, keep)
}

// there reports whether operand k is.
func (w *rowWriter) there(k int) bool { return w.s.Extra[0]>>k&1 == 0 }

// at is the place of element i of a row of operand k.
func (w *rowWriter) at(k int) string {
	if w.s.Extra[1]>>k&1 == 1 {
		return fmt.Sprintf("at%d + i", k)
	}
	return fmt.Sprintf("at%d + i * step%d", k, k)
}

// begin says where row `row` begins in each operand, and its numbers.
func (w *rowWriter) begin() string {
	s, o := w.s, w.o
	text := "OFFSETS(row)"
	for k := range o.rowIns {
		text += fmt.Sprintf(" T %c = IN%d(i%[2]d[row]);", 'p'+k, o.ins+k)
	}
	if o.weights > 0 && s.Extra[2]&sameWeights == 0 {
		text += " I weights = row % share0 * share1;"
	}
	return text
}

// element declares what element i has in each input.
func (w *rowWriter) element() (text string) {
	s, o := w.s, w.o
	for k := range o.ins {
		text += fmt.Sprintf("T %c = IN%d(i%[2]d[%s]); ", 'x'+k, k, w.at(k+1))
	}
	at := "i / share2"
	if s.Extra[2]&eachWeight != 0 {
		at = "i"
	}
	if s.Extra[2]&sameWeights == 0 {
		at = "weights + " + at
	}
	for k := range o.weights {
		i, name := o.ins+o.rowIns+k, "wb"[k]
		if w.there(int(s.Outs) + i) {
			text += fmt.Sprintf("T %c = IN%d(i%[2]d[%s]); ", name, i, at)
		} else {
			text += fmt.Sprintf("T %c = %d; ", name, 1-k)
		}
	}
	return text
}

// rowResults are the results of which row `row` has one.
func (w *rowWriter) rowResults() (text string) {
	for k, e := range w.o.rowOut {
		if w.there(1 + k) {
			text += fmt.Sprintf("o%d[row] = OUT%[1]d(%s); ", 1+k, e)
		}
	}
	return text
}
