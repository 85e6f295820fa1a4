package svg

import (
	"fmt"
	"io"
	"math"
	"slices"
)

// Plot is one diagram. X grows by powers of two. Y is linear from 0, or logarithmic, as ratios should be. Points with
// an X or Y that is not positive, or not finite, are left out.
type Plot struct {
	Title, XLabel, YLabel string
	LogY                  bool
	Series                []Series
}

// Series is one line. X and Y have the same length. A dashed one has the colour of the last that isn't: another form of
// the same.
type Series struct {
	Name   string
	X, Y   []float64
	Dashed bool
}

const (
	width, height     = 860, 500
	left, top, bottom = 80, 50, 70
	keyLine, keyChar  = 60, 7.5 // of the key, at the right: what a line takes, and a character
	fontSize          = 14
	labelSpace        = 56 // for a label under X: "256 Ki", and some room
	mostTicks         = 14 // of a logarithmic Y, with 1, 2 and 5; if there are more, only those with 1
)

// Write writes the plot as an SVG document.
func (p *Plot) Write(w io.Writer) error {
	lo, hi, least, most := p.bounds()
	longest := 0
	for _, s := range p.Series {
		longest = max(longest, len([]rune(s.Name)))
	}
	right := keyLine + keyChar*float64(longest)
	c := plotCanvas{Canvas: New(width, height, fontSize), lo: lo, hi: hi, right: right, log: p.LogY}
	ticks := c.scale(least, most)
	c.Text((left+width-right)/2, top/2, "middle", 18, p.Title)
	c.Text((left+width-right)/2, height-20, "middle", fontSize, p.XLabel)
	c.Printf(`<text x="24" y="%d" text-anchor="middle" transform="rotate(-90 24 %d)">%s</text>`+"\n",
		(top+height-bottom)/2, (top+height-bottom)/2, Escape(p.YLabel))
	for _, v := range ticks {
		c.Line(left, c.y(v), width-right, c.y(v), Grid)
		c.Text(left-8, c.y(v)+5, "end", fontSize, trim(v))
	}
	every := max(1, int(math.Ceil(labelSpace*(hi-lo)/(width-left-right))))
	for e := int(lo); e <= int(hi); e += every {
		x := c.x(math.Exp2(float64(e)))
		c.Line(x, top, x, height-bottom, FineGrid)
		c.Text(x, height-bottom+20, "middle", 12, SizeText(math.Exp2(float64(e))))
	}
	c.Printf(`<rect x="%d" y="%d" width="%.1f" height="%d" fill="none" stroke="%s"/>`+"\n", left, top,
		width-left-right, height-top-bottom, Axis)
	color := -1
	for i, s := range p.Series {
		if !s.Dashed || color < 0 {
			color++
		}
		c.series(i, Colors[color%len(Colors)], s)
	}
	return c.End(w)
}

// bounds returns the range of X as powers of two, and that of Y.
func (p *Plot) bounds() (lo, hi, least, most float64) {
	lo, hi, least = math.Inf(1), math.Inf(-1), math.Inf(1)
	for _, s := range p.Series {
		for i := range s.X {
			if s.drawn(i) {
				e := math.Log2(s.X[i])
				lo, hi = math.Min(lo, math.Floor(e)), math.Max(hi, math.Ceil(e))
				least, most = math.Min(least, s.Y[i]), math.Max(most, s.Y[i])
			}
		}
	}
	if lo > hi {
		return 0, 1, 1, 1
	}
	return lo, math.Max(hi, lo+1), least, most
}

func (s Series) drawn(i int) bool {
	return i < len(s.Y) && s.X[i] > 0 && s.Y[i] > 0 && !math.IsInf(s.X[i], 0) && !math.IsInf(s.Y[i], 0)
}

// niceStep returns the least 1, 2 or 5 times a power of ten that is not below x.
func niceStep(x float64) float64 {
	if x <= 0 {
		return 1
	}
	p := math.Pow(10, math.Floor(math.Log10(x)))
	for _, m := range []float64{1, 2, 5} {
		if x <= m*p*1.0001 {
			return m * p
		}
	}
	return 10 * p
}

// plotCanvas is the document that is being written.
type plotCanvas struct {
	*Canvas
	lo, hi      float64 // of X, as powers of two
	least, most float64 // of Y
	log         bool    // Y
	right       float64 // margin
}

// scale sets the range of Y to one that begins and ends with a tick, and returns the ticks.
func (c *plotCanvas) scale(least, most float64) (ticks []float64) {
	if !c.log {
		step := niceStep(most / 6)
		c.most = math.Max(step, math.Ceil(most/step)*step)
		for i := 0; float64(i)*step <= c.most*1.0001; i++ {
			ticks = append(ticks, float64(i)*step)
		}
		return ticks
	}
	v := niceStep(least)
	if v > least*1.0001 {
		v = niceStep(least / 2.5) // the one below
	}
	for ticks = []float64{v}; v < most; ticks = append(ticks, v) {
		v = niceStep(v * 1.5)
	}
	c.least, c.most = ticks[0], math.Max(v, ticks[0]*2)
	if len(ticks) > mostTicks {
		ticks = slices.DeleteFunc(ticks, func(v float64) bool {
			e := math.Log10(v)
			return math.Abs(e-math.Round(e)) > 1e-6
		})
	}
	return ticks
}

func (c *plotCanvas) x(v float64) float64 {
	return left + (math.Log2(v)-c.lo)/(c.hi-c.lo)*(width-left-c.right)
}

func (c *plotCanvas) y(v float64) float64 {
	share := v / c.most
	if c.log {
		share = math.Log(v/c.least) / math.Log(c.most/c.least)
	}
	return height - bottom - share*(height-top-bottom)
}

// series draws the i-th line, and its name in the key.
func (c *plotCanvas) series(i int, color string, s Series) {
	dashes := ""
	if s.Dashed {
		dashes = ` stroke-dasharray="6 4"`
	}
	c.Printf(`<polyline fill="none" stroke="%s" stroke-width="2"%s points="`, color, dashes)
	for j := range s.X {
		if s.drawn(j) {
			c.Printf("%.1f,%.1f ", c.x(s.X[j]), c.y(s.Y[j]))
		}
	}
	c.Printf(`"/>` + "\n")
	for j := range s.X {
		if s.drawn(j) {
			c.Printf(`<circle cx="%.1f" cy="%.1f" r="3" fill="%s"><title>%s: %s, %s</title></circle>`+"\n",
				c.x(s.X[j]), c.y(s.Y[j]), color, Escape(s.Name), SizeText(s.X[j]), trim(s.Y[j]))
		}
	}
	y := float64(top + 12 + 22*i)
	x := width - c.right
	c.Printf(`<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s" stroke-width="2"%s/>`+"\n", x+14, y, x+40, y,
		color, dashes)
	c.Text(x+46, y+5, "start", 13, s.Name)
}

// trim shows a number with four digits, or a whole one.
func trim(x float64) string {
	if x >= 1e4 && x < 1e9 {
		return fmt.Sprintf("%.0f", x)
	}
	return fmt.Sprintf("%.4g", x)
}
