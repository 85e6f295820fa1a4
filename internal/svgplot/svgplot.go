// Package svgplot draws lines over a logarithmic axis of sizes as SVG.
//
//	p := svgplot.Plot{Title: "all_reduce", XLabel: "bytes", YLabel: "GB/s",
//		Series: []svgplot.Series{{Name: "busbw", X: sizes, Y: bandwidths}}}
//	err := p.Write(w)
//
// Points with an X or Y that is not positive, or not finite, are left out.
package svgplot

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"math"
)

// Plot is one diagram. X grows by powers of two. Y is linear from 0, or logarithmic, as ratios should be.
type Plot struct {
	Title, XLabel, YLabel string
	LogY                  bool
	Series                []Series
}

// Series is one line. X and Y have the same length. A dashed one has the colour of the last that isn't: another form of the same.
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
	mostXLabels       = 10
)

// colors can be told apart with any colour vision (Okabe and Ito, 2008).
var colors = [...]string{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"}

// Write writes the plot as an SVG document.
func (p *Plot) Write(w io.Writer) error {
	lo, hi, least, most := p.bounds()
	longest := 0
	for _, s := range p.Series {
		longest = max(longest, len([]rune(s.Name)))
	}
	right := keyLine + keyChar*float64(longest)
	c := canvas{lo: lo, hi: hi, right: right, log: p.LogY}
	ticks := c.scale(least, most)
	c.printf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" font-family="sans-serif" font-size="%d">`+"\n", width, height, width, height, fontSize)
	c.printf(`<rect width="%d" height="%d" fill="white"/>`+"\n", width, height)
	c.text((left+width-right)/2, top/2, "middle", 18, p.Title)
	c.text((left+width-right)/2, height-20, "middle", fontSize, p.XLabel)
	c.printf(`<text x="24" y="%d" text-anchor="middle" transform="rotate(-90 24 %d)">%s</text>`+"\n", (top+height-bottom)/2, (top+height-bottom)/2, escape(p.YLabel))
	for _, v := range ticks {
		c.line(left, c.y(v), width-right, c.y(v), "#dddddd")
		c.text(left-8, c.y(v)+5, "end", fontSize, trim(v))
	}
	every := max(1, int(hi-lo)/mostXLabels)
	for e := int(lo); e <= int(hi); e += every {
		x := c.x(math.Exp2(float64(e)))
		c.line(x, top, x, height-bottom, "#eeeeee")
		c.text(x, height-bottom+20, "middle", 12, sizeText(math.Exp2(float64(e))))
	}
	c.printf(`<rect x="%d" y="%d" width="%.1f" height="%d" fill="none" stroke="#444444"/>`+"\n", left, top, width-left-right, height-top-bottom)
	color := -1
	for i, s := range p.Series {
		if !s.Dashed || color < 0 {
			color++
		}
		c.series(i, colors[color%len(colors)], s)
	}
	c.printf("</svg>\n")
	_, err := w.Write(c.Bytes())
	return err
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

// canvas is the document that is being written.
type canvas struct {
	bytes.Buffer
	lo, hi      float64 // of X, as powers of two
	least, most float64 // of Y
	log         bool    // Y
	right       float64 // margin
}

// scale sets the range of Y to one that begins and ends with a tick, and returns the ticks.
func (c *canvas) scale(least, most float64) (ticks []float64) {
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
	return ticks
}

func (c *canvas) printf(format string, args ...any) { fmt.Fprintf(c, format, args...) }

func (c *canvas) x(v float64) float64 {
	return left + (math.Log2(v)-c.lo)/(c.hi-c.lo)*(width-left-c.right)
}

func (c *canvas) y(v float64) float64 {
	share := v / c.most
	if c.log {
		share = math.Log(v/c.least) / math.Log(c.most/c.least)
	}
	return height - bottom - share*(height-top-bottom)
}

func (c *canvas) line(x1, y1, x2, y2 float64, color string) {
	c.printf(`<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s"/>`+"\n", x1, y1, x2, y2, color)
}

func (c *canvas) text(x, y float64, anchor string, size int, s string) {
	c.printf(`<text x="%.1f" y="%.1f" text-anchor="%s" font-size="%d">%s</text>`+"\n", x, y, anchor, size, escape(s))
}

// series draws the i-th line, and its name in the key.
func (c *canvas) series(i int, color string, s Series) {
	dashes := ""
	if s.Dashed {
		dashes = ` stroke-dasharray="6 4"`
	}
	c.printf(`<polyline fill="none" stroke="%s" stroke-width="2"%s points="`, color, dashes)
	for j := range s.X {
		if s.drawn(j) {
			c.printf("%.1f,%.1f ", c.x(s.X[j]), c.y(s.Y[j]))
		}
	}
	c.printf(`"/>` + "\n")
	for j := range s.X {
		if s.drawn(j) {
			c.printf(`<circle cx="%.1f" cy="%.1f" r="3" fill="%s"><title>%s: %s, %s</title></circle>`+"\n",
				c.x(s.X[j]), c.y(s.Y[j]), color, escape(s.Name), sizeText(s.X[j]), trim(s.Y[j]))
		}
	}
	y := float64(top + 12 + 22*i)
	x := width - c.right
	c.printf(`<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s" stroke-width="2"%s/>`+"\n", x+14, y, x+40, y, color, dashes)
	c.text(x+46, y+5, "start", 13, s.Name)
}

// sizeText shows a size: 8, 4 Ki, 256 Mi.
func sizeText(n float64) string {
	for _, u := range []struct {
		size float64
		name string
	}{{1 << 30, " Gi"}, {1 << 20, " Mi"}, {1 << 10, " Ki"}} {
		if n >= u.size {
			return trim(n/u.size) + u.name
		}
	}
	return trim(n)
}

func trim(x float64) string { return fmt.Sprintf("%.4g", x) }

func escape(s string) string {
	var b bytes.Buffer
	xml.EscapeText(&b, []byte(s)) // a Buffer takes everything
	return b.String()
}
