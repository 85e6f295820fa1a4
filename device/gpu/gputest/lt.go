//go:build linux

package gputest

import (
	"encoding/binary"
	"math"
	"unsafe"

	"github.com/chorus-comms/chorus/device/driver"
	"github.com/chorus-comms/chorus/device/gpu/abi"
	"github.com/chorus-comms/chorus/dtype"
)

// LtCounts is what the library of fused products has been asked for, and what isn't given back.
type LtCounts struct {
	Handles, Descriptions int // that are left
	Chosen, Products      int // algorithms and products, in all
	Workspace             int // bytes of the last product
}

// Statuses of the library, which are cuBLAS's; those that hipBLAS has other numbers for are [abi.BLASNumbers]'.
const executionFailed abi.Status = 13

// ltWorkspace is how many bytes an algorithm of the stand-in's needs.
const ltWorkspace = 1 << 16

// ltElement is a type by its number.
type ltElement struct {
	dtype.DType
	fnuz bool
}

var ltTypes = map[int32]ltElement{abi.Int8: {DType: dtype.Int8}, abi.Int32: {DType: dtype.Int32},
	abi.Real16: {DType: dtype.Float16}, abi.RealB16: {DType: dtype.BFloat16}, abi.Real32: {DType: dtype.Float32},
	abi.Float8E4M3: {DType: dtype.Float8E4M3FN}, abi.Float8E5M2: {DType: dtype.Float8E5M2},
	abi.Float8E4M3FNUZ: {dtype.Float8E4M3FN, true}, abi.Float8E5M2FNUZ: {dtype.Float8E5M2, true}}

// ltLayout is how a matrix lies: its columns are dense.
type ltLayout struct {
	typ           ltElement
	rows, columns int
	pitch         int
}

// ltProduct is a description of a product.
type ltProduct struct {
	compute, scale int32
	values         map[int32]uint64
}

// ltAlgorithm is what an algorithm was chosen for.
type ltAlgorithm struct {
	layouts   [4]ltLayout // of a, b, c and out
	align     [4]int
	workspace int
}

// lt is the stand-in's state.
type lt struct {
	*Library
	hip        bool
	n          abi.LtNumbers
	common     abi.BLASNumbers
	last       uintptr
	handles    map[abi.LtHandle]bool
	products   map[abi.LtProduct]*ltProduct
	layouts    map[abi.LtLayout]*ltLayout
	wishes     map[abi.LtPreference]map[int32]uint64
	algorithms []ltAlgorithm
	counts     *LtCounts
}

// Lt is a library of fused products, cuBLASLt or hipBLASLt, which computes in float64. As cuBLASLt's documentation says,
// that one has one layout and multiples of 16 bytes. status, if not nil, is what a function returns instead of doing
// anything, unless it's [abi.Done].
func (l *Library) Lt(status func(call string) abi.Status) (abi.Lt, *LtCounts) {
	f := abi.FamilyNamed(l.opts.Name)
	x := &lt{Library: l, hip: f.Name == "hip", n: f.LtNumbers(), common: f.Numbers(), last: 0x17,
		handles: map[abi.LtHandle]bool{}, products: map[abi.LtProduct]*ltProduct{}, layouts: map[abi.LtLayout]*ltLayout{},
		wishes: map[abi.LtPreference]map[int32]uint64{}, counts: &LtCounts{}}
	// call is a call with a current device.
	call := func(name string, f func() abi.Status) (s abi.Status) {
		if status != nil {
			if s := status(name); s != abi.Done {
				return s
			}
		}
		if l.on(func(int) abi.Result { return abi.Success }) != abi.Success {
			return x.common.InvalidValue
		}
		s = f()
		x.counts.Handles, x.counts.Descriptions = len(x.handles), len(x.products)+len(x.layouts)+len(x.wishes)
		return s
	}
	known := func(there bool) abi.Status {
		if !there {
			return x.common.InvalidValue
		}
		return abi.Done
	}
	return abi.Lt{
		Create: func(h *abi.LtHandle) abi.Status {
			return call("Create", func() abi.Status {
				x.last++
				*h = abi.LtHandle(x.last)
				x.handles[*h] = true
				return abi.Done
			})
		},
		Destroy: func(h abi.LtHandle) abi.Status {
			return call("Destroy", func() abi.Status {
				s := known(x.handles[h])
				delete(x.handles, h)
				return s
			})
		},
		NewProduct: func(p *abi.LtProduct, compute, scale int32) abi.Status {
			return call("NewProduct", func() abi.Status {
				x.last++
				*p = abi.LtProduct(x.last)
				x.products[*p] = &ltProduct{compute, scale, map[int32]uint64{}}
				return abi.Done
			})
		},
		SetProduct: func(p abi.LtProduct, attribute int32, value *byte, bytes uint64) abi.Status {
			return call("SetProduct", func() abi.Status {
				want := map[int32]uint64{x.n.TransA: 4, x.n.TransB: 4, x.n.Epilogue: 4, x.n.BiasType: 4, x.n.ScaleModeA: 4,
					x.n.ScaleModeB: 4, x.n.Bias: 8, x.n.ScaleA: 8, x.n.ScaleB: 8, x.n.ScaleOut: 8}[attribute]
				if x.products[p] == nil || want == 0 || bytes != want {
					return x.common.InvalidValue
				}
				x.products[p].values[attribute] = valueOf(value, bytes)
				return abi.Done
			})
		},
		DropProduct: func(p abi.LtProduct) abi.Status {
			return call("DropProduct", func() abi.Status {
				s := known(x.products[p] != nil)
				delete(x.products, p)
				return s
			})
		},
		NewLayout: func(to *abi.LtLayout, typ int32, rows, columns uint64, pitch int64) abi.Status {
			return call("NewLayout", func() abi.Status {
				t, ok := ltTypes[typ]
				if !ok || t.fnuz && !x.hip || pitch < int64(rows) || rows*columns == 0 {
					return x.common.InvalidValue
				}
				x.last++
				*to = abi.LtLayout(x.last)
				x.layouts[*to] = &ltLayout{t, int(rows), int(columns), int(pitch)}
				return abi.Done
			})
		},
		DropLayout: func(p abi.LtLayout) abi.Status {
			return call("DropLayout", func() abi.Status {
				s := known(x.layouts[p] != nil)
				delete(x.layouts, p)
				return s
			})
		},
		NewPreference: func(p *abi.LtPreference) abi.Status {
			return call("NewPreference", func() abi.Status {
				x.last++
				*p = abi.LtPreference(x.last)
				x.wishes[*p] = map[int32]uint64{}
				return abi.Done
			})
		},
		SetPreference: func(p abi.LtPreference, attribute int32, value *byte, bytes uint64) abi.Status {
			return call("SetPreference", func() abi.Status {
				want := map[bool]uint64{true: 8, false: 4}[attribute == abi.LtMostWorkspace]
				a := x.n.AlignA
				aligns := a != 0 && attribute >= a && attribute < a+4
				if x.wishes[p] == nil || bytes != want || attribute != abi.LtMostWorkspace && !aligns {
					return x.common.InvalidValue
				}
				x.wishes[p][attribute] = valueOf(value, bytes)
				return abi.Done
			})
		},
		DropPreference: func(p abi.LtPreference) abi.Status {
			return call("DropPreference", func() abi.Status {
				s := known(x.wishes[p] != nil)
				delete(x.wishes, p)
				return s
			})
		},
		Choose: func(h abi.LtHandle, p abi.LtProduct, a, b, c, out abi.LtLayout, prefer abi.LtPreference, most int32,
			results *abi.LtResult, found *int32) abi.Status {
			return call("Choose", func() abi.Status {
				all, ok := x.of(a, b, c, out)
				wishes := x.wishes[prefer]
				if !x.handles[h] || x.products[p] == nil || !ok || wishes == nil || most < 1 {
					return x.common.InvalidValue
				}
				x.counts.Chosen++
				g := ltAlgorithm{layouts: all, align: [4]int{1, 1, 1, 1}}
				if x.n.AlignA != 0 {
					for i := range g.align {
						if g.align[i] = int(wishes[x.n.AlignA+int32(i)]); g.align[i] == 0 {
							g.align[i] = 256
						}
					}
				}
				if !x.does(x.products[p], &g) || !x.hip && all[3].typ.DType == dtype.Int32 {
					*found = 0
					return abi.Done
				}
				if wishes[abi.LtMostWorkspace] >= ltWorkspace {
					g.workspace = ltWorkspace
				}
				x.algorithms = append(x.algorithms, g)
				*found = 1
				results[0], results[x.n.Algorithm] = uint64(len(x.algorithms)), uint64(g.workspace)
				results[x.n.Algorithm+1] = uint64(abi.Done)
				return abi.Done
			})
		},
		Multiply: func(h abi.LtHandle, p abi.LtProduct, alpha *byte, a uintptr, ofA abi.LtLayout, b uintptr,
			ofB abi.LtLayout, beta *byte, c uintptr, ofC abi.LtLayout, out uintptr, ofOut abi.LtLayout,
			algorithm *abi.LtResult, workspace uintptr, bytes uint64, s abi.Stream) abi.Status {
			return call("Multiply", func() abi.Status {
				all, ok := x.of(ofA, ofB, ofC, ofOut)
				d := x.products[p]
				if !x.handles[h] || d == nil || !ok || *(*uint32)(unsafe.Pointer(beta)) != 0 {
					return x.common.InvalidValue
				}
				g := ltAlgorithm{layouts: all, align: [4]int{16, 16, 16, 16}}
				if x.hip {
					g.align = [4]int{1, 1, 1, 1}
				} else if all[3].typ.DType == dtype.Int32 {
					g.align = [4]int{4, 4, 4, 4}
				}
				if algorithm != nil {
					if n := int(algorithm[0]); n < 1 || n > len(x.algorithms) || x.algorithms[n-1].layouts != all {
						return x.common.InvalidValue
					}
					g = x.algorithms[algorithm[0]-1]
				}
				for i, at := range []uintptr{a, b, c, out} {
					if at%uintptr(g.align[i]) != 0 {
						return x.common.InvalidValue
					}
				}
				switch {
				case !x.does(d, &g) || !x.hip && all[3].typ.DType == dtype.Int32 && (algorithm != nil || bytes != 0):
					return x.common.NotSupported
				case int(bytes) < g.workspace || bytes > 0 && !x.isDevice(workspace, int(bytes)) || workspace%16 != 0:
					return x.common.InvalidValue
				}
				x.counts.Products++
				x.counts.Workspace = int(bytes)
				return x.enqueue(d, &g, a, b, out, alpha, s)
			})
		},
		Text: func(s abi.Status) string {
			return "status " + map[bool]string{true: "refused"}[s == x.common.NotSupported]
		},
		Version: func() uint64 { return 130100 },
	}, x.counts
}

func valueOf(p *byte, bytes uint64) uint64 {
	if bytes == 4 {
		return uint64(binary.NativeEndian.Uint32(unsafe.Slice(p, 4)))
	}
	return binary.NativeEndian.Uint64(unsafe.Slice(p, 8))
}

func (x *lt) of(handles ...abi.LtLayout) (all [4]ltLayout, ok bool) {
	for i, h := range handles {
		if x.layouts[h] == nil {
			return all, false
		}
		all[i] = *x.layouts[h]
	}
	return all, true
}

func (x *lt) isDevice(p uintptr, bytes int) bool {
	at, err := x.driver.Attributes(driver.Ptr(p))
	return err == nil && at.Type == driver.DeviceMemory && int(driver.Ptr(p)-at.Base)+bytes <= at.Bytes
}

// does reports whether the library multiplies matrices of such types and layouts.
func (x *lt) does(d *ltProduct, g *ltAlgorithm) bool {
	a, b, c, out := &g.layouts[0], &g.layouts[1], &g.layouts[2], &g.layouts[3]
	transA, transB := x.trans(d, x.n.TransA), x.trans(d, x.n.TransB)
	rows, depth := a.rows, a.columns
	if transA {
		rows, depth = depth, rows
	}
	other, columns := b.rows, b.columns
	if transB {
		other, columns = columns, other
	}
	if depth != other || out.rows != rows || out.columns != columns || c.rows != rows || c.columns != columns {
		return false
	}
	small := func(t ltElement) bool { return t.Size() == 1 }
	scaled := d.values[x.n.ScaleA]|d.values[x.n.ScaleB]|d.values[x.n.ScaleOut]|d.values[x.n.Bias] != 0
	if out.typ.DType == dtype.Int32 {
		aligned := x.hip || transA && !transB && rows%4 == 0 && depth%4 == 0 && a.pitch%4 == 0 && b.pitch%4 == 0 &&
			out.pitch%4 == 0
		return a.typ.DType == dtype.Int8 && b.typ == a.typ && c.typ == out.typ && !scaled && aligned &&
			d.compute == x.n.In32I && d.scale == abi.Int32
	}
	if !small(a.typ) {
		epilogue := int32(d.values[x.n.Epilogue])
		return a.typ == b.typ && a.typ == out.typ && c.typ == out.typ && d.compute == x.common.In32 &&
			d.scale == abi.Real32 && d.values[x.n.ScaleA]|d.values[x.n.ScaleB]|d.values[x.n.ScaleOut] == 0 &&
			(epilogue == abi.LtEpilogueBias || epilogue == abi.LtEpilogueRelu) && d.values[x.n.Bias] != 0 &&
			ltTypes[int32(d.values[x.n.BiasType])] == out.typ
	}
	if a.typ.DType == dtype.Int8 || b.typ.DType == dtype.Int8 || !small(a.typ) || !small(b.typ) || out.typ.fnuz ||
		d.compute != x.common.In32 || d.scale != abi.Real32 || d.values[x.n.ScaleOut] != 0 && !small(out.typ) {
		return false
	}
	mode := d.values[x.n.ScaleModeA]
	if mode != d.values[x.n.ScaleModeB] || mode != 0 && mode != uint64(abi.LtScaleOuter) {
		return false
	}
	bias := ltElement{}
	if d.values[x.n.Epilogue] == uint64(abi.LtEpilogueBias) {
		bias = ltTypes[int32(d.values[x.n.BiasType])]
		if d.values[x.n.Bias] == 0 {
			return false
		}
	}
	if x.hip {
		return c.typ == out.typ && (bias.DType == 0 || bias.DType == dtype.Float32 || bias == out.typ)
	}
	for i, m := range []*ltLayout{a, b, c, out} {
		if size := m.typ.Size(); m.pitch*size%16 != 0 || m.rows*size%16 != 0 || g.align[i]%16 != 0 {
			return false
		}
	}
	if want := c.typ.DType; bias.DType != 0 {
		if want == dtype.Float32 {
			want = dtype.BFloat16
		}
		if bias.DType != want {
			return false
		}
	}
	half := c.typ.DType == dtype.Float16 || c.typ.DType == dtype.BFloat16
	return transA && !transB && (a.typ.DType == dtype.Float8E4M3FN || b.typ.DType == dtype.Float8E4M3FN) &&
		(c.typ == out.typ && !small(out.typ) || small(out.typ) && half)
}

func (x *lt) trans(d *ltProduct, attribute int32) bool {
	return int32(d.values[attribute]) == x.common.Transposed
}

// enqueue computes out = (a @ b * scales + bias) * scale of out. Scales and biases that aren't the device's are an
// error of the work, as they'd be a GPU's.
func (x *lt) enqueue(d *ltProduct, g *ltAlgorithm, a, b, out uintptr, alpha *byte, s abi.Stream) abi.Status {
	rows, columns := g.layouts[3].rows, g.layouts[3].columns
	transA, transB := x.trans(d, x.n.TransA), x.trans(d, x.n.TransB)
	depth := g.layouts[0].columns
	if transA {
		depth = g.layouts[0].rows
	}
	spans := []driver.Span{}
	for i, at := range []uintptr{a, b, out} {
		m := &g.layouts[[]int{0, 1, 3}[i]]
		spans = append(spans, driver.Span{Ptr: driver.Ptr(at), Bytes: ((m.columns-1)*m.pitch + m.rows) * m.typ.Size()})
	}
	one := float64(math.Float32frombits(*(*uint32)(unsafe.Pointer(alpha))))
	if g.layouts[3].typ.DType == dtype.Int32 {
		one = float64(*(*int32)(unsafe.Pointer(alpha)))
	}
	lines := d.values[x.n.ScaleModeA] != 0
	biasType := ltTypes[int32(d.values[x.n.BiasType])]
	vectors := map[int32]int{} // where the views of scales and biases are
	for _, v := range []struct {
		attribute    int32
		count, bytes int
	}{{x.n.ScaleA, rows, 4}, {x.n.ScaleB, columns, 4}, {x.n.ScaleOut, 1, 4}, {x.n.Bias, rows, biasType.Size()}} {
		p := uintptr(d.values[v.attribute])
		if p == 0 || v.attribute == x.n.Bias && d.values[x.n.Epilogue] == 0 {
			continue
		}
		if v.attribute != x.n.Bias && !lines {
			v.count = 1
		}
		if !x.isDevice(p, v.count*v.bytes) {
			return executionFailed
		}
		vectors[v.attribute] = len(spans)
		spans = append(spans, driver.Span{Ptr: driver.Ptr(p), Bytes: v.count * v.bytes})
	}
	la, lb, lo := g.layouts[0], g.layouts[1], g.layouts[3]
	err := x.driver.Launch(driver.StreamHandle(s), "matmul", spans, func(views []unsafe.Pointer) error {
		element := func(view int, m *ltLayout, trans bool, row, column int) float64 {
			if trans {
				row, column = column, row
			}
			return small(m.typ, unsafe.Add(views[view], (column*m.pitch+row)*m.typ.Size()))
		}
		scale := func(attribute int32, at int) float64 {
			view, there := vectors[attribute]
			if !there {
				return 1
			}
			if !lines {
				at = 0
			}
			return float64(*(*float32)(unsafe.Add(views[view], 4*at)))
		}
		for r := range rows {
			for c := range columns {
				sum := 0.0
				for k := range depth {
					sum += element(0, &la, transA, r, k) * element(1, &lb, transB, k, c)
				}
				sum *= one * scale(x.n.ScaleA, r) * scale(x.n.ScaleB, c)
				if view, there := vectors[x.n.Bias]; there {
					sum += small(biasType, unsafe.Add(views[view], r*biasType.Size()))
				}
				if view, there := vectors[x.n.ScaleOut]; there {
					sum *= float64(*(*float32)(views[view]))
				}
				if int32(d.values[x.n.Epilogue]) == abi.LtEpilogueRelu {
					sum = max(sum, 0)
				}
				store(lo.typ.DType, unsafe.Add(views[2], (c*lo.pitch+r)*lo.typ.Size()), sum)
			}
		}
		return nil
	})
	if err != nil {
		return 14 // an internal error
	}
	return abi.Done
}

// small is an element.
func small(t ltElement, p unsafe.Pointer) float64 {
	switch b := *(*byte)(p); {
	case t.DType == dtype.Int8:
		return float64(int8(b))
	case t.fnuz && t.DType == dtype.Float8E4M3FN:
		return fnuz(b, 3, 8)
	case t.fnuz:
		return fnuz(b, 2, 16)
	case t.DType == dtype.Float8E4M3FN:
		return dtype.F8E4M3FN(b).Float64()
	case t.DType == dtype.Float8E5M2:
		return dtype.F8E5M2(b).Float64()
	}
	return real(Number(t.DType, p))
}

// fnuz is a number of 8 bits without infinities and negative zero.
func fnuz(b byte, mantissa, bias int) float64 {
	if b == 0x80 {
		return math.NaN()
	}
	e, f := int(b&0x7f)>>mantissa, float64(int(b)&(1<<mantissa-1))/float64(int(1)<<mantissa)
	x := math.Ldexp(1+f, e-bias)
	if e == 0 {
		x = math.Ldexp(f, 1-bias)
	}
	if b&0x80 != 0 {
		return -x
	}
	return x
}

func store(t dtype.DType, p unsafe.Pointer, x float64) {
	switch t {
	case dtype.Int32:
		*(*int32)(p) = int32(x)
	case dtype.Float8E4M3FN:
		*(*dtype.F8E4M3FN)(p) = dtype.F8E4M3FNFromFloat64(x)
	case dtype.Float8E5M2:
		*(*dtype.F8E5M2)(p) = dtype.F8E5M2FromFloat64(x)
	default:
		save(t, p, complex(x, 0))
	}
}
