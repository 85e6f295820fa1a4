package kernels

import (
	"errors"
	"strings"
	"testing"

	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/kernel"
)

// TestTable finds each operation of the table by its name, and by the number that this gives.
func TestTable(t *testing.T) {
	seen := map[any]bool{}
	for _, k := range Kinds() {
		if seen[k.Number] || seen[k.Name] {
			t.Errorf("kind %d, %s, is there twice", k.Number, k.Name)
		}
		seen[k.Number], seen[k.Name] = true, true
		for _, r := range k.Rows {
			for _, name := range r.Names {
				n := Find(k.Number, name)
				if o := Numbered(k.Number, n); n == 0 || o == nil || o.Name != name || o.row.Form != r.Form {
					t.Errorf("%s of %s has number %d, which is %+v", name, k.Name, n, o)
				}
			}
		}
	}
	for _, wrong := range [][2]int{{99, 1}, {1, 0}, {1, 9999}, {1, -1}} {
		if o := Numbered(wrong[0], wrong[1]); o != nil {
			t.Errorf("operation %v is %q", wrong, o.Name)
		}
	}
	if Numbered(product, 0) == nil {
		t.Error("there is no product without an activation")
	}
}

// operand is one that is told apart by its address.
func operand(n int) kernel.Operand {
	return kernel.Operand{Ptr: 8, Type: dtype.Float32, Sizes: []int{n}, Strides: []int{1}}
}

// call has so many arguments of each part, and integers from 1 on.
func call(outs, ins, numbers, integers int) *Call {
	c := &Call{}
	for k := range outs {
		c.Outs = append(c.Outs, operand(100+k))
	}
	for k := range ins {
		c.Ins = append(c.Ins, operand(200+k))
	}
	for k := range numbers {
		c.Numbers = append(c.Numbers, kernel.Float(float64(k)+0.5))
	}
	for k := range integers {
		c.Integers = append(c.Integers, k+1)
	}
	return c
}

// TestFill compares the fields of operations with the arguments of a call.
func TestFill(t *testing.T) {
	form := func(kind int, name string, c *Call) form {
		o := Numbered(kind, Find(kind, name))
		if err := o.row.takes.check(name, c); err != nil {
			t.Fatal(err)
		}
		f := newFilled(o.row)
		f.fill(name, c)
		return f.form
	}
	conv := form(32, "convolution", call(1, 3, 0, 8)).(*convolution)
	if !conv.Transposed || conv.Groups != 2 || conv.Stride[1] != 4 || conv.Padding[0] != 5 || conv.Dilation[1] != 8 ||
		len(conv.Dilation) != 2 || conv.Bias.Sizes[0] != 202 {
		t.Errorf("a convolution is %+v", conv)
	}
	put := form(9, "add", call(1, 3, 0, 6)).(*index)
	if put.Op != "add" || len(put.Indexes) != 2 || put.Indexes[1].Sizes[0] != 202 || put.Indexes[1].Size != 4 ||
		put.Indexes[1].Stride != 5 || put.Indexes[1].NoNegative {
		t.Errorf("an index is %+v", put)
	}
	step := form(22, "adam", call(4, 5, 8, 4)).(*optimize)
	if len(step.Outs) != 4 || len(step.Steps) != 2 || step.Rate.Sizes[0] != 202 || step.LrDecay != 7.5 ||
		step.Lists != 1 || !step.First {
		t.Errorf("a step is %+v", step)
	}
	for _, n := range []int{0, 3} {
		x := form(5, "layer_norm", call(3, 3, 1, n)).(*norm)
		if x.Eps != 0.5 || x.Inner != n || x.Rstd.Sizes[0] != 102 {
			t.Errorf("a normalization with %d integers is %+v", n, x)
		}
	}
	if x := form(2, "sum", call(1, 1, 0, 0)).(*reduce); x.Dims != nil {
		t.Errorf("a reduction over %v", x.Dims)
	}
}

// TestTakes refuses calls with other numbers of arguments than the operation has.
func TestTakes(t *testing.T) {
	for _, x := range []struct {
		kind int
		name string
		n    [4]int
	}{
		{3, "cumsum", [4]int{1, 1, 0, 0}}, {3, "cumsum", [4]int{1, 1, 0, 2}}, {4, "softmax", [4]int{1, 2, 0, 1}},
		{5, "layer_norm", [4]int{3, 3, 1, 2}}, {5, "layer_norm", [4]int{3, 3, 0, 0}}, {9, "take", [4]int{1, 1, 0, 0}},
		{9, "take", [4]int{1, 3, 0, 3}}, {32, "convolution", [4]int{1, 3, 0, 7}}, {32, "convolution", [4]int{1, 3, 0, 1}},
		{33, "max", [4]int{1, 1, 0, 2}}, {33, "max", [4]int{2, 1, 0, 5}}, {22, "adam", [4]int{4, 2, 8, 4}}, {8, "eye", [4]int{1, 0, 1, 0}},
	} {
		err := call(x.n[0], x.n[1], x.n[2], x.n[3]).Add(Numbered(x.kind, Find(x.kind, x.name)), x.name, nil)
		if !errors.Is(err, ErrArguments) || !strings.Contains(err.Error(), "kernel "+x.name+" has ") {
			t.Errorf("%s with %v: %v", x.name, x.n, err)
		}
	}
}

// TestValues refuses values that an operation doesn't have.
func TestValues(t *testing.T) {
	for _, x := range []struct {
		kind int
		name string
		n    [4]int
	}{{36, "bilinear", [4]int{1, 2, 0, 2}}, {39, "weights_backward", [4]int{1, 4, 0, 3}}, {41, "nll_loss", [4]int{2, 3, 0, 3}},
		{42, "scaled_matmul", [4]int{1, 6, 0, 3}}, {20, "add", [4]int{1, 2, 1, 5}}, {22, "sgd", [4]int{3, 3, 8, 4}}} {
		c := call(x.n[0], x.n[1], x.n[2], x.n[3])
		for k := range c.Integers {
			c.Integers[k] = 4
		}
		o := Numbered(x.kind, Find(x.kind, x.name))
		f := newFilled(o.row)
		f.fill(x.name, c)
		if err := f.form.add(&c.Plan); !errors.Is(err, ErrArguments) {
			t.Errorf("%s: %v", x.name, err)
		}
	}
}
