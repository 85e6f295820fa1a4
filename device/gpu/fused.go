package gpu

import (
	"encoding/binary"
	"errors"
	"math"

	"github.com/chorus-comms/chorus/device/driver"
	"github.com/chorus-comms/chorus/device/gpu/abi"
	"github.com/chorus-comms/chorus/device/internal/plans"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/internal/dl"
)

// fusedKey is what a plan of the library is for: out, a and b as its columns, so that a is our b.
type fusedKey struct {
	rows, columns, depth     uint64
	transA, transB           bool
	a, b, c, out             int32 // types
	pitchA, pitchB, pitch    int64
	bias                     int32 // its type; none: there is none
	relu                     bool
	scaleA, scaleB, scaleOut bool
	lines                    bool
	alignA, alignB, align    uint32 // of addresses
	alignBias                uint32
	workspace                int
}

// none is no type of elements.
const none int32 = -1

// fusedPlan is how the library multiplies matrices of a form, or why it doesn't.
type fusedPlan struct {
	product   abi.LtProduct
	layouts   [4]abi.LtLayout // of a, b, c and out
	algorithm *abi.LtResult   // nil: the library's choice, without workspace
	workspace int
	refused   error
}

var fusedTypes = map[dtype.DType]int32{dtype.Int8: abi.Int8, dtype.Int32: abi.Int32, dtype.Float16: abi.Real16,
	dtype.BFloat16: abi.RealB16, dtype.Float32: abi.Real32, dtype.Float8E4M3FN: abi.Float8E4M3,
	dtype.Float8E5M2: abi.Float8E5M2}

// fusedBiases are cuBLASLt's types of biases, by those of results of matrices of 8 bits. To a result of 8 bits it adds
// both of 16 bits.
var fusedBiases = map[dtype.DType]dtype.DType{dtype.Float32: dtype.BFloat16, dtype.Float16: dtype.Float16,
	dtype.BFloat16: dtype.BFloat16}

// fusedType is the library's number of a type.
func fusedType(t dtype.DType, fnuz bool) int32 {
	switch {
	case fnuz && t == dtype.Float8E4M3FN:
		return abi.Float8E4M3FNUZ
	case fnuz && t == dtype.Float8E5M2:
		return abi.Float8E5M2FNUZ
	}
	return fusedTypes[t]
}

// fuse is Compute of a fused product.
func (d *Driver) fuse(h driver.StreamHandle, p *driver.FusedGEMM) error {
	const op = "multiply fused"
	s, err := d.stream(op, h)
	if err != nil {
		return err
	}
	b := s.b
	err = d.multiplyFused(op, s, p)
	s.Unlock()
	b.fused.Reap()
	return err
}

func (d *Driver) multiplyFused(op string, s *stream, p *driver.FusedGEMM) error {
	b := s.b
	if err := b.lt.open(); err != nil {
		return driver.Errorf(driver.ErrUnsupported, b.Name, op, "%w", err)
	}
	if err := s.capturesProducts(op, b.family.Lt, b.workspaceSize(op, fusedProduct)); err != nil {
		return err
	}
	if err := p.Check(b.Name); err != nil {
		return err
	}
	for _, m := range p.Matrices() {
		if err := d.multiplied(b, op, &m, 1); err != nil {
			return err
		}
	}
	for _, v := range p.Vectors() {
		if v.Ptr == 0 {
			continue
		}
		if err := d.touches(b, op, v.Name, v.Ptr, v.Bytes); err != nil {
			return err
		}
	}
	if err := b.suits(op, p); err != nil {
		return err
	}
	if s.capture == nil && s.broken() != nil {
		return b.Broken() // left out
	}
	x := b.productOf(s)
	if x.lt == 0 {
		if err := b.create(&b.products.ltOff, func() error {
			return b.ltCall(op, "Create", func(t *abi.Lt) abi.Status { return t.Create(&x.lt) })
		}); err != nil {
			return err
		}
	}
	k := b.keyOf(p, b.workspaceSize(op, fusedProduct))
	return b.fused.Use(k, func() (fusedPlan, error) { return b.newFused(op, x.lt, &k, p) }, func(plan fusedPlan) error {
		if plan.refused != nil {
			return plan.refused
		}
		workspace, err := uintptr(0), error(nil)
		if plan.workspace > 0 {
			if workspace, err = b.workspaceFor(op, s, s.workspaces(x), fusedProduct); err != nil {
				return err
			}
		}
		m := d.before(s)
		err = b.runFused(op, x, &plan, workspace, s.h, p)
		m.after(s, op, driver.Activity{Kind: driver.ActivityKernel, Name: b.family.Lt}, err)
		if err == nil && s.capture != nil {
			for _, m := range p.Matrices() {
				d.capturesUse(s, op, m.Ptr, m.Bytes(1))
			}
			for _, v := range p.Vectors() {
				d.capturesUse(s, op, v.Ptr, v.Bytes)
			}
		}
		return err
	})
}

// suits refuses what NVIDIA's documentation says that cuBLASLt doesn't do. hipBLASLt's says less, so that the library
// is asked.
func (b *gpu) suits(op string, p *driver.FusedGEMM) error {
	bad := func(format string, args ...any) error {
		return driver.Errorf(driver.ErrUnsupported, b.Name, op, b.family.Lt+": "+format, args...)
	}
	if b.family.Name == "hip" {
		if p.Bias != 0 && p.BiasType != p.OutType && p.BiasType != dtype.Float32 {
			return bad("bias of %v to %v", p.BiasType, p.OutType)
		}
		return nil
	}
	if p.FNUZ {
		return bad("types whose names end in fnuz")
	}
	if p.AType == p.OutType { // one type, of 16 or 32 bits
		return nil
	}
	for _, m := range p.Matrices() {
		line, size, align := m.Columns, m.Type.Size(), 16
		if m.Transposed {
			line = m.Rows
		}
		if p.OutType == dtype.Int32 { // of out there are as many elements as bytes of the others
			size, align = 1, 4
		}
		if int(m.Ptr)%align != 0 || m.Pitch*size%align != 0 || line*size%align != 0 {
			return bad("lines of %s have %d elements of %v, %d apart, at %v: not multiples of %d", m.Name, line, m.Type,
				m.Pitch, m.Ptr, align)
		}
	}
	if want, ok := fusedBiases[p.OutType]; p.Bias != 0 && (ok && p.BiasType != want || p.BiasType == dtype.Float32) {
		return bad("bias of %v to %v", p.BiasType, p.OutType)
	}
	return nil
}

// keyOf is what a product's plan is for.
func (b *gpu) keyOf(p *driver.FusedGEMM, workspace int) fusedKey {
	k := fusedKey{rows: uint64(p.Columns), columns: uint64(p.Rows), depth: uint64(p.Depth), transA: p.B.Transposed,
		transB: p.A.Transposed, a: fusedType(p.BType, p.FNUZ), b: fusedType(p.AType, p.FNUZ),
		out: fusedType(p.OutType, p.FNUZ), pitchA: int64(p.B.Pitch), pitchB: int64(p.A.Pitch), pitch: int64(p.Out.Pitch),
		bias: none, relu: p.Relu, scaleA: p.ScaleB != 0, scaleB: p.ScaleA != 0, scaleOut: p.ScaleOut != 0,
		lines: p.Lines, workspace: workspace}
	k.c = k.out // which isn't read
	if p.Bias != 0 {
		k.bias, k.alignBias = fusedTypes[p.BiasType], alignment(p.Bias)
	}
	if b.lt.numbers.AlignA != 0 {
		k.alignA, k.alignB, k.align = alignment(p.B.Ptr), alignment(p.A.Ptr), alignment(p.Out.Ptr)
		if p.OutType.Size() == 1 { // c is of 16 bits then, of the bias's type
			if k.c = abi.RealB16; p.Bias != 0 {
				k.c = k.bias
			}
		}
	}
	return k
}

// alignment is the power of two that an address is a multiple of, 256 at most. The libraries ask for no more.
func alignment(p driver.Ptr) uint32 {
	n := uint32(256)
	for uintptr(p)%uintptr(n) != 0 {
		n /= 2
	}
	return n
}

// newFused describes a product to the library, and asks for an algorithm. A refusal is a plan, too.
func (b *gpu) newFused(op string, h abi.LtHandle, k *fusedKey, p *driver.FusedGEMM) (plan fusedPlan, err error) {
	if err = b.describe(op, k, &plan); err == nil {
		err = b.point(op, &plan, p) // the algorithm depends on what is there
	}
	// Of integers PyTorch leaves the choice to cuBLASLt, too, which finds none if it's asked.
	if err == nil && (k.out != abi.Int32 || b.family.Name == "hip") {
		err = b.choose(op, h, k, &plan)
	}
	if errors.Is(err, driver.ErrUnsupported) {
		b.dropFused(plan)
		return fusedPlan{refused: err}, nil
	}
	if err != nil {
		b.dropFused(plan)
	}
	return plan, err
}

// describe makes the descriptions of a product and its matrices.
func (b *gpu) describe(op string, k *fusedKey, plan *fusedPlan) error {
	n, common := &b.lt.numbers, &b.lt.common
	compute, scale := common.In32, abi.Real32
	if k.out == abi.Int32 {
		compute, scale = n.In32I, abi.Int32
	}
	product := dl.Heap(new(abi.LtProduct))
	err := b.ltCall(op, "MatmulDescCreate", func(t *abi.Lt) abi.Status { return t.NewProduct(product, compute, scale) })
	if err != nil {
		return err
	}
	plan.product = *product
	trans := func(t bool) uint64 {
		if t {
			return uint64(common.Transposed)
		}
		return uint64(common.Straight)
	}
	set := []attribute{{n.TransA, 4, trans(k.transA)}, {n.TransB, 4, trans(k.transB)}}
	if k.bias != none {
		epilogue := abi.LtEpilogueBias
		if k.relu {
			epilogue = abi.LtEpilogueRelu
		}
		set = append(set, attribute{n.Epilogue, 4, uint64(epilogue)}, attribute{n.BiasType, 4, uint64(k.bias)})
	}
	if k.lines {
		set = append(set, attribute{n.ScaleModeA, 4, uint64(abi.LtScaleOuter)},
			attribute{n.ScaleModeB, 4, uint64(abi.LtScaleOuter)})
	}
	if err := b.setProduct(op, plan.product, set); err != nil {
		return err
	}
	lines := func(lines, of uint64, trans bool) (rows, columns uint64) {
		if trans {
			return of, lines
		}
		return lines, of
	}
	rowsA, columnsA := lines(k.rows, k.depth, k.transA)
	rowsB, columnsB := lines(k.depth, k.columns, k.transB)
	for i, m := range [...]struct {
		typ           int32
		rows, columns uint64
		pitch         int64
	}{{k.a, rowsA, columnsA, k.pitchA}, {k.b, rowsB, columnsB, k.pitchB}, {k.c, k.rows, k.columns, k.pitch},
		{k.out, k.rows, k.columns, k.pitch}} {
		layout := dl.Heap(new(abi.LtLayout))
		if err := b.ltCall(op, "MatrixLayoutCreate", func(t *abi.Lt) abi.Status {
			return t.NewLayout(layout, m.typ, m.rows, m.columns, m.pitch)
		}); err != nil {
			return err
		}
		plan.layouts[i] = *layout
	}
	return nil
}

// attribute is a value of so many bytes.
type attribute struct {
	number int32
	bytes  int
	value  uint64
}

// setProduct sets attributes of a product.
func (b *gpu) setProduct(op string, p abi.LtProduct, all []attribute) error {
	value := dl.Heap(new([8]byte))
	return b.ltCall(op, "MatmulDescSetAttribute", func(t *abi.Lt) (s abi.Status) {
		for _, a := range all {
			binary.NativeEndian.PutUint64(value[:], a.value)
			if s = t.SetProduct(p, a.number, &value[0], uint64(a.bytes)); s != abi.Done {
				break
			}
		}
		return s
	})
}

// point tells a description where a product's scales and bias are. Only one stream has it meanwhile.
func (b *gpu) point(op string, plan *fusedPlan, p *driver.FusedGEMM) error {
	n := &b.lt.numbers
	var all [4]attribute
	set := all[:0]
	for _, x := range [...]struct {
		number int32
		at     driver.Ptr
	}{{n.ScaleA, p.ScaleB}, {n.ScaleB, p.ScaleA}, {n.ScaleOut, p.ScaleOut}, {n.Bias, p.Bias}} {
		if x.at != 0 {
			set = append(set, attribute{x.number, 8, uint64(x.at)})
		}
	}
	return b.setProduct(op, plan.product, set)
}

// choose asks the library for the best algorithm.
func (b *gpu) choose(op string, h abi.LtHandle, k *fusedKey, plan *fusedPlan) error {
	prefer, value := dl.Heap(new(abi.LtPreference)), dl.Heap(new([8]byte))
	err := b.ltCall(op, "MatmulPreferenceCreate", func(t *abi.Lt) abi.Status { return t.NewPreference(prefer) })
	if err != nil {
		return err
	}
	defer func() {
		_ = b.ltCall(op, "MatmulPreferenceDestroy", func(t *abi.Lt) abi.Status { return t.DropPreference(*prefer) })
	}()
	all := []attribute{{abi.LtMostWorkspace, 8, uint64(k.workspace)}}
	if first := b.lt.numbers.AlignA; first != 0 {
		for i, n := range []uint32{k.alignA, k.alignB, k.align, k.align} {
			all = append(all, attribute{first + int32(i), 4, uint64(n)})
		}
	}
	err = b.ltCall(op, "MatmulPreferenceSetAttribute", func(t *abi.Lt) (s abi.Status) {
		for _, a := range all {
			binary.NativeEndian.PutUint64(value[:], a.value)
			if s = t.SetPreference(*prefer, a.number, &value[0], uint64(a.bytes)); s != abi.Done {
				break
			}
		}
		return s
	})
	if err != nil {
		return err
	}
	result, found := dl.Heap(new(abi.LtResult)), dl.Heap(new(int32))
	err = b.ltCall(op, "MatmulAlgoGetHeuristic", func(t *abi.Lt) abi.Status {
		s := t.Choose(h, plan.product, plan.layouts[0], plan.layouts[1], plan.layouts[2], plan.layouts[3], *prefer, 1,
			result, found)
		if s == abi.Done && *found > 0 {
			s = result.Status(&b.lt.numbers)
		} else if s == abi.Done {
			s = b.lt.common.NotSupported
		}
		return s
	})
	if err == nil {
		plan.algorithm, plan.workspace = result, int(result.Workspace(&b.lt.numbers))
	}
	return err
}

// runFused enqueues a product. Out takes the place of c, which the library doesn't read.
func (b *gpu) runFused(op string, x *product, plan *fusedPlan, workspace uintptr, s abi.Stream,
	p *driver.FusedGEMM) error {
	if err := b.point(op, plan, p); err != nil {
		return err
	}
	numbers := dl.Heap(new([2][4]byte)) // alpha and beta
	one := math.Float32bits(1)
	if p.OutType == dtype.Int32 {
		one = 1
	}
	binary.NativeEndian.PutUint32(numbers[0][:], one)
	l := &plan.layouts
	return b.ltCall(op, "Matmul", func(t *abi.Lt) abi.Status {
		return t.Multiply(x.lt, plan.product, &numbers[0][0], uintptr(p.B.Ptr), l[0], uintptr(p.A.Ptr), l[1],
			&numbers[1][0], uintptr(p.Out.Ptr), l[2], uintptr(p.Out.Ptr), l[3], plan.algorithm, workspace,
			uint64(plan.workspace), s)
	})
}

// newFusedPlans is the cache of a GPU's plans. The library reads descriptions before it returns.
func (b *gpu) newFusedPlans() *plans.Cache[fusedKey, fusedPlan] {
	return plans.New[fusedKey](plans.Default, b.dropFused)
}

func (b *gpu) dropFused(p fusedPlan) {
	_ = b.ltCall("close", "Destroy", func(t *abi.Lt) (s abi.Status) {
		for _, l := range p.layouts {
			if l != 0 {
				s = t.DropLayout(l)
			}
		}
		if p.product != 0 {
			s = t.DropProduct(p.product)
		}
		return s
	})
}
