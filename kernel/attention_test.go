package kernel

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/device/rng"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/internal/testutil"
	"github.com/chorus-comms/chorus/kernel/text"
)

// attentionCase is an attention of tensors whose dimensions lie in memory in the order of batches, rows, heads and
// elements, as a model's projections do, or as they are numbered.
type attentionCase struct {
	batches, heads, shared, rows, keys, size, vsize int

	causal  bool
	mask    string // bool, added, or none
	dropout float64
	rowsOut bool // heads lie between rows and elements
	wide    bool // strides of 64 bits, of the one batch
	scale   *Number
}

func (a attentionCase) String() string {
	return fmt.Sprintf("%dx%d/%d heads, %d queries, %d keys, %d and %d elements, causal %v, mask %q, dropout %v",
		a.batches, a.heads, a.shared, a.rows, a.keys, a.size, a.vsize, a.causal, a.mask, a.dropout)
}

// operand is a tensor's view for attention.
func (a attentionCase) operand(o Operand, heads, rows, size int) Operand {
	o.Sizes = []int{a.batches, heads, rows, size}
	o.Strides = Dense(o.Sizes...)
	if a.rowsOut {
		o.Strides = []int{rows * heads * size, size, heads * size, 1}
	}
	if a.wide {
		o.Strides[0] = 1 << 31
	}
	return o
}

// view is PyTorch's expression for that.
func (a attentionCase) view(name string, heads, rows, size int) string {
	n := a.batches * heads * rows * size
	if a.rowsOut {
		return fmt.Sprintf("%s[:%d].view(%d, %d, %d, %d).transpose(1, 2)", name, n, a.batches, rows, heads, size)
	}
	return fmt.Sprintf("%s[:%d].view(%d, %d, %d, %d)", name, n, a.batches, heads, rows, size)
}

// Attention and its gradients against PyTorch's, which has the matrix of weights: sizes that aren't multiples of tiles,
// shared heads, masks of all kinds, rows without a key, and dropout of the same weights.
func TestAttentionTorch(t *testing.T) {
	c, dir := openCL(t), t.TempDir()
	gpu := rng.GPU{Multiprocessors: 2, ThreadsPerMultiprocessor: 512}
	cases := []attentionCase{
		{batches: 2, heads: 4, shared: 2, rows: 37, keys: 45, size: 24, vsize: 24, mask: "bool", dropout: 0.25},
		{batches: 1, heads: 2, shared: 2, rows: 40, keys: 40, size: 64, vsize: 64, causal: true, rowsOut: true},
		{batches: 1, heads: 1, shared: 1, rows: 33, keys: 65, size: 65, vsize: 130, mask: "added"},
		{batches: 1, heads: 3, shared: 1, rows: 1, keys: 70, size: 256, vsize: 256, rowsOut: true},
		{batches: 2, heads: 1, shared: 1, rows: 70, keys: 1, size: 1, vsize: 1, causal: true, scale: Float(0.7)},
		{batches: 1, heads: 6, shared: 2, rows: 64, keys: 20, size: 16, vsize: 8, causal: true, dropout: 0.5,
			wide: true},
		{batches: 1, heads: 2, shared: 2, rows: 5, keys: 0, size: 8, vsize: 8},
		{batches: 1, heads: 2, shared: 2, rows: 0, keys: 5, size: 8, vsize: 8},
		{batches: 0, heads: 2, shared: 2, rows: 3, keys: 5, size: 8, vsize: 8},
		{batches: 1, heads: 1, shared: 1, rows: 4, keys: 5, size: 8, vsize: 8, dropout: 1},
	}
	var lines, names []string
	var results [][]*array
	for _, dt := range []dtype.DType{dtype.Float32, dtype.Float64, dtype.BFloat16, dtype.Float16} {
		for i, a := range cases {
			brief := dt == dtype.Float32 && i == 0
			brief = brief || emulated() && (dt == dtype.Float16 && i == 0 || dt == dtype.BFloat16 && i == 2)
			if testutil.Short() && !brief || !testutil.Short() && dt.Size() == 2 && i%2 == 1 {
				continue
			}
			n := max(a.batches*max(a.heads, a.shared)*max(a.rows, a.keys)*max(a.size, a.vsize), 1)
			ins, files := make([]*array, 4), make([]string, 6)
			for k := range ins { // q, k, v and the gradient
				ins[k] = c.dense(t, dt, n)
				z := make([]complex128, n)
				for j := range z {
					z[j] = complex(float64((j*(7919+2*k)+k*31)%257-128)/100, 0)
				}
				ins[k].set(z)
				files[k] = ins[k].file(t, dir, 100*int(dt)+10*i+k)
			}
			q, k := a.operand(ins[0].Operand, a.heads, a.rows, a.size), a.operand(ins[1].Operand, a.shared, a.keys, a.size)
			v, g := a.operand(ins[2].Operand, a.shared, a.keys, a.vsize), a.operand(ins[3].Operand, a.heads, a.rows, a.vsize)
			op := &Attention{Causal: a.causal, Scale: a.scale, Dropout: a.dropout, Random: Random{Seed: 77, Offset: 8, GPU: gpu}}
			if a.dropout > 0 && i%2 == 0 { // from memory
				state := c.dense(t, dtype.Int64, 2)
				state.set([]complex128{77, 4})
				op.Random = Random{Offset: 4, GPU: gpu, State: state.Ptr}
			}
			mask, kind := "None", dt
			if a.mask == "bool" {
				kind = dtype.Bool
			}
			m := c.dense(t, kind, max(a.heads*a.rows*a.keys, 1))
			if a.mask != "" {
				z := make([]complex128, a.heads*a.rows*a.keys)
				for j := range z {
					row := j / a.keys % a.rows
					switch {
					case a.mask == "bool" && row == 7: // no key counts
					case a.mask == "bool":
						z[j] = complex(float64((j*31%97)%3), 0)
					case j%5 == 0:
						z[j] = complex(math.Inf(-1), 0)
					default:
						z[j] = complex(float64(j%13)/8-1, 0)
					}
				}
				m.set(z)
				op.Mask = m.Operand
				op.Mask.Sizes = []int{a.heads, a.rows, a.keys}
				op.Mask.Strides = Dense(op.Mask.Sizes...)
				mask = fmt.Sprintf("e.view(%d, %d, %d)", a.heads, a.rows, a.keys)
				if a.mask == "bool" {
					mask = "torch.zeros(e.shape, dtype=dtype).masked_fill(~e, -inf)" + mask[1:]
				}
			}
			files[4] = m.file(t, dir, 100*int(dt)+10*i+4)
			kept := c.dense(t, dtype.Bool, max(a.batches*a.heads*a.rows*a.keys, 1))
			p := &Plan{Scratch: func(n int) (device.Ptr, error) { return c.dense(t, dtype.Uint8, n).Ptr, nil }}
			must(t, p.Bernoulli(viewed(kept.Operand, a.batches, a.heads, a.rows, a.keys), op.Random, 1-a.dropout))
			stat := text.Opmath(dt)
			outs := []*array{c.dense(t, dt, a.batches, a.heads, a.rows, a.vsize),
				c.dense(t, dt, a.batches, a.heads, a.rows, a.size), c.dense(t, dt, a.batches, a.shared, a.keys, a.size),
				c.dense(t, dt, a.batches, a.shared, a.keys, a.vsize),
				c.dense(t, stat, a.batches, a.heads, a.rows)}
			o, lse := outs[0].Operand, outs[4].Operand
			must(t, p.Attention(o, lse, q, k, v, op))
			must(t, p.AttentionBackward(outs[1].Operand, outs[2].Operand, outs[3].Operand, g, o, lse, q, k, v, op))
			for k := range p.Calls {
				s, _, _ := c.loader.Fit(&p.Calls[k], 0)
				if want := emulated() && dt.Size() == 2 && s.Family == AttentionFamily; want != (s.Unit != text.NoUnit) {
					t.Errorf("%v has the matrix unit %v", s, s.Unit)
				}
			}
			if err := c.run(p); err != nil {
				t.Errorf("%v of %v: %v", a, dt, err)
				continue
			}
			files[5] = kept.file(t, dir, 100*int(dt)+10*i+5)
			scale := "None"
			if a.scale != nil {
				scale = fmt.Sprint(a.scale.Float)
			}
			factor := fmt.Sprintf("f[:%d].view(%d, %d, %d, %d).to(w.dtype) / %v", a.batches*a.heads*a.rows*a.keys, a.batches,
				a.heads, a.rows, a.keys, 1-a.dropout)
			if a.dropout == 1 {
				factor = "0"
			}
			// the definition, in numbers of 64 bits
			lines = append(lines, fmt.Sprintf("%v|%s|", dt, strings.Join(files, " "))+
				fmt.Sprintf("q, k, v = (x.to(torch.float64).detach().requires_grad_() for x in (%s, %s, %s)); ",
					a.view("a", a.heads, a.rows, a.size), a.view("b", a.shared, a.keys, a.size),
					a.view("c", a.shared, a.keys, a.vsize))+
				fmt.Sprintf("w = q @ k.repeat_interleave(%d, 1).mT * (%s or %d ** -0.5); ", a.heads/a.shared, scale, a.size)+
				fmt.Sprintf("m = %s; w = w if m is None else w + m; ", mask)+
				fmt.Sprintf("w = w.masked_fill(~torch.ones(w.shape[-2:]).tril().bool(), -inf) if %s else w; ",
					pythonBool(a.causal))+
				"l = torch.logsumexp(w, -1) if w.shape[-1] else torch.zeros(w.shape[:-1]).double(); "+
				"l = l.masked_fill(l == -inf, 0); w = torch._safe_softmax(w, -1); "+
				fmt.Sprintf("y = (w * (%s)) @ v.repeat_interleave(%d, 1); ", factor, a.heads/a.shared)+
				fmt.Sprintf("y.backward(%s.to(torch.float64)); ", a.view("d", a.heads, a.rows, a.vsize))+
				fmt.Sprintf("(*(x.to(dtype) for x in (y, q.grad, k.grad, v.grad)), l.to(torch.%v))", stat))
			results, names = append(results, outs), append(names, fmt.Sprintf("%v of %v", a, dt))
		}
	}
	for k, want := range torch(t, lines) {
		if len(want) != 5 {
			t.Errorf("PyTorch has %d results of %s", len(want), lines[k])
			continue
		}
		for i, r := range results[k] {
			what := names[k] + ", " + [...]string{"result", "gradient of q", "gradient of k", "gradient of v", "lse"}[i]
			r.equal(t, what, want[i], 20*tolerance(results[k][0].Type))
		}
	}
}

func pythonBool(b bool) string { return map[bool]string{true: "True", false: "False"}[b] }

// attentionSpecs are kernels of attention with all options, for the compilers' test.
func attentionSpecs() []text.Spec {
	var all []text.Spec
	for k, op := range []string{"forward", "query", "keys"} {
		for _, dt := range []dtype.DType{dtype.Float32, dtype.Float64, dtype.Float16, dtype.BFloat16} {
			for options := range int32(16) {
				s := text.Spec{Family: AttentionFamily, Op: op, Compute: text.Opmath(dt), Block: threads, Outs: 2,
					Ins: [...]uint8{3, 6, 6}[k], Wide: options == 5, Extra: [4]int32{1 + options%8, 1 + options%3, options}}
				if options&attentionBool != 0 && options&attentionAdded != 0 {
					continue
				}
				if options&attentionDropout != 0 && options%4 == 2 {
					s.Extra[2] |= attentionState
				}
				if options&(attentionBool|attentionAdded) != 0 {
					s.Ins++
				}
				for k := range s.Outs + s.Ins {
					s.Types[k] = dt
				}
				if op == "forward" {
					s.Types[1] = s.Compute
				} else {
					s.Types[7] = s.Compute
				}
				if op == "query" {
					s.Types[1] = s.Compute
				} else if op == "keys" {
					s.Types[6] = s.Compute
				}
				if options&attentionBool != 0 {
					s.Types[s.Outs+s.Ins-1] = dtype.Bool
				}
				all = append(all, s)
			}
		}
	}
	return all
}

// Operands that don't fit are refused, and a plan that's used again allocates nothing.
func TestAttentionPlan(t *testing.T) {
	op := func(sizes ...int) Operand {
		return Operand{Ptr: 4096, Type: dtype.Float32, Sizes: sizes, Strides: Dense(sizes...)}
	}
	q, kv, lse, mask := op(2, 4, 5, 8), op(2, 2, 7, 8), op(2, 4, 5), op(5, 7)
	p := Plan{Scratch: func(int) (device.Ptr, error) { return 4096, nil }}
	a := &Attention{Mask: mask, Causal: true, Dropout: 0.5}
	if n := testing.AllocsPerRun(100, func() {
		p.Reset()
		must(t, p.Attention(q, lse, q, kv, kv, a))
		must(t, p.AttentionBackward(q, kv, kv, q, q, lse, q, kv, kv, a))
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
	if len(p.Calls) != 3 || p.Calls[0].Grid.X != 8 {
		t.Errorf("%d runs, the first of %v blocks", len(p.Calls), p.Calls[0].Grid)
	}
	p.Reset()
	half := q
	half.Type = dtype.Float16
	for k, err := range []error{
		p.Attention(q, lse, q, op(2, 3, 7, 8), op(2, 3, 7, 8), a), p.Attention(q, lse, q, op(2, 2, 7, 9), kv, a),
		p.Attention(q, lse, q, kv, op(2, 2, 6, 8), a), p.Attention(half, lse, q, kv, kv, a),
		p.Attention(q, op(2, 4), q, kv, kv, a), p.Attention(q, lse, q, kv, kv, &Attention{Mask: op(3, 7)}),
		p.Attention(q, lse, q, kv, kv, &Attention{Dropout: 1.5}), p.Attention(op(4, 5, 8), lse, q, kv, kv, a),
		p.Attention(op(1, 1, 1, 257), Operand{}, op(1, 1, 1, 257), op(1, 1, 1, 257), op(1, 1, 1, 257), a),
		p.AttentionBackward(kv, kv, kv, q, q, lse, q, kv, kv, a),
		p.AttentionBackward(q, kv, kv, q, q, Operand{}, q, kv, kv, a),
	} {
		if err == nil {
			t.Errorf("case %d isn't refused", k)
		}
	}
	if len(p.Calls) > 0 {
		t.Error("a refused attention left calls")
	}
}
