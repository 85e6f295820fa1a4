// Package kernels is the table of a device's operations. A row is one operation, or several of the same arguments: its
// names, and a struct whose fields are its results, inputs, numbers and integers. The table decides the constants and
// comments of chorus.h, the structs by which C++ calls an operation, how a call is decoded, and how many arguments it
// must have.
package kernels

import (
	"reflect"

	"github.com/chorus-comms/chorus/kernel"
	"github.com/chorus-comms/chorus/kernel/ops"
)

// Kind is a number of chorus_kernel.kind, with the operations that have it.
type Kind struct {
	Number int
	Name   string // "softmax": CHORUS_KERNEL_SOFTMAX
	Note   string // what the names of the arguments don't say
	Rows   []Row

	lists bool // operands are those of lists of tensors, of which there may be many
}

// Row is an operation, or several with the same arguments.
type Row struct {
	Names  []string // of chorus_kernel_find
	All    string   // in words, for names of another table
	Form   string   // of the struct
	Fields []Field

	form  reflect.Type
	takes takes
}

// form has an operation's arguments as fields; see [Field]. Its method adds the operation to a plan.
type form interface {
	add(p *kernel.Plan) error
}

// row is a row of these names.
func row(f form, names ...string) Row {
	t := reflect.TypeOf(f).Elem()
	fields := fieldsOf(t)
	return Row{Names: names, Form: t.Name(), Fields: fields, form: t, takes: takesOf(fields)}
}

// rowOf is one whose names another table has.
func rowOf(all string, f form, names []string) Row {
	r := row(f, names...)
	r.All = all
	return r
}

// Kinds is the table. Numbers of kinds stay.
func Kinds() []Kind { return kinds }

var kinds = []Kind{
	{1, "elementwise", "inputs are broadcast; a user's text is an operation as well",
		[]Row{rowOf("operations on elements", &elementwise{}, elements())}, false},
	{2, "reduce", "no dims: all", []Row{rowOf("reductions", &reduce{}, reductions())}, false},
	{3, "scan", "", []Row{rowOf("scans", &scan{}, kernel.Scans())}, false},
	{4, "softmax", "", []Row{row(&softmax{}, "softmax", "log_softmax"),
		row(&softmaxBackward{}, "softmax_backward", "log_softmax_backward")}, false},
	{5, "norm", "with groups, rows are groups of channels, of inner elements each",
		[]Row{row(&norm{}, "layer_norm", "rms_norm"), row(&normBackward{}, "layer_norm_backward", "rms_norm_backward")}, false},
	{6, "matmul", "op: an activation, or 0; atomics: sums in any order are allowed",
		[]Row{rowOf("activations", &matmul{}, elements())}, false},
	{7, "triangle", "", []Row{row(&triangle{}, "tril", "triu")}, false},
	{8, "range", "", []Row{row(&arange{}, "arange"), row(&linspace{}, "linspace"), row(&eye{}, "eye")}, false},
	{9, "index", "of each index: the size and stride of its dimension, and 1 if it may be negative",
		[]Row{row(&index{}, "take", "put", "add", "mul", "amax", "amin")}, false},
	{10, "sort", "one of the results may be left out", []Row{row(&sort{}, "sort"), row(&kth{}, "kthvalue"),
		row(&median{}, "median", "nanmedian"), row(&mode{}, "mode")}, false},
	{11, "search", "sorter has the places of sorted's elements in their order", []Row{row(&search{}, "searchsorted"),
		row(&contains{}, "isin")}, false},
	{12, "count", "", []Row{row(&bincount{}, "bincount"), row(&histogram{}, "histc")}, false},
	{13, "choose", "starts, inverse and lengths are of runs of equal elements",
		[]Row{row(&nonzero{}, "nonzero"), row(&maskedSelect{}, "masked_select"), row(&maskedScatter{}, "masked_scatter"),
			row(&starts{}, "starts"), row(&inverse{}, "inverse"), row(&lengths{}, "lengths")}, false},
	{14, "roll", "", []Row{row(&roll{}, "roll")}, false},

	{20, "foreach", "so many lists of outs, ins and numbers, then the length of each; lists of ins and numbers may have one for all",
		[]Row{rowOf("operations on elements", &foreach{}, elements())}, true},
	{21, "foreach_reduce", "", []Row{rowOf("reductions", &foreachReduce{}, reductions())}, true},
	{22, "optimize", "outs: so many lists, of parameters, gradients and states; steps: none, or one each",
		[]Row{row(&optimize{}, "sgd", "adam", "adamw", "adagrad")}, true},
	{23, "unscale", "", []Row{row(&unscale{}, "unscale")}, true},
	{24, "update_scale", "", []Row{row(&updateScale{}, "update_scale")}, false},

	{32, "convolution", "", []Row{row(&convolution{}, "convolution"),
		row(&convolutionBackward{}, "convolution_backward")}, false},
	{33, "pool", "no windows: the pool is adaptive; divisor 0: the size of a window; indexes are int64",
		[]Row{row(&maxPool{}, "max"), row(&maxPoolBackward{}, "max_backward"),
			row(&windows{}, "average", "average_backward", "im2col", "col2im"),
			row(&maxUnpool{}, "max_unpool", "max_unpool_backward")}, false},
	{34, "upsample", "scales: 0 or none by sizes", []Row{row(&upsample{}, "nearest", "nearest_backward", "nearest_exact",
		"nearest_exact_backward", "linear", "linear_backward", "cubic", "cubic_backward")}, false},
	{35, "pad", "elements before each dimension of space", []Row{row(&pad{}, "reflect", "reflect_backward", "replicate",
		"replicate_backward", "circular", "circular_backward")}, false},
	{36, "grid_sample", "border: 0 zeros, 1 border, 2 reflection", []Row{row(&gridSample{}, "bilinear", "nearest"),
		row(&gridSampleBackward{}, "bilinear_backward", "nearest_backward")}, false},
	{37, "attention", "sums: their logarithms", []Row{row(&attention{}, "attention"),
		row(&attentionBackward{}, "attention_backward")}, false},
	{38, "batch_norm", "of 3 dimensions; training changes running_mean and running_var",
		[]Row{row(&batchNorm{}, "batch_norm"), row(&batchNormBackward{}, "batch_norm_backward")}, false},
	{39, "bag", "mode: 0 sum, 1 mean, 2 max; most: rows of maxima", []Row{row(&embeddingBag{}, "embedding_bag"),
		row(&embeddingBackward{}, "embedding_backward"), row(&weightsBackward{}, "weights_backward")}, false},
	{40, "distance", "", []Row{row(&distance{}, "cdist"), row(&distanceBackward{}, "cdist_backward")}, false},
	{41, "nll", "averaging: 0 none, 1 mean, 2 sum", []Row{row(&nll{}, "nll_loss"), row(&nllBackward{}, "nll_loss_backward")}, false},
	{42, "scaled_matmul", "formats of what is uint8 here: 1 float8_e4m3fn, 2 float8_e5m2, 3 and 4 those that end in fnuz; 0: others",
		[]Row{row(&scaledMatmul{}, "scaled_matmul")}, false},
	{43, "sparse_matmul", "alpha * a @ b + beta * c, a in rows (\"CSR\"); library: 1 if a library may do it, as no row has two " +
		"elements in a column, 2 in any order, too", []Row{row(&sparseMatmul{}, "sparse_matmul")}, false},

	{48, "random", "shuffle permutes data whose keys are equal and neighbours",
		[]Row{row(&dropout{}, "dropout"), row(&shuffle{}, "shuffle")}, false},
}

func elements() (names []string) {
	for _, o := range ops.All() {
		names = append(names, o.Name)
	}
	return names
}

func reductions() (names []string) {
	for _, r := range kernel.Reductions() {
		names = append(names, r.Name)
	}
	return names
}
