package tensor

import (
	"slices"
	"testing"
	"unsafe"

	"pgregory.net/rapid"

	"github.com/chorus-comms/chorus/dtype"
)

// model is the naive idea of a view: where each element, in row-major order, comes from.
type model struct {
	shape []int
	from  []int
}

// at is the position of an index in the model's list.
func (m model) at(index []int) int {
	k := 0
	for i, x := range index {
		k = k*m.shape[i] + x
	}
	return k
}

// remap makes a model of another shape, whose element at an index is m's at f(index).
func (m model) remap(shape []int, f func(index []int) []int) model {
	out := model{shape: shape}
	for _, index := range indices(shape) {
		out.from = append(out.from, m.from[m.at(f(index))])
	}
	return out
}

// indices lists all indices of a shape in row-major order.
func indices(shape []int) [][]int {
	list := [][]int{{}}
	for _, n := range shape {
		var longer [][]int
		for _, head := range list {
			for i := range n {
				longer = append(longer, append(slices.Clone(head), i))
			}
		}
		list = longer
	}
	return list
}

func product(shape []int) int {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return n
}

func drawShape(t *rapid.T, dims int) []int {
	return rapid.SliceOfN(rapid.SampledFrom([]int{1, 2, 3, 4, 5, 7, 1, 2, 3, 6, 0}), 0, dims).Draw(t, "shape")
}

// drawView draws a chain of views of x, applied to a tensor and to its model.
func drawView(t *rapid.T, x *Tensor, m model, expand bool) (*Tensor, model) {
	for range rapid.IntRange(0, 5).Draw(t, "views") {
		dims := len(m.shape)
		ops := []string{"unsqueeze", "squeeze", "permute", "view"}
		if dims > 0 {
			ops = append(ops, "slice", "narrow", "select", "transpose", "split", "chunk")
		}
		if expand {
			ops = append(ops, "expand")
		}
		op := rapid.SampledFrom(ops).Draw(t, "op")
		dim := 0
		if dims > 0 {
			dim = rapid.IntRange(0, dims-1).Draw(t, "dim")
		}
		named := dim - dims*rapid.IntRange(0, 1).Draw(t, "fromEnd") // the same dimension, perhaps counted from the end
		old := m
		var err error
		switch op {
		case "slice", "narrow":
			start := rapid.IntRange(0, m.shape[dim]).Draw(t, "start")
			end := rapid.IntRange(start, m.shape[dim]).Draw(t, "end")
			step := 1
			if op == "narrow" {
				x, err = x.Narrow(named, start, end-start)
			} else {
				step = rapid.IntRange(1, 3).Draw(t, "step")
				x, err = x.Slice(named, start, end, step)
			}
			shape := slices.Clone(m.shape)
			shape[dim] = 0
			for i := start; i < end; i += step {
				shape[dim]++
			}
			m = old.remap(shape, func(ix []int) []int { ix = slices.Clone(ix); ix[dim] = start + ix[dim]*step; return ix })
		case "select":
			if m.shape[dim] == 0 {
				continue
			}
			i := rapid.IntRange(0, m.shape[dim]-1).Draw(t, "i")
			x, err = x.Select(named, i)
			m = old.remap(without(m.shape, dim), func(ix []int) []int { return slices.Insert(slices.Clone(ix), dim, i) })
		case "transpose":
			other := rapid.IntRange(0, dims-1).Draw(t, "other")
			x, err = x.Transpose(named, other)
			swap := func(ix []int) []int { ix = slices.Clone(ix); ix[dim], ix[other] = ix[other], ix[dim]; return ix }
			m = old.remap(swap(m.shape), swap)
		case "permute":
			order := make([]int, dims)
			for i := range order {
				order[i] = i
			}
			order = rapid.Permutation(order).Draw(t, "order")
			x, err = x.Permute(order...)
			shape := make([]int, dims)
			for i, d := range order {
				shape[i] = old.shape[d]
			}
			m = old.remap(shape, func(ix []int) []int {
				from := make([]int, dims)
				for i, d := range order {
					from[d] = ix[i]
				}
				return from
			})
		case "unsqueeze":
			at := rapid.IntRange(0, dims).Draw(t, "at")
			x, err = x.Unsqueeze(at)
			m = model{slices.Insert(slices.Clone(m.shape), at, 1), m.from}
		case "squeeze":
			var shape []int
			if dims > 0 && rapid.Bool().Draw(t, "one") {
				x, err = x.Squeeze(named)
				shape = slices.Clone(m.shape)
				if shape[dim] == 1 {
					shape = without(shape, dim)
				}
			} else {
				x, err = x.Squeeze()
				shape = slices.DeleteFunc(slices.Clone(m.shape), func(n int) bool { return n == 1 })
			}
			m = model{shape, m.from}
		case "split", "chunk":
			n := rapid.IntRange(1, 4).Draw(t, "n")
			var parts []*Tensor
			size := n
			if op == "split" {
				parts, err = x.Split(n, named)
			} else {
				parts, err = x.Chunk(n, named)
				size = max((old.shape[dim]+n-1)/n, 1)
			}
			if err != nil {
				t.Fatal(err)
			}
			if want := max((old.shape[dim]+size-1)/size, 1); len(parts) != want {
				t.Fatalf("%s %d of %v: %d parts, want %d", op, n, old.shape, len(parts), want)
			}
			i := rapid.IntRange(0, len(parts)-1).Draw(t, "part")
			x = parts[i]
			shape := slices.Clone(old.shape)
			shape[dim] = min(size, old.shape[dim]-i*size)
			m = old.remap(shape, func(ix []int) []int { ix = slices.Clone(ix); ix[dim] += i * size; return ix })
		case "expand":
			front := drawShape(t, 1)
			target := slices.Concat(front, m.shape)
			if product(target) > 500 {
				continue
			}
			for i, n := range m.shape {
				if n == 1 {
					target[len(front)+i] = rapid.SampledFrom([]int{0, 1, 2, 4}).Draw(t, "size")
				}
			}
			x, err = x.Expand(target...)
			m = old.remap(target, func(ix []int) []int {
				ix = slices.Clone(ix[len(front):])
				for i := range ix {
					if old.shape[i] == 1 {
						ix[i] = 0
					}
				}
				return ix
			})
		case "view":
			// Another shape with as many elements, by moving factors between dimensions.
			shape := slices.Clone(m.shape)
			switch rapid.IntRange(0, 2).Draw(t, "how") {
			case 0:
				shape = []int{len(m.from)}
			case 1:
				if dims > 1 && dim+1 < dims {
					shape[dim] *= shape[dim+1]
					shape = without(shape, dim+1)
				}
			case 2:
				if dims > 0 && shape[dim]%2 == 0 {
					shape[dim] /= 2
					shape = slices.Insert(shape, dim+1, 2)
				}
			}
			v, verr := x.View(shape...)
			r, rerr := x.Reshape(shape...)
			if rerr != nil {
				t.Fatal(rerr)
			}
			if verr == nil {
				x = v
				if r.Pointer() != v.Pointer() {
					t.Fatal("Reshape copied where View did not")
				}
			} else {
				if expressible(old, shape) {
					t.Fatalf("%v", verr)
				}
				for k, index := range indices(shape) { // the copy must hold the same elements
					if int(r.At(index...)) != old.from[k] {
						t.Fatalf("Reshape: element %v is %v, want %d", index, r.At(index...), old.from[k])
					}
				}
				continue
			}
			m = model{shape, m.from}
		}
		if err != nil {
			t.Fatalf("%s of %v: %v", op, old.shape, err)
		}
	}
	return x, m
}

// expressible reports whether strides exist that give a model's elements another shape, by trying the only candidates:
// the distances that the elements themselves show.
func expressible(m model, shape []int) bool {
	if len(m.from) == 0 {
		return true
	}
	r := model{shape, m.from}
	strides := make([]int, len(shape))
	for d, n := range shape {
		if n > 1 {
			one := make([]int, len(shape))
			one[d] = 1
			strides[d] = r.from[r.at(one)] - r.from[0]
		}
	}
	for k, index := range indices(shape) {
		at := r.from[0]
		for d, x := range index {
			at += x * strides[d]
		}
		if at != r.from[k] {
			return false
		}
	}
	return true
}

// counting makes a tensor whose elements are their own positions, with its model.
func counting(shape []int) (*Tensor, model) {
	m := model{shape: shape}
	data := make([]int32, product(shape))
	for i := range data {
		data[i] = int32(i)
		m.from = append(m.from, i)
	}
	return Must(FromSlice(data, shape...)), m
}

func TestViewsEqualModel(t *testing.T) {
	for range 10 { // a single check tries too few chains
		rapid.Check(t, viewsEqualModel)
	}
}

func viewsEqualModel(t *rapid.T) {
	base, m := counting(drawShape(t, 3))
	x, m := drawView(t, base, m, true)
	if !slices.Equal(x.Shape(), m.shape) || x.NumEl() != len(m.from) || x.Dim() != len(m.shape) ||
		x.NBytes() != 4*len(m.from) {
		t.Fatalf("%v with %d elements, want %v with %d", x.Shape(), x.NumEl(), m.shape, len(m.from))
	}
	consecutive, repeated := true, false
	seen := map[int]bool{}
	for k, index := range indices(m.shape) {
		if got := x.Value(index...); got != int32(m.from[k]) {
			t.Fatalf("element %v is %v, want %d", index, got, m.from[k])
		}
		consecutive = consecutive && m.from[k] == m.from[0]+k
		repeated = repeated || seen[m.from[k]]
		seen[m.from[k]] = true
	}
	if x.IsContiguous() != consecutive {
		t.Fatalf("contiguous is %v, shape %v strides %v", x.IsContiguous(), x.Shape(), x.Strides())
	}
	if x.HasInternalOverlap() != repeated {
		t.Fatalf("overlap is %v, shape %v strides %v", x.HasInternalOverlap(), x.Shape(), x.Strides())
	}
	if len(m.from) > 0 && (x.Pointer() != unsafe.Add(base.Pointer(), 4*m.from[0]) || x.Offset() != m.from[0]) {
		t.Fatalf("begins at %p, offset %d, want element %d of %p", x.Pointer(), x.Offset(), m.from[0], base.Pointer())
	}
}

func TestCopyEqualsModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		shape := drawShape(t, 3)
		dstBase, dm := counting(shape)
		dst, dm := drawView(t, dstBase, dm, false)
		// The source is a view of its own memory, or another view of the same memory: then they may overlap.
		srcBase, _ := counting(slices.Concat(dm.shape, []int{2}))
		var src *Tensor
		if rapid.Bool().Draw(t, "same memory") && len(dm.shape) > 0 {
			flip := rapid.Permutation(indices([]int{len(dm.shape)})).Draw(t, "flip")
			order := make([]int, len(flip))
			shape := make([]int, len(flip))
			for i, f := range flip {
				order[i] = f[0]
				shape[i] = dm.shape[f[0]]
			}
			if !slices.Equal(shape, dm.shape) {
				t.Skip("the shapes differ")
			}
			src = Must(dst.Permute(order...))
		} else {
			src = Must(srcBase.Select(-1, 1))
		}
		want := make([]any, 0, len(dm.from))
		for _, index := range indices(dm.shape) {
			want = append(want, src.Value(index...))
		}
		if err := dst.CopyFrom(src); err != nil {
			t.Fatal(err)
		}
		written := map[int]bool{}
		for k, index := range indices(dm.shape) {
			if got := dst.Value(index...); got != want[k] {
				t.Fatalf("element %v is %v, want %v", index, got, want[k])
			}
			written[dm.from[k]] = true
		}
		for i := range dstBase.NumEl() { // what the view leaves out is untouched
			flat := Must(dstBase.View(-1))
			if !written[i] && flat.Value(i) != int32(i) {
				t.Fatalf("element %d outside of the view was written", i)
			}
		}
	})
}

func TestViewErrors(t *testing.T) {
	x := Must(Zeros(dtype.Int32, 2, 3))
	expanded := Must(Must(Zeros(dtype.Int32, 1)).Expand(4))
	two := func(l []*Tensor, err error) (*Tensor, error) { return nil, err }
	for name, f := range map[string]func() (*Tensor, error){
		"narrow beyond":          func() (*Tensor, error) { return x.Narrow(0, 1, 2) },
		"narrow negative":        func() (*Tensor, error) { return x.Narrow(0, 1, -1) },
		"narrow overflow":        func() (*Tensor, error) { return x.Narrow(0, 1, int(^uint(0)>>1)) },
		"narrow dimension":       func() (*Tensor, error) { return x.Narrow(2, 0, 0) },
		"narrow dimension -3":    func() (*Tensor, error) { return x.Narrow(-3, 0, 0) },
		"slice step":             func() (*Tensor, error) { return x.Slice(0, 0, 1, 0) },
		"slice start":            func() (*Tensor, error) { return x.Slice(0, -1, 1, 1) },
		"select beyond":          func() (*Tensor, error) { return x.Select(1, 3) },
		"select scalar":          func() (*Tensor, error) { return Must(Zeros(dtype.Int8)).Select(0, 0) },
		"permute short":          func() (*Tensor, error) { return x.Permute(0) },
		"permute twice":          func() (*Tensor, error) { return x.Permute(1, -1) },
		"transpose":              func() (*Tensor, error) { return x.Transpose(0, 2) },
		"squeeze":                func() (*Tensor, error) { return x.Squeeze(5) },
		"unsqueeze":              func() (*Tensor, error) { return x.Unsqueeze(4) },
		"expand other":           func() (*Tensor, error) { return x.Expand(2, 4) },
		"expand fewer":           func() (*Tensor, error) { return x.Expand(3) },
		"expand negative":        func() (*Tensor, error) { return x.Expand(-2, 2, 3) },
		"expand new -1":          func() (*Tensor, error) { return x.Expand(-1, 2, 3) },
		"expand too large":       func() (*Tensor, error) { return x.Expand(1<<62, 2, 3) },
		"view count":             func() (*Tensor, error) { return x.View(5) },
		"view two holes":         func() (*Tensor, error) { return x.View(-1, -1) },
		"view hole":              func() (*Tensor, error) { return x.View(4, -1) },
		"view hole of nothing":   func() (*Tensor, error) { return x.View(0, -1) },
		"view of transposed":     func() (*Tensor, error) { return Must(x.Transpose(0, 1)).View(6) },
		"split size":             func() (*Tensor, error) { return two(x.Split(0, 0)) },
		"split dimension":        func() (*Tensor, error) { return two(x.Split(1, 2)) },
		"chunks":                 func() (*Tensor, error) { return two(x.Chunk(0, 0)) },
		"negative shape":         func() (*Tensor, error) { return Zeros(dtype.Int8, 2, -1) },
		"overflow":               func() (*Tensor, error) { return Zeros(dtype.Int64, 1<<31, 1<<31) },
		"overflow beside 0":      func() (*Tensor, error) { return Zeros(dtype.Int64, 0, 1<<40, 1<<40) },
		"beyond the heap":        func() (*Tensor, error) { return Zeros(dtype.Int8, 1<<62) },
		"shared beyond the heap": func() (*Tensor, error) { return EmptyShared(dtype.Int8, 1<<62) },
		"no type":                func() (*Tensor, error) { return Zeros(dtype.Invalid, 1) },
		"slice length":           func() (*Tensor, error) { return FromSlice([]int8{1, 2, 3}, 2) },
		"bytes length":           func() (*Tensor, error) { return FromBytes(dtype.Int16, make([]byte, 3), 1) },
		"nil pointer":            func() (*Tensor, error) { return FromPointer(dtype.Int16, nil, 1) },
		"misaligned":             func() (*Tensor, error) { return FromBytes(dtype.Int64, Must(Zeros(dtype.Int8, 9)).raw()[1:], 1) },
		"strides missing":        func() (*Tensor, error) { return FromStrided(dtype.Int8, x.Pointer(), []int{1}, nil) },
		"negative stride":        func() (*Tensor, error) { return FromStrided(dtype.Int8, x.Pointer(), []int{2}, []int{-1}) },
		"huge stride":            func() (*Tensor, error) { return FromStrided(dtype.Int8, x.Pointer(), []int{5}, []int{1 << 62}) },
		"copy of another shape":  func() (*Tensor, error) { return nil, x.CopyFrom(Must(Zeros(dtype.Int32, 3, 2))) },
		"copy into expanded":     func() (*Tensor, error) { return nil, expanded.CopyFrom(Must(Zeros(dtype.Int32, 4))) },
		"fill with a string":     func() (*Tensor, error) { return nil, x.Fill("1") },
		"full with a string":     func() (*Tensor, error) { return Full(dtype.Int8, "1", 1) },
		"bytes of strided":       func() (*Tensor, error) { _, err := Must(x.Transpose(0, 1)).Bytes(); return nil, err },
		"slice of strided":       func() (*Tensor, error) { _, err := Slice[int32](Must(x.Transpose(0, 1))); return nil, err },
	} {
		if _, err := f(); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	for _, index := range [][]int{{0}, {2, 0}, {0, -1}, {0, 0, 0}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("index %v of %v did not panic", index, x.Shape())
				}
			}()
			x.At(index...)
		}()
	}
}

func TestAs(t *testing.T) {
	x := Of([]uint32{0x3f800000, 0x40000000, 0, 1})
	f, err := x.As(dtype.Float32, 2, 2)
	if err != nil || f.At(0, 0) != 1 || f.At(0, 1) != 2 || !f.SharesStorage(x) {
		t.Fatalf("%v, %v", f, err)
	}
	tail := Must(x.Narrow(0, 1, 2))
	if b, err := tail.As(dtype.Uint8, 8); err != nil || b.At(3) != 0x40 {
		t.Errorf("%v, %v", b, err)
	}
	if d, err := Must(x.Narrow(0, 0, 0)).As(dtype.Float64, 0); err != nil || d.NumEl() != 0 {
		t.Errorf("%v, %v", d, err)
	}
	for what, bad := range map[string]func() (*Tensor, error){
		"too few":        func() (*Tensor, error) { return x.As(dtype.Float32, 3) },
		"not aligned":    func() (*Tensor, error) { return tail.As(dtype.Float64, 1) },
		"not contiguous": func() (*Tensor, error) { return Must(x.Slice(0, 0, 4, 2)).As(dtype.Float32, 2) },
		"no type":        func() (*Tensor, error) { return x.As(dtype.Invalid, 4) },
	} {
		if _, err := bad(); err == nil {
			t.Errorf("%s: no error", what)
		}
	}
}
