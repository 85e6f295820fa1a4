package kernel

import (
	"fmt"
	"math"

	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/kernel/text"
)

// ResampleFamily computes elements of an image of a few elements of another one in each dimension: averages of windows,
// interpolations, and images with a border.
const ResampleFamily text.Family = 22

func init() { text.Register(ResampleFamily, "resample", resampleSource) }

// resampling is how an element o of the result belongs to elements i of the input in one dimension. Its code is of the
// dimension x, which has the sizes x.in and x.out, x.stride, x.padding and x.window of a window, and a number x.scale.
type resampling struct {
	// Of the result: helpers, how many elements of the input count, element t of those, and its weight (1 if empty).
	// Weights are divided by their sum if total is set.
	helper, taps, index, weight string
	total                       bool

	// Of the input: candidates o for an element i. Either all from low to high, or the ones at places 0 to places.
	low, high, places, place string
	share                    string // how much of element i is in candidate o, if it isn't searched for among the taps
	most                     string // an upper bound of the candidates, the same for all elements

	plain bool // weights are 1, so that the type may be any
	fixed int  // how many taps there are, if that's a number
	even  bool // weights are the same for all elements of a pool's window
}

const (
	// window has the elements from x.from to before x.to of the input, of x.count with those of the padding.
	poolWindow = `DEVICE I w_from(axis x, I o) { I a = o * x.stride - x.padding; return a < 0 ? 0 : a; }
DEVICE I w_to(axis x, I o) { I b = o * x.stride - x.padding + x.window; return b < x.in ? b : x.in; }
DEVICE I w_count(axis x, I o) {
	I a = o * x.stride - x.padding, b = a + x.window;
	return (b < x.in + x.padding ? b : x.in + x.padding) - a;
}
`
	adaptiveWindow = `DEVICE I w_from(axis x, I o) { return o * x.in / x.out; }
DEVICE I w_to(axis x, I o) { return ((o + 1) * x.in - 1) / x.out + 1; }
`
	windowLow  = "i + x.padding < x.window ? 0 : (i + x.padding - x.window) / x.stride + 1"
	windowHigh = "(i + x.padding) / x.stride"

	// source is where an element of the result lies in the input, for scales of sizes, and of corners on corners.
	sourceCenters = `DEVICE S w_source(axis x, I o) { return x.scale * ((S)o + (S)0.5) - (S)0.5; }
DEVICE S w_result(axis x, S i) { return (i + (S)0.5) / x.scale - (S)0.5; }
`
	sourceCorners = `DEVICE S w_source(axis x, I o) { return x.scale * (S)o; }
DEVICE S w_result(axis x, S i) { return i / x.scale; }
`
	// near has the elements of the result that lie less than w from element i, and at the borders all beyond it.
	nearLow  = "x.scale == 0 || (S)i < %[1]s ? 0 : (I)s_min(s_max(floor(w_result(x, (S)i - %[1]s)) - 1, 0), (S)x.out)"
	nearHigh = "x.scale == 0 || (S)i + %[1]s >= (S)x.in - 1 ? x.out - 1 : " +
		"(I)s_min(ceil(w_result(x, (S)i + %[1]s)) + 1, (S)(x.out - 1))"

	linearHelper = `DEVICE I w_floor(axis x, I o) {
	I k = (I)floor(s_max(w_source(x, o), 0));
	return k < x.in ? k : x.in - 1;
}
DEVICE S w_part(axis x, I o) { return s_min(s_max(s_max(w_source(x, o), 0) - (S)w_floor(x, o), 0), 1); }
`
	cubicHelper = `DEVICE I w_floor(axis x, I o) { I k = (I)floor(w_source(x, o)); return k < x.in ? k : x.in - 1; }
DEVICE S w_cubic(S d, S a) {
	d = fabs(d);
	if (d <= 1)
		return ((a + 2) * d - (a + 3)) * d * d + 1;
	return d < 2 ? ((a * d - 5 * a) * d + 8 * a) * d - 4 * a : 0;
}
DEVICE S w_weight(axis x, I o, I t) {
	return w_cubic(s_min(s_max(w_source(x, o) - (S)w_floor(x, o), 0), 1) + 1 - (S)t, (S)-0.75);
}
`
	// smooth has the filter of a triangle or a cubic over as many elements as the result has one for.
	smoothHelper = `DEVICE S w_stretch(axis x) { return x.scale > 1 ? x.scale : 1; }
DEVICE S w_center(axis x, I o) { return x.scale * ((S)o + (S)0.5); }
DEVICE S w_result(axis x, S i) { return (i + (S)0.5) / x.scale - (S)0.5; }
DEVICE I w_from(axis x, I o) { return (I)s_max(floor(w_center(x, o) - %[1]s * w_stretch(x) + (S)0.5), 0); }
DEVICE I w_to(axis x, I o) { return (I)s_min(floor(w_center(x, o) + %[1]s * w_stretch(x) + (S)0.5), (S)x.in); }
`
	triangle = `DEVICE S w_filter(S d) { d = fabs(d); return d < 1 ? 1 - d : 0; }
`
	softCubic = `DEVICE S w_filter(S d) {
	d = fabs(d);
	if (d < 1)
		return ((S)1.5 * d - (S)2.5) * d * d + 1;
	return d < 2 ? (((S)-0.5 * d + (S)2.5) * d - 4) * d + 2 : 0;
}
`
	smoothWeight = "w_filter(((S)(w_from(x, o) + t) - w_center(x, o) + (S)0.5) / w_stretch(x))"
)

// resamplings are the ways by their names.
var resamplings = func() map[string]resampling {
	near := func(r resampling, reach string) resampling {
		r.low, r.high = fmt.Sprintf(nearLow, reach), fmt.Sprintf(nearHigh, reach)
		return r
	}
	average := func(weight string) resampling {
		return resampling{helper: poolWindow, even: true, weight: weight, low: windowLow, high: windowHigh,
			most: "(x.window - 1) / x.stride + 1"}
	}
	smooth := func(filter, support string) resampling {
		return near(resampling{helper: fmt.Sprintf(smoothHelper, support) + filter, taps: "w_to(x, o) - w_from(x, o)",
			index: "w_from(x, o) + t", weight: smoothWeight, total: true,
			share: "i < w_from(x, o) || i >= w_to(x, o) ? 0 : r_weight(x, o, i - w_from(x, o))"},
			"("+support+" * w_stretch(x) + 1)")
	}
	nearest := func(source string) resampling {
		return near(resampling{plain: true, helper: sourceCorners, fixed: 1, index: source}, "1")
	}
	linear := resampling{fixed: 2, index: "t == 0 || w_floor(x, o) == x.in - 1 ? w_floor(x, o) : w_floor(x, o) + 1",
		weight: "t == 0 ? 1 - w_part(x, o) : w_part(x, o)"}
	cubic := resampling{fixed: 4, index: "(w_floor(x, o) - 1 + t < 0 ? 0 : w_floor(x, o) - 1 + t < x.in ? " +
		"w_floor(x, o) - 1 + t : x.in - 1)", weight: "w_weight(x, o, t)"}
	with := func(r resampling, helper, reach string) resampling {
		r.helper = helper
		return near(r, reach)
	}
	border := resampling{plain: true, fixed: 1}
	reflect, replicate, circular := border, border, border
	reflect.index = "o < x.padding ? x.padding - o : o - x.padding < x.in ? o - x.padding : 2 * (x.in - 1) - o + x.padding"
	reflect.places = "3"
	reflect.place = "t == 0 ? i + x.padding : t == 1 ? (i > 0 ? x.padding - i : -1) : " +
		"(i < x.in - 1 ? x.padding + 2 * (x.in - 1) - i : -1)"
	replicate.index = "o < x.padding ? 0 : o - x.padding < x.in ? o - x.padding : x.in - 1"
	replicate.low, replicate.high = "i == 0 ? 0 : i + x.padding", "i == x.in - 1 ? x.out - 1 : i + x.padding"
	circular.index = "(o - x.padding + x.in) % x.in"
	circular.places, circular.place = "3", "i + x.padding + (t - 1) * x.in"
	return map[string]resampling{
		"average":        average("w_to(x, o) <= w_from(x, o) ? 0 : 1 / (S)(w_to(x, o) - w_from(x, o))"),
		"average_padded": average("1 / (S)w_count(x, o)"),
		"average_scaled": average("x.scale"),
		"average_adaptive": {helper: adaptiveWindow, even: true, weight: "1 / (S)(w_to(x, o) - w_from(x, o))",
			low: "i * x.out / x.in", high: "((i + 1) * x.out - 1) / x.in"},
		"nearest": nearest("x.in == x.out ? o : x.out == 2 * x.in ? o / 2 : " +
			"(I)s_min(floor((S)o * x.scale), (S)(x.in - 1))"),
		"nearest_exact":  nearest("(I)s_min(floor(((S)o + (S)0.5) * x.scale), (S)(x.in - 1))"),
		"linear":         with(linear, sourceCenters+linearHelper, "1"),
		"linear_corners": with(linear, sourceCorners+linearHelper, "1"),
		"cubic":          with(cubic, sourceCenters+cubicHelper, "2"),
		"cubic_corners":  with(cubic, sourceCorners+cubicHelper, "2"),
		"linear_smooth":  smooth(triangle, "1"),
		"cubic_smooth":   smooth(softCubic, "2"),
		"reflect":        reflect, "replicate": replicate, "circular": circular,
	}
}()

// resample adds the computation of out of in; or, for a gradient, of in of out. Each element of in is then the sum of
// those of out to which it belongs. A thread adds them in the order of their places.
func (p *Plan) resample(op string, m *images, scale *[text.MaxSpatial]float64, backward bool, out, in *Operand) error {
	r := resamplings[op]
	t := in.Type
	if out.Type != t || !r.plain && !t.IsFloating() || t == dtype.Bool && backward {
		return fmt.Errorf("kernel: %s of %v to %v", op, in.Type, out.Type)
	}
	for k := range m.dims {
		if m.in[k] == 0 && m.out[k] > 0 || m.in[k] > math.MaxInt32 || m.out[k] > math.MaxInt32 {
			return fmt.Errorf("kernel: %s of %d elements to %d", op, m.in[k], m.out[k])
		}
	}
	s := text.Spec{Family: ResampleFamily, Op: op, Compute: text.Opmath(t), Outs: 1, Ins: 1}
	to, from := out, in
	if backward {
		s.Form, to, from = 1, in, out
	}
	c := m.add(p, s, backward, to, from)
	if c == nil {
		return nil
	}
	for k := range m.dims {
		number := Number{Float: scale[k]}
		number.add(&c.Args, resampleScale(s.Compute))
	}
	return nil
}

// resampleScale is the type of the scales.
func resampleScale(compute dtype.DType) dtype.DType {
	if compute == dtype.Float64 {
		return compute
	}
	return dtype.Float32
}

func resampleSource(s text.Spec) (text.Source, error) {
	r, ok := resamplings[s.Op]
	if !ok || !r.plain && !s.Compute.IsFloating() {
		return text.Source{}, fmt.Errorf("kernel: there is no resampling %s of %v", s.Op, s.Compute)
	}
	dims, back := int(s.Dims), s.Form == 1
	var w writer
	w.Begin(s)
	w.imageDefines(s)
	w.DefineIf(back, "BACKWARD")
	w.DefineIf(r.plain, "PLAIN")
	w.DefineIf(r.even, "EVEN")
	w.DefineIf(r.total, "TOTAL")
	w.DefineIf(s.Op == "average_adaptive", "ADAPTIVE")
	taps, sums := r.taps, ""
	if r.fixed > 0 {
		taps, sums = fmt.Sprint(r.fixed), fixedSums(dims, r.fixed)
	}
	for _, x := range [...][2]string{{"TAPS", taps}, {"INDEX", r.index}, {"WEIGHT", r.weight}, {"LOW", r.low},
		{"HIGH", r.high}, {"CANDIDATES", r.places}, {"CANDIDATE", r.place}, {"SHARE", r.share}, {"MOST", r.most},
		{"SUMS", sums}} {
		if x[1] != "" {
			w.Define(x[0], x[1])
		}
	}
	if r.fixed > 0 {
		w.Define("FIXED", r.fixed)
	}
	w.Define("SCALE", resampleScale(s.Compute).Short())
	w.Include("resample_axis")
	w.WriteString(r.helper)
	w.Include("resample")
	w.Include("window")
	for k := range dims {
		w.Param("S scale%d", k)
	}
	w.Function("resample_" + s.Op + map[bool]string{true: "_backward"}[back])
	w.Include("resample_axes")
	w.imageElements(s, back, func() { w.Include("resample_element") })
	return w.Done()
}

// fixedSums is a weighted sum v0 of so many elements in each dimension.
func fixedSums(dims, taps int) string {
	var sum func(k int) string
	sum = func(k int) string {
		text := fmt.Sprintf("T v%d = 0; ", k)
		for t := range taps {
			next := ""
			if k < dims-1 {
				next = sum(k + 1)
			}
			text += fmt.Sprintf("{ I x%d = x%[1]d_%[2]d; %[3]sv%[1]d += w%[1]d_%[2]d * VALUE_%[1]d; } ", k, t, next)
		}
		return text
	}
	return sum(0)
}

// Upsampling describes an interpolation between images of different sizes.
type Upsampling struct {
	// Mode is nearest, nearest_exact, linear or cubic: in each dimension of space, so that linear is PyTorch's bilinear
	// and trilinear, and cubic its bicubic.
	Mode string

	AlignCorners bool      // the corners of both images lie on each other, and not their borders
	Antialias    bool      // linear and cubic: an element that's smaller than those of the input is an average of them
	Scales       []float64 // how many times larger the result is, one for each dimension; nil or 0: by the sizes
}

// Upsample adds an interpolation.
func (p *Plan) Upsample(out, in Operand, u *Upsampling) error {
	return p.upsample(false, &out, &in, u)
}

// UpsampleBackward adds the gradient of [Plan.Upsample] by its input.
func (p *Plan) UpsampleBackward(gradIn, grad Operand, u *Upsampling) error {
	return p.upsample(true, &grad, &gradIn, u)
}

// upsampleOps are the names of resamplings by mode, with corners, and with antialias.
var upsampleOps = map[string][3]string{"nearest": {"nearest"}, "nearest_exact": {"nearest_exact"},
	"linear": {"linear", "linear_corners", "linear_smooth"}, "cubic": {"cubic", "cubic_corners", "cubic_smooth"}}

func (p *Plan) upsample(backward bool, out, in *Operand, u *Upsampling) error {
	ops, variant := upsampleOps[u.Mode], 0
	switch {
	case u.Antialias:
		variant = 2
	case u.AlignCorners:
		variant = 1
	}
	if ops[variant] == "" || u.AlignCorners && ops[1] == "" {
		return fmt.Errorf("kernel: there is no upsampling %q with align_corners=%v and antialias=%v", u.Mode, u.AlignCorners,
			u.Antialias)
	}
	var m images
	if err := m.set("upsampling", in, out, nil); err != nil {
		return err
	}
	if u.Scales != nil && len(u.Scales) != m.dims {
		return fmt.Errorf("kernel: upsampling in %d dimensions with scales %v", m.dims, u.Scales)
	}
	scale := [text.MaxSpatial]float64{}
	for k := range m.dims {
		a, b := m.in[k], m.out[k]
		switch {
		case u.AlignCorners && b > 1:
			scale[k] = ratio(in.Type, a-1, b-1)
		case u.AlignCorners:
		case u.Scales != nil && u.Scales[k] > 0:
			scale[k] = 1 / u.Scales[k]
		case b > 0:
			scale[k] = ratio(in.Type, a, b)
		}
	}
	return p.resample(ops[variant], &m, &scale, backward, out, in)
}

// ratio is a / b as PyTorch computes it for elements of a type.
func ratio(t dtype.DType, a, b int) float64 {
	if resampleScale(text.Opmath(t)) == dtype.Float64 {
		return float64(a) / float64(b)
	}
	return float64(float32(a) / float32(b))
}
