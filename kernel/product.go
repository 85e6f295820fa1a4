package kernel

import (
	"fmt"
	"strings"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/kernel/gemm"
	"github.com/chorus-comms/chorus/kernel/loader"
	"github.com/chorus-comms/chorus/kernel/text"
)

// ConvolutionFamily multiplies matrices of which one has elements of images: the three products of a convolution.
const ConvolutionFamily text.Family = 25

func init() { text.Register(ConvolutionFamily, "convolution", productSource) }

// The forms of a product.
const (
	productTiles   = iota // a block computes a tile of the result
	productThreads        // a thread computes an element
	productBlocks         // a block computes an element of a product that isn't divided
	productLanes          // a processor's: see [Plan.laneProduct]
)

// Bits of a product's Extra[0].
const (
	productBias         = 1 << iota
	productDivided      // see product.divisor
	productNearA        // neighbours of a are those of the sum, and not of the rows
	productNearB        // neighbours of b are those of the sum, and not of the columns
	productDeepInside   // deep is the last digit of the depth, and not the first
	productChannelsLast // rows are the last digit of elements, for forms other than tiles
)

// product is result[row, column] = sum over depth of a[row, depth] * b[depth, column], for each group. A column is the
// number outer and a place u in space, and a depth the number deep and a place t in space. They have the coordinate
// x = u*columnStep + columnStart + t*depthStep + depthStart in b, where elements beyond the limits are 0.
type product struct {
	dims        int
	rows        int
	outer, deep int
	groups      int
	parts       int // of the depth, each with a result of its own
	chunk       int // depth of a part
	phases      int // of a divided product, see below
	tiles       int // in a row

	columns, columnStep, columnStart [text.MaxSpatial]int
	depth, depthStep, depthStart     [text.MaxSpatial]int
	limits                           [text.MaxSpatial]int

	// Of a divided product the coordinate is x / divisor, where that leaves nothing, and other elements are 0. Tiles have
	// columns of one remainder, a phase, so that they have the same elements of a, which are every skip-th one.
	divided       bool
	divisor, skip [text.MaxSpatial]int

	oRow, oOuter, oGroup, oPart int // strides of the result
	aRow, aDeep, aGroup         int
	bOuter, bDeep, bGroup       int
	biasStep                    int
	oSteps, aSteps, bSteps      [text.MaxSpatial]int

	reduces bool // few elements, and long sums
	wide    bool
	compute dtype.DType
}

// visit names the numbers.
func (g *product) visit(r *text.Record) {
	r.One("rows", g.rows)
	r.One("outer", g.outer)
	r.One("deep", g.deep)
	r.One("groups", g.groups)
	r.One("parts", g.parts)
	r.One("chunk", g.chunk)
	r.One("phases", g.phases)
	r.One("tiles", g.tiles)
	r.One("o_row", g.oRow)
	r.One("o_outer", g.oOuter)
	r.One("o_group", g.oGroup)
	r.One("o_part", g.oPart)
	r.One("a_row", g.aRow)
	r.One("a_deep", g.aDeep)
	r.One("a_group", g.aGroup)
	r.One("b_outer", g.bOuter)
	r.One("b_deep", g.bDeep)
	r.One("b_group", g.bGroup)
	r.One("bias", g.biasStep)
	r.Each("columns", &g.columns)
	r.Each("column_step", &g.columnStep)
	r.Each("column_start", &g.columnStart)
	r.Each("depth", &g.depth)
	r.Each("depth_step", &g.depthStep)
	r.Each("depth_start", &g.depthStart)
	r.Each("limits", &g.limits)
	r.Each("divisor", &g.divisor)
	r.Each("skip", &g.skip)
	r.Each("o_steps", &g.oSteps)
	r.Each("a_steps", &g.aSteps)
	r.Each("b_steps", &g.bSteps)
}

// product adds a product.
func (p *Plan) product(g *product, out, a, b, bias *Operand) error {
	s := text.Spec{Family: ConvolutionFamily, Compute: g.compute, Block: threads, Outs: 1, Ins: 3, Dims: uint8(g.dims),
		Wide: g.wide}
	s.Types = [text.MaxOperands]dtype.DType{out.Type, a.Type, b.Type, a.Type}
	columns, depth, widest := g.outer, g.depthCount(), g.outer
	for k := range g.dims {
		columns *= g.columns[k]
		g.skip[k] = 1
		if g.divided {
			g.skip[k] = g.divisor[k] / gcd(g.divisor[k], g.depthStep[k])
			g.phases *= g.divisor[k]
			widest *= (g.columns[k] + g.divisor[k] - 1) / g.divisor[k]
		} else {
			widest *= g.columns[k]
		}
	}
	elements := g.rows * g.groups * columns
	if elements == 0 {
		return nil
	}
	if g.parts == 1 {
		g.chunk = max(depth, 1)
	}
	s.Wide = s.Wide || wide(elements, depth)
	last := g.dims - 1
	aNear, bNear := g.aDeep, g.bDeep
	if last >= 0 {
		if g.bDeep == 1 || g.aDeep == 1 {
			s.Extra[0] |= productDeepInside
		} else {
			aNear, bNear = g.aSteps[last], g.depthStep[last]*g.bSteps[last]
		}
	}
	if aNear == 1 {
		s.Extra[0] |= productNearA
	}
	if bNear == 1 && !(last >= 0 && g.columnStep[last]*g.bSteps[last] == 1) {
		s.Extra[0] |= productNearB
	}
	if bias.Type != dtype.Invalid {
		s.Extra[0] |= productBias
	}
	if g.divided {
		s.Extra[0] |= productDivided
	}
	if g.oRow == 1 {
		s.Extra[0] |= productChannelsLast
	}
	if kind := g.lanes(); p.Cores > 0 && kind != 0 {
		return p.laneProduct(s, g, kind, out, a, b, bias)
	}
	var c *loader.Call
	switch {
	case g.rows > fewRows || g.parts > 1:
		g.tiles = gemm.Tiles(widest)
		grid := device.Dim{X: g.tiles * g.groups * g.parts * g.phases, Y: gemm.Tiles(g.rows), Z: 1}
		s.Wide = s.Wide || wide(grid.X)
		c = p.tiles(s, grid)
		c.MatrixUnit = a.Type == b.Type && text.MultipliedByUnits(a.Type)
	case g.reduces:
		s.Form = productBlocks
		c = p.blocks(s, device.Dim{X: elements, Y: 1, Z: 1})
	default:
		s.Form = productThreads
		c = p.call(s, elements)
	}
	c.Args.Pointer(out.Ptr).Pointer(a.Ptr).Pointer(b.Ptr).Pointer(bias.Ptr)
	r := text.Record{Dims: g.dims, Wide: s.Wide}
	g.visit(&r)
	r.Add(&c.Args)
	return nil
}

func gcd(a, b int) int {
	a, b = max(a, -a), max(b, -b)
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

func productSource(s text.Spec) (text.Source, error) {
	if s.Compute == dtype.Bool || !text.Supported(s.Compute) {
		return text.Source{}, fmt.Errorf("kernel: a convolution isn't computed in %v", s.Compute)
	}
	var w writer
	w.Begin(s)
	w.RecordType("product", int(s.Dims), (&product{}).visit)
	w.Defines(s, 0)
	w.Include("each_dim")
	for k, name := range [...]string{"BIAS", "DIVIDED", "NEAR_A", "NEAR_B", "DEEP_INSIDE", "CHANNELS_LAST"} {
		w.DefineIf(s.Extra[0]>>k&1 != 0, name)
	}
	form := [...]string{productTiles: "tiles", productThreads: "threads", productBlocks: "blocks",
		productLanes: "lanes"}[s.Form]
	w.Define("PRODUCT_"+strings.ToUpper(form), "")
	w.Unit(s, s.Inputs()[0])
	gemm.DefineTiles(&w.Writer, s, gemm.Each, gemm.Threads)
	if s.Form == productLanes {
		w.Include("product")
		w.Param("product g")
		w.productLanes(s)
		return w.Done()
	}
	return w.File("product", "convolution_"+form)
}
