package kernel

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/kernel/text"
)

// longs are integers as a tensor's memory.
func (a *array) longs(v ...int) {
	for i, x := range v {
		if a.Type == dtype.Int64 {
			binary.NativeEndian.PutUint64(a.data[8*i:], uint64(x))
		} else {
			binary.NativeEndian.PutUint32(a.data[4*i:], uint32(x))
		}
	}
}

// Embeddings of bags and single indexes, with all of their gradients, against PyTorch.
func TestBagTorch(t *testing.T) {
	x, dir, r := &comparisons{c: openCL(t)}, t.TempDir(), 0
	for k, dt := range []dtype.DType{dtype.Float32, dtype.Float64, dtype.Float16, dtype.BFloat16} {
		whole := []dtype.DType{dtype.Int64, dtype.Int32}[k%2]
		const rows, columns, n, bags = 7, 5, 12, 6
		a, g, w := x.c.dense(t, dt, rows, columns), x.c.dense(t, dt, n, columns), x.c.dense(t, dt, n)
		at, offsets := x.c.dense(t, whole, n), x.c.dense(t, whole, bags)
		for j, o := range []*array{a, g, w} {
			z := make([]complex128, len(o.data)/dt.Size())
			for i := range z {
				z[i] = complex(float64(i*(7+j)%29-9)/8, 0)
			}
			o.set(z)
		}
		at.longs(3, 1, 3, 0, 6, 2, 2, 3, 1, 1, 6, 3)
		offsets.longs(0, 3, 3, 4, 9, 12) // empty ones in the middle and at the end
		files := strings.Join([]string{a.file(t, dir, 10*k), at.file(t, dir, 10*k+1), offsets.file(t, dir, 10*k+2),
			w.file(t, dir, 10*k+3), g.file(t, dir, 10*k+4)}, " ")
		head := fmt.Sprintf("%v|%s|a = a.view(7, 5).requires_grad_(); d = d.requires_grad_(); e = e.view(12, 5); ", dt, files)
		for mode, name := range []string{"sum", "mean", "max"} {
			for _, padding := range []int{-1, 3} {
				for _, last := range []bool{false, true} { // the last offset is the end of the last bag
					if r++; !sampled(r, 22, 1) || dt.Size() == 2 && mode == 2 {
						continue
					}
					weighted := mode == 0 && (padding < 0) == last
					count := bags
					if last {
						count--
					}
					args := fmt.Sprintf("b, a, c, mode='%s'", name)
					if padding >= 0 {
						args += fmt.Sprintf(", padding_idx=%d", padding)
					}
					if last {
						args += ", include_last_offset=True"
					}
					wrt, outs := "a", []Operand{of(dt, count, columns), of(dt, rows, columns)}
					if weighted {
						args += ", per_sample_weights=d"
						wrt, outs = "[a, d]", append(outs, of(dt, n))
					}
					b := &Bags{Mode: BagMode(mode), Indexes: at.Operand, Offsets: offsets.Operand, Padding: padding}
					if weighted {
						b.Weights = w.Operand
					}
					x.add(t, fmt.Sprintf("embedding_bag of %v, %s", dt, args),
						head+fmt.Sprintf("y = F.embedding_bag(%s); (y, *torch.autograd.grad(y, %s, e[:%d]))", args, wrt, count), outs,
						func(p *Plan, outs []Operand) error {
							var err error
							for _, o := range []struct {
								*Operand
								sizes []int
							}{{&b.Bag, []int{n}}, {&b.Size, []int{count}}, {&b.Max, []int{count, columns}}} {
								if *o.Operand, err = p.temporary(whole, o.sizes...); err != nil {
									return err
								}
							}
							if err := p.EmbeddingBag(outs[0], a.Operand, b); err != nil {
								return err
							}
							grad := g.Narrow(0, 0, count)
							if err := p.EmbeddingBackward(outs[1], grad, b, false); err != nil || !weighted {
								return err
							}
							return p.EmbeddingWeightsBackward(outs[2], grad, a.Operand, b)
						})
				}
			}
		}
		for _, padding := range []int{-1, 3} {
			for _, frequency := range []bool{false, true} {
				if r++; !sampled(r, 14, 1) {
					continue
				}
				x.add(t, fmt.Sprintf("embedding_dense_backward of %v, %d, %v", dt, padding, frequency),
					head+fmt.Sprintf("torch.ops.aten.embedding_dense_backward(e, b, 7, %d, %s)", padding,
						map[bool]string{true: "True", false: "False"}[frequency]),
					[]Operand{of(dt, rows, columns)}, func(p *Plan, outs []Operand) error {
						return p.EmbeddingBackward(outs[0], g.Operand, &Bags{Indexes: at.Operand, Padding: padding}, frequency)
					})
			}
		}
	}
	x.compare(t, 4)
}

// Indexes and offsets that are out of range read and write nothing, and are reported. Operands that don't fit are
// refused.
func TestBagRefused(t *testing.T) {
	c, f32, none := openCL(t), dtype.Float32, Operand{}
	a, out := c.dense(t, f32, 3, 2), c.dense(t, f32, 3, 2)
	at, offsets := c.dense(t, dtype.Int64, 4), c.dense(t, dtype.Int64, 3)
	word := c.dense(t, dtype.Int32, 1)
	a.set([]complex128{1, 2, 3, 4, 5, 6})
	at.longs(2, 3, -1, 0)
	offsets.longs(0, 3, 5)
	clear(word.data)
	b := &Bags{Indexes: at.Operand, Offsets: offsets.Operand, Padding: -1, Bad: word.Ptr}
	p := c.plan(t)
	must(t, p.EmbeddingBag(out.Operand, a.Operand, b))
	must(t, c.run(p))
	out.intact(t, "embedding_bag")
	if got := fmt.Sprint(integers(f32, out.data)); got != "[5 6 0 0 0 0]" || word.data[0] != 1 {
		t.Errorf("%s, reported %v", got, word.data)
	}
	clear(word.data)
	grad := c.dense(t, f32, 4, 2)
	grad.set([]complex128{1, 2, 3, 4, 5, 6, 7, 8})
	p.Reset()
	must(t, p.EmbeddingBackward(out.Operand, grad.Operand, &Bags{Indexes: at.Operand, Padding: -1, Bad: word.Ptr}, false))
	must(t, c.run(p))
	if got := fmt.Sprint(integers(f32, out.data)); got != "[7 8 0 0 1 2]" || word.data[0] != 1 {
		t.Errorf("backward: %s, reported %v", got, word.data)
	}
	clear(word.data)
	at.longs(2, 0, -1, 0) // no row is padding, which -1 was
	p.Reset()
	must(t, p.EmbeddingBackward(out.Operand, grad.Operand, &Bags{Indexes: at.Operand, Padding: -1, Bad: word.Ptr}, false))
	must(t, c.run(p))
	if got := fmt.Sprint(integers(f32, out.data)); got != "[10 12 0 0 1 2]" || word.data[0] != 1 {
		t.Errorf("backward with -1: %s, reported %v", got, word.data)
	}
	p.Reset()
	with := func(change func(b *Bags)) *Bags {
		x := *b
		change(&x)
		return &x
	}
	for want, err := range map[string]error{
		"indexes of float32":                        p.EmbeddingBag(out.Operand, a.Operand, with(func(b *Bags) { b.Indexes = word.strided([]int{1}, []int{1}); b.Indexes.Type = f32 })),
		"offsets [3] of int32":                      p.EmbeddingBag(out.Operand, a.Operand, with(func(b *Bags) { b.Offsets.Type = dtype.Int32 })),
		"of 3 bags":                                 p.EmbeddingBag(out.Operand, a.Operand, with(func(b *Bags) { b.Offsets = offsets.Narrow(0, 0, 2) })),
		"mode 1 with weights":                       p.EmbeddingBag(out.Operand, a.Operand, with(func(b *Bags) { b.Mode, b.Weights = BagMean, grad.Operand })),
		"which must be [3]":                         p.EmbeddingBag(out.Operand, a.Operand, with(func(b *Bags) { b.Size = at.Operand })),
		"4 rows of gradients":                       p.EmbeddingBackward(out.Operand, grad.Operand, with(func(b *Bags) { b.Indexes = offsets.Operand }), false),
		"mode 1 without":                            p.EmbeddingBackward(out.Operand, grad.Operand, with(func(b *Bags) { b.Mode, b.Bag = BagMean, at.Operand }), false),
		"embedding_bag of [3 2] of float32 and [3]": p.EmbeddingBag(out.Operand, offsets.Operand, b),
		"weights_backward to []":                    p.EmbeddingWeightsBackward(none, out.Operand, a.Operand, b),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	big := Operand{a.Ptr, f32, []int{1 << 30, 2}, []int{2, 1}, nil}
	p.Reset()
	must(t, p.EmbeddingBag(out.Operand, big, b))
	if !p.Calls[0].Spec.Wide {
		t.Error("a place beyond 31 bits in one of 32")
	}
}

// bagSpecs are the kernels of bags.
func bagSpecs() []text.Spec {
	var all []text.Spec
	for k, dt := range []dtype.DType{dtype.Float32, dtype.Float64, dtype.Float16, dtype.BFloat16} {
		whole := []dtype.DType{dtype.Int64, dtype.Int32}[k%2]
		a := Operand{4096, dt, []int{7, 5 + k%2<<29}, []int{5 + k%2<<29, 1}, nil}
		line := Operand{4096, whole, []int{7}, []int{1}, nil}
		for mode := BagSum; mode <= BagMax; mode++ {
			max := a
			max.Type = whole
			b := &Bags{Mode: mode, Indexes: line, Offsets: line, Bag: line, Size: line, Max: max}
			all = append(all, specsOf(func(p *Plan) error {
				if err := p.EmbeddingBag(a, a, b); err != nil {
					return err
				}
				if mode == BagSum {
					weights := line
					weights.Type = dt
					if err := p.EmbeddingWeightsBackward(weights, a, a, b); err != nil {
						return err
					}
				}
				return p.EmbeddingBackward(a, a, b, false)
			})...)
		}
	}
	return all
}
