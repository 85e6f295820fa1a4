package kernel

import (
	"slices"
	"testing"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/kernel/text"
)

// widthCase is a call of a family, whose operands have types and sizes.
type widthCase struct {
	family text.Family
	name   string
	types  []dtype.DType
	sizes  [][]int
	call   func(p *Plan, x []Operand) error
}

func sized(sizes ...[]int) [][]int { return sizes }

func allOf(t dtype.DType, n int) []dtype.DType { return slices.Repeat([]dtype.DType{t}, n) }

// widthCases have calls of each family that takes operands with strides.
func widthCases() []widthCase {
	f32, u8, i64, b := dtype.Float32, dtype.Uint8, dtype.Int64, dtype.Bool
	window := &Pool{Kernel: []int{2, 2}}
	return []widthCase{
		{ElementwiseFamily, "add", allOf(u8, 3), sized([]int{3, 4}, []int{3, 4}, []int{3, 4}),
			func(p *Plan, x []Operand) error { return p.Elementwise("add", u8, x[:1], x[1:], Int(1)) }},
		{ReduceFamily, "sum", allOf(u8, 2), sized([]int{3, 1}, []int{3, 4}),
			func(p *Plan, x []Operand) error { return p.Reduce("sum", dtype.Int64, x[:1], x[1], []int{1}) }},
		{ReduceFamily, "sum by a block", allOf(u8, 2), sized([]int{3, 1, 1}, []int{3, 99, 9}),
			func(p *Plan, x []Operand) error { return p.Reduce("sum", dtype.Int64, x[:1], x[1], []int{1, 2}) }},
		{ReduceFamily, "sum by parts", allOf(u8, 2), sized([]int{1, 2}, []int{1 << 16, 2}),
			func(p *Plan, x []Operand) error { return p.Reduce("sum", dtype.Int64, x[:1], x[1], []int{0}) }},
		{IndexFamily, "take", []dtype.DType{f32, f32, i64}, sized([]int{3, 5}, []int{3, 4}, []int{5}),
			func(p *Plan, x []Operand) error {
				in := x[1] // dimension 1 is the indexed one
				step := in.Strides[1]
				in.Sizes, in.Strides = []int{3, 1}, []int{in.Strides[0], 0}
				return p.Take(x[0], in, 0, Index{Operand: x[2], Size: 4, Stride: step})
			}},
		{IndexFamily, "put", []dtype.DType{f32, f32, i64}, sized([]int{3, 4}, []int{3, 5}, []int{5}),
			func(p *Plan, x []Operand) error {
				out := x[0]
				step := out.Strides[1]
				out.Sizes, out.Strides = []int{3, 1}, []int{out.Strides[0], 0}
				return p.Put("add", out, x[1], 0, Index{Operand: x[2], Size: 4, Stride: step})
			}},
		{RowFamily, "softmax", allOf(f32, 2), sized([]int{3, 4}, []int{3, 4}),
			func(p *Plan, x []Operand) error { return p.Softmax("softmax", x[0], x[1], 1) }},
		{RowFamily, "layer_norm", allOf(f32, 2), sized([]int{3, 50}, []int{3, 50}),
			func(p *Plan, x []Operand) error { return p.Normalize("layer_norm", x[0], x[1], &Norm{}, 1e-5) }},
		{MatmulFamily, "matmul", allOf(f32, 4), sized([]int{2, 3, 5}, []int{2, 3, 4}, []int{2, 4, 5}, []int{2, 3, 5}),
			func(p *Plan, x []Operand) error { return p.Matmul(x[0], x[1], x[2], x[3], Float(1), Float(1), "") }},
		{RandomFamily, "uniform", allOf(f32, 1), sized([]int{3, 4}),
			func(p *Plan, x []Operand) error { return p.Uniform(x[0], Random{}, 0, 1) }},
		{RandomFamily, "dropout", []dtype.DType{f32, b, f32}, sized([]int{3, 4}, []int{3, 4}, []int{3, 4}),
			func(p *Plan, x []Operand) error { return p.Dropout(x[0], x[1], x[2], Random{}, 0.5) }},
		{ScanFamily, "cumsum", allOf(f32, 2), sized([]int{3, 4}, []int{3, 4}),
			func(p *Plan, x []Operand) error { return p.Scan("cumsum", f32, x[:1], x[1], 1) }},
		{PoolFamily, "max_pool", []dtype.DType{f32, i64, f32}, sized([]int{2, 3, 2, 2}, []int{2, 3, 2, 2}, []int{2, 3, 4, 4}),
			func(p *Plan, x []Operand) error { return p.MaxPool(x[0], x[1], x[2], window) }},
		{ResampleFamily, "avg_pool", allOf(f32, 2), sized([]int{2, 3, 2, 2}, []int{2, 3, 4, 4}),
			func(p *Plan, x []Operand) error { return p.AveragePool(x[0], x[1], window) }},
		{ResampleFamily, "nearest", allOf(f32, 2), sized([]int{2, 3, 8, 8}, []int{2, 3, 4, 4}),
			func(p *Plan, x []Operand) error { return p.Upsample(x[0], x[1], &Upsampling{Mode: "nearest"}) }},
		{Im2colFamily, "im2col", allOf(f32, 2), sized([]int{2, 3, 2, 2, 3, 3}, []int{2, 3, 4, 4}),
			func(p *Plan, x []Operand) error { return p.Im2col(x[0], x[1], window) }},
		{GridFamily, "grid_sample", allOf(f32, 3), sized([]int{2, 3, 5, 5}, []int{2, 3, 4, 4}, []int{2, 5, 5, 2}),
			func(p *Plan, x []Operand) error {
				return p.GridSample(x[0], x[1], x[2], &GridSampling{Mode: "bilinear", Border: "zeros"})
			}},
		{ConvolutionFamily, "conv2d", allOf(f32, 3), sized([]int{2, 5, 4, 4}, []int{2, 3, 4, 4}, []int{5, 3, 1, 1}),
			func(p *Plan, x []Operand) error { return p.Convolution(x[0], x[1], x[2], Operand{}, &Convolution{}) }},
		{SortFamily, "sort", []dtype.DType{f32, i64, f32}, sized([]int{3, 4}, []int{3, 4}, []int{3, 4}),
			func(p *Plan, x []Operand) error { return p.Sort(x[0], x[1], x[2], 1, false) }},
		{SearchFamily, "searchsorted", []dtype.DType{i64, f32, f32, i64},
			sized([]int{3, 4}, []int{3, 4}, []int{3, 6}, []int{3, 6}),
			func(p *Plan, x []Operand) error { return p.Search(x[0], x[1], x[2], x[3], false) }},
		{MaskedFamily, "nonzero", []dtype.DType{i64, b}, sized([]int{12, 2}, []int{3, 4}),
			func(p *Plan, x []Operand) error { return p.Nonzero(x[0], x[1]) }},
		{MaskedFamily, "masked_select", []dtype.DType{f32, f32, b}, sized([]int{12}, []int{3, 4}, []int{3, 4}),
			func(p *Plan, x []Operand) error { return p.MaskedSelect(x[0], x[1], x[2]) }},
		{LossFamily, "nll_loss", []dtype.DType{f32, f32, i64, f32}, sized([]int{3, 5}, []int{3, 4, 5}, []int{3, 5}, []int{4}),
			func(p *Plan, x []Operand) error {
				return p.NLL(x[0], Operand{}, x[1], x[2], &NLL{Class: 1, Weight: x[3], Ignore: -1})
			}},
		{BagFamily, "embedding_bag", []dtype.DType{f32, f32, i64, i64}, sized([]int{3, 4}, []int{7, 4}, []int{9}, []int{3}),
			func(p *Plan, x []Operand) error {
				return p.EmbeddingBag(x[0], x[1], &Bags{Indexes: x[2], Offsets: x[3], Padding: -1})
			}},
		{DistanceFamily, "cdist", allOf(f32, 3), sized([]int{2, 3, 5}, []int{2, 3, 4}, []int{2, 5, 4}),
			func(p *Plan, x []Operand) error { return p.Distance(x[0], x[1], x[2], 2) }},
		{DistanceFamily, "cdist_backward", allOf(f32, 5),
			sized([]int{2, 3, 4}, []int{2, 3, 5}, []int{2, 3, 4}, []int{2, 5, 4}, []int{2, 3, 5}),
			func(p *Plan, x []Operand) error { return p.DistanceBackward(x[0], x[1], x[2], x[3], x[4], 2) }},
		{SparseFamily, "sparse_matmul", []dtype.DType{f32, i64, i64, f32, f32, f32},
			sized([]int{3, 4}, []int{4}, []int{9}, []int{9}, []int{5, 4}, []int{3, 4}),
			func(p *Plan, x []Operand) error {
				return p.SparseMatmul(x[0], &SparseRows{x[1], x[2], x[3]}, x[4], x[5], Float(1), Float(1))
			}},
		{AttentionFamily, "attention", allOf(f32, 4),
			sized([]int{2, 2, 3, 8}, []int{2, 2, 3, 8}, []int{2, 2, 5, 8}, []int{2, 2, 5, 8}),
			func(p *Plan, x []Operand) error { return p.Attention(x[0], Operand{}, x[1], x[2], x[3], &Attention{}) }},
	}
}

// spread are strides of which each one's steps are narrow, and their sum isn't. One dimension alone has all.
func spread(sizes []int) []int {
	long := 0
	for _, n := range sizes {
		if n > 1 {
			long++
		}
	}
	strides := make([]int, len(sizes))
	for k, n := range sizes {
		strides[k] = narrow / long * 3 / 2 / max(n-1, 1)
	}
	return strides
}

// Kernels add the steps of all dimensions of an operand, so that the largest sum decides on the width of indexes, in all
// families and for each operand.
func TestWidthOfSums(t *testing.T) {
	seen := map[text.Family]bool{ForeachFamily: true} // whose tensors have no strides: see TestListWide
	for _, c := range widthCases() {
		seen[c.family] = true
		for far := -1; far < len(c.sizes); far++ {
			for _, cores := range []int{0, 4} {
				x := make([]Operand, len(c.sizes))
				for k, sizes := range c.sizes {
					x[k] = Operand{Ptr: 4096, Type: c.types[k], Sizes: sizes, Strides: Dense(sizes...)}
					if k == far {
						x[k].Strides = spread(sizes)
					}
				}
				p := Plan{Cores: cores, Scratch: func(int) (device.Ptr, error) { return 4096, nil }}
				if err := c.call(&p, x); err != nil {
					t.Errorf("%s: %v", c.name, err)
					continue
				}
				calls := 0
				for k := range p.Calls {
					if s := &p.Calls[k].Spec; s.Family == c.family {
						calls++
						if s.Wide && far < 0 {
							t.Errorf("%s with %d cores has indexes of 64 bits", c.name, cores)
						}
						if !s.Wide && far >= 0 {
							t.Errorf("%s with %d cores has indexes of 32 bits, where operand %d has strides %v of sizes %v",
								c.name, cores, far, x[far].Strides, x[far].Sizes)
						}
					}
				}
				if calls == 0 {
					t.Errorf("%s has no call of its family", c.name)
				}
			}
		}
	}
	for _, f := range text.Families() {
		if !seen[f] {
			t.Errorf("family %v has no case", f)
		}
	}
}

// The sums of rows that lie far from each other.
func TestReduceWide(t *testing.T) {
	const n = 1610612736
	for _, cores := range []int{0, 4} {
		p := Plan{Cores: cores, Scratch: func(int) (device.Ptr, error) { return 4096, nil }}
		must(t, p.Reduce("sum", dtype.Int64, []Operand{{4096, dtype.Int64, []int{2, 1}, []int{1, 1}, nil}},
			Operand{4096, dtype.Uint8, []int{2, n}, []int{n, 1}, nil}, []int{1}))
		for _, c := range p.Calls {
			if c.Spec.Family == ReduceFamily && !c.Spec.Wide {
				t.Errorf("with %d cores %v has indexes of 32 bits", cores, c.Spec)
			}
		}
	}
}
