package kernel

import (
	"fmt"
	"math/cmplx"
	"slices"
	"strings"
	"testing"

	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/kernel/ops"
)

// torchOps are PyTorch's expressions for operations whose names or arguments are others there.
var torchOps = map[string]string{
	"copy": "a.clone()", "conj": "torch.conj_physical(a)", "sign": "torch.sign(a)", "imag": "a.imag", "real": "torch.real(a)",
	"isfinite": "torch.isfinite(a)", "i0e": "torch.special.i0e(a)", "logit_eps": "torch.logit(a, 0.1)",
	"i1": "torch.special.i1(a)", "i1e": "torch.special.i1e(a)", "entr": "torch.special.entr(a)",
	"round_scaled":   "(torch.round(a.to(torch.promote_types(a.dtype, torch.float32)) * 4) / 4).to(a.dtype)",
	"round_divided":  "(torch.round(a.to(torch.promote_types(a.dtype, torch.float32)) / 4) * 4).to(a.dtype)",
	"prelu_backward": "torch.where(b > 0, a, c * a)", "prelu_weight_backward": "torch.where(b > 0, torch.zeros_like(a), b * a)",
	"trigamma": "torch.polygamma(1, a)", "ndtr": "torch.special.ndtr(a)",
	"nan_to_num": "torch.nan_to_num(a, 0.5, 7, -8)", "clamp": "torch.clamp(a, -1, 2)", "clamp_min": "torch.clamp_min(a, -1)",
	"clamp_max": "torch.clamp_max(a, 2)", "threshold": "F.threshold(a, 1, 5)", "hardtanh": "F.hardtanh(a, -1, 2)",
	"hardsigmoid": "F.hardsigmoid(a)", "hardswish": "F.hardswish(a)", "hardshrink": "F.hardshrink(a, 0.5)",
	"softshrink": "F.softshrink(a, 0.5)", "leaky_relu": "F.leaky_relu(a, 0.25)",
	"elu": "torch._C._nn.elu(a, 1.5, 0.5, 2)", "celu": "F.celu(a, 1.5)", "silu": "F.silu(a)", "mish": "F.mish(a)",
	"gelu": "F.gelu(a)", "gelu_tanh": "F.gelu(a, approximate='tanh')", "softplus": "F.softplus(a, 2, 5)",
	"log_sigmoid_buffer": "torch.exp(-a.abs())",
	"log_sigmoid":        "F.logsigmoid(a)",
	"add":                "torch.add(a, b, alpha=1 if a.dtype == torch.bool else 2)", "sub": "torch.sub(a, b, alpha=2)",
	"rsub":      "torch.rsub(a, b, alpha=2)",
	"div_trunc": "torch.div(a, b, rounding_mode='trunc')", "div_floor": "torch.div(a, b, rounding_mode='floor')",
	"xlog1py": "torch.special.xlog1py(a, b)", "complex": "torch.complex(a.real, b.real)",
	"polar": "torch.polar(a.real.contiguous(), b.real.contiguous())", "masked_fill": "torch.masked_fill(a, b != 0, 1)",
	"glu": "F.glu(torch.cat((a, b)), 0)", "prelu": "torch.prelu(a, b)", "mse_loss": "F.mse_loss(a, b, reduction='none')",
	"l1_loss": "F.l1_loss(a, b, reduction='none')", "smooth_l1_loss": "F.smooth_l1_loss(a, b, reduction='none', beta=0.5)",
	"huber_loss":                    "F.huber_loss(a, b, reduction='none', delta=0.5)",
	"binary_cross_entropy":          "F.binary_cross_entropy(a, b, reduction='none')",
	"sigmoid_backward":              "torch.ops.aten.sigmoid_backward(a, b)",
	"tanh_backward":                 "torch.ops.aten.tanh_backward(a, b)",
	"threshold_backward":            "torch.ops.aten.threshold_backward(a, b, 0.5)",
	"hardtanh_backward":             "torch.ops.aten.hardtanh_backward(a, b, -1, 2)",
	"hardsigmoid_backward":          "torch.ops.aten.hardsigmoid_backward(a, b)",
	"hardswish_backward":            "torch.ops.aten.hardswish_backward(a, b)",
	"hardshrink_backward":           "torch.ops.aten.hardshrink_backward(a, b, 0.5)",
	"leaky_relu_backward":           "torch.ops.aten.leaky_relu_backward(a, b, 0.25, False)",
	"elu_backward":                  "torch.ops.aten.elu_backward(a, 1.5, 0.5, 2, False, b)",
	"elu_backward_result":           "torch.ops.aten.elu_backward(a, 1.5, 0.5, 2, True, b)",
	"silu_backward":                 "torch.ops.aten.silu_backward(a, b)",
	"mish_backward":                 "torch.ops.aten.mish_backward(a, b)",
	"gelu_backward":                 "torch.ops.aten.gelu_backward(a, b)",
	"gelu_tanh_backward":            "torch.ops.aten.gelu_backward(a, b, approximate='tanh')",
	"softplus_backward":             "torch.ops.aten.softplus_backward(a, b, 2, 5)",
	"log_sigmoid_backward":          "torch.ops.aten.log_sigmoid_backward(a, b, torch.exp(-b.abs()))",
	"logit_backward":                "torch.ops.aten.logit_backward(a, b)",
	"logit_backward_eps":            "torch.ops.aten.logit_backward(a, b, 0.1)",
	"mse_loss_backward":             "2 * (b - c) * a",
	"smooth_l1_loss_backward":       "torch.ops.aten.smooth_l1_loss_backward(a, b, c, 0, 0.5)",
	"huber_loss_backward":           "torch.ops.aten.huber_loss_backward(a, b, c, 0, 0.5)",
	"binary_cross_entropy_backward": "torch.ops.aten.binary_cross_entropy_backward(a, b, c, None, 0)",
	"kl_div":                        "F.kl_div(a, b, reduction='none')",
	"kl_div_log_target":             "F.kl_div(a, b, reduction='none', log_target=True)",
	"soft_margin_loss":              "F.soft_margin_loss(a, b, reduction='none')",
	"soft_margin_loss_backward":     "-2 * a * c * torch.sigmoid(-b * c)",
	"binary_cross_entropy_with_logits": "F.binary_cross_entropy_with_logits(a, b, weight=d, pos_weight=c, " +
		"reduction='none')",
	"binary_cross_entropy_with_logits_backward": "a * e * ((1 - c) - ((d - 1) * c + 1) * torch.sigmoid(-b))",
	"where": "torch.where(a != 0, b, c)", "addcmul": "torch.addcmul(a, b, c, value=2)",
	"addcdiv": "torch.addcdiv(a, b, c, value=2)", "clamp_tensor": "torch.clamp(a, b, c)",
	"sincos": "(torch.sin(a), torch.cos(a))", "aminmax_pair": "(torch.minimum(a, b), torch.maximum(a, b))",
	"igamma": "torch.igamma(a, b)", "igammac": "torch.igammac(a, b)", "polygamma": "torch.polygamma(3, a)",
	"to_f8e4m3fn":       "a.to(torch.float8_e4m3fn).view(torch.uint8).to(a.dtype)",
	"to_f8e5m2":         "a.to(torch.float8_e5m2).view(torch.uint8).to(a.dtype)",
	"to_f8e4m3fnuz":     "a.to(torch.float8_e4m3fnuz).view(torch.uint8).to(a.dtype)",
	"to_f8e5m2fnuz":     "a.to(torch.float8_e5m2fnuz).view(torch.uint8).to(a.dtype)",
	"frexp":             "tuple(x.to(a.dtype) for x in torch.frexp(a))",
	"glu_backward_pair": "(a * torch.sigmoid(c), a * b * torch.sigmoid(c) * (1 - torch.sigmoid(c)))",
}

// torchNumbers are the numbers of those expressions.
var torchNumbers = map[string][]*Number{
	"round_scaled": {Int(4)}, "round_divided": {Int(4)}, "logit_eps": {Float(0.1)}, "nan_to_num": {Float(0.5), Float(7), Float(-8)}, "clamp": {Float(-1), Float(2)},
	"clamp_min": {Float(-1)}, "clamp_max": {Float(2)}, "threshold": {Int(1), Int(5)}, "hardtanh": {Int(-1), Int(2)},
	"hardshrink": {Float(0.5)}, "softshrink": {Float(0.5)}, "leaky_relu": {Float(0.25)},
	"elu": {Float(1.5), Float(0.5), Float(2)}, "celu": {Float(1.5)}, "softplus": {Float(2), Float(5)},
	"add": {Int(2)}, "sub": {Int(2)}, "rsub": {Int(2)}, "masked_fill": {Int(1)}, "smooth_l1_loss": {Float(0.5)},
	"huber_loss": {Float(0.5)}, "threshold_backward": {Float(0.5)}, "hardtanh_backward": {Int(-1), Int(2)},
	"hardshrink_backward": {Float(0.5)}, "leaky_relu_backward": {Float(0.25)},
	"elu_backward": {Float(1.5), Float(0.5), Float(2)}, "elu_backward_result": {Float(1.5), Float(0.5), Float(2)},
	"softplus_backward": {Float(2), Float(5)}, "mse_loss_backward": {Int(2)},
	"smooth_l1_loss_backward": {Int(1), Float(0.5)}, "huber_loss_backward": {Int(1), Float(0.5)}, "addcmul": {Int(2)},
	"polygamma": {Int(3)}, "logit_backward_eps": {Float(0.1)}, "addcdiv": {Int(2)}, "soft_margin_loss_backward": {Int(2)},
}

// torchExpression is PyTorch's expression for an operation on a, b and c.
func torchExpression(o *ops.Op) string {
	if e := torchOps[o.Name]; e != "" {
		return e
	}
	module := "torch."
	if ops.IsSpecial(o.Name) {
		module += "special."
	}
	return module + o.Name + "(" + "a, b, c"[:3*o.Ins-2] + ")"
}

// torchNumbersOf are the numbers of that expression.
func torchNumbersOf(o *ops.Op, dt dtype.DType) []*Number {
	if dt == dtype.Bool && o.Name == "add" {
		return []*Number{Int(1)}
	}
	return torchNumbers[o.Name]
}

// looser are operations whose tolerance is some times the type's: iterations, and differences of large numbers.
var looser = map[string]float64{"erfinv": 20, "lgamma": 10, "digamma": 50, "trigamma": 50, "i0": 10, "i1": 10, "pow": 50, "tan": 50, "kl_div": 20,
	"logit_backward": 10, "polar": 10, "exp": 10, "exp2": 10, "sinh": 10, "cosh": 10, "expm1": 10, "acosh": 10,
	"silu_backward": 10, "mish_backward": 10, "gelu_backward": 10, "gelu_tanh_backward": 10,
	"hardsigmoid_backward": 20000, "glu_backward_pair": 10, "binary_cross_entropy_backward": 1000, "igamma": 100,
	"igammac": 100, "hermite_polynomial_h": 10, "hermite_polynomial_he": 10, "laguerre_polynomial_l": 10}

// infinite are operations that make NaN of infinite numbers in PyTorch, for some types and sizes, by the order of its
// multiplications. Others of them overflow in PyTorch, since it computes in the type of 16 bits.
var infinite = []string{"gelu", "gelu_tanh", "mish_backward", "gelu_tanh_backward", "glu_backward_pair", "ldexp"}

// numeric are operations that aren't compared for NaN. PyTorch's vectors make 0 of it in gradients of logit and
// hardshrink, and some of its polynomials have no result then.
var numeric = []string{"logit_backward_eps", "hardshrink_backward", "chebyshev_polynomial_t", "chebyshev_polynomial_u", "chebyshev_polynomial_v",
	"chebyshev_polynomial_w", "shifted_chebyshev_polynomial_t", "shifted_chebyshev_polynomial_u",
	"shifted_chebyshev_polynomial_v", "shifted_chebyshev_polynomial_w", "hermite_polynomial_h",
	"hermite_polynomial_he", "laguerre_polynomial_l", "legendre_polynomial_p"}

// types are those that the tests of all operations use.
var types = []dtype.DType{dtype.Float32, dtype.Int32, dtype.Bool, dtype.Complex64, dtype.Float64, dtype.Float16,
	dtype.BFloat16, dtype.Uint8, dtype.Int8, dtype.Int16, dtype.Int64, dtype.Complex128}

// left reports whether a test of all operations leaves a type out: those after the first five, for two operations in
// three.
func left(dt dtype.DType, k int) bool { return slices.Index(types, dt) >= 5 && (k+int(dt))%3 != 0 }

// Every operation of the table, on types of every kind, against PyTorch. The brief form has some.
func TestElementwiseTorch(t *testing.T) {
	c, dir := openCL(t), t.TempDir()
	const n = 384 // a multiple of PyTorch's vectors: what its comparisons make of NaN differs in the rest
	ins := map[dtype.DType][]*array{}
	files := map[dtype.DType][]string{}
	for _, dt := range types {
		for k := range 5 {
			a := c.dense(t, dt, n)
			a.set(sample(dt, n, uint64(k)))
			ins[dt] = append(ins[dt], a)
			files[dt] = append(files[dt], a.file(t, dir, k))
		}
	}
	var lines []string
	var plans []func(want []tensorResult)
	for k, o := range ops.All() {
		for _, dt := range types {
			if left(dt, k) || !sampled(k+int(dt), 160, 6) || o.Name == "copy" && dt.IsComplex() ||
				strings.HasPrefix(o.Name, "binary_cross") && dt.Size() == 2 || // PyTorch's constants are 0 there
				strings.HasPrefix(o.Name, "from_f8") { // of bytes: TestFloat8Torch
				continue
			}
			compute, result, err := o.Types(dt)
			if err != nil || o.Integers > 0 { // those of places have their own test
				continue
			}
			operands := ins[dt]
			if o.Name == "binary_cross_entropy" || o.Name == "binary_cross_entropy_backward" { // of probabilities
				operands = nil
				for k := range 3 {
					a := c.dense(t, dt, n)
					z := sample(dt, n, uint64(7+k))
					for i := range z {
						z[i] = complex(float64(i*(k+1)%n)/n, 0)
					}
					a.set(z)
					operands = append(operands, a)
				}
			}
			if slices.Contains(numeric, o.Name) {
				operands = nil
				for k := range o.Ins {
					a, z := c.dense(t, dt, n), sample(dt, n, uint64(k))
					for i := range z {
						if cmplx.IsNaN(z[i]) {
							z[i] = 0.5
						}
					}
					a.set(z)
					operands = append(operands, a)
				}
			}
			var names []string
			for k, a := range operands[:o.Ins] {
				if a == ins[dt][k] {
					names = append(names, files[dt][k])
				} else {
					names = append(names, a.file(t, dir, 100+10*int(dt)+k+1000*len(lines)))
				}
			}
			lines = append(lines, fmt.Sprintf("%v|%s|%s", dt, strings.Join(names, " "), torchExpression(&o)))
			plans = append(plans, func(want []tensorResult) {
				if want == nil {
					return
				}
				what := o.Name + " of " + dt.String()
				var outs, inputs []Operand
				var results []*array
				for range o.Results() {
					a := c.dense(t, result, n)
					results, outs = append(results, a), append(outs, a.Operand)
				}
				for _, a := range operands[:o.Ins] {
					inputs = append(inputs, a.Operand)
				}
				var p Plan
				if err := p.Elementwise(o.Name, compute, outs, inputs, torchNumbersOf(&o, dt)...); err != nil {
					t.Errorf("%s: %v", what, err)
					return
				}
				if err := c.run(&p); err != nil {
					t.Errorf("%s: %v", what, err)
					return
				}
				for k, a := range results {
					if slices.Contains(infinite, o.Name) {
						want[k].forgive(a)
					}
					a.equal(t, what, want[k], tolerance(dt)*max(1, looser[o.Name])+tolerance(result))
				}
			})
		}
	}
	run := 0
	for k, want := range torch(t, lines) {
		if want != nil {
			run++
		}
		plans[k](want)
	}
	t.Logf("%d pairs of an operation and a type, of which PyTorch has %d", len(lines), run)
}
