// Package svg writes pictures of lines, boxes and words as SVG documents, which are light or dark as their reader's
// pages are.
//
//	c := svg.New(860, 500, 14)
//	c.Line(80, 450, 860, 450, svg.Axis)
//	c.Text(80, 470, "middle", 12, "0")
//	err := c.End(w)
//
// A [Plot] draws curves over a logarithmic axis of sizes:
//
//	p := svg.Plot{Title: "all_reduce", XLabel: "bytes", YLabel: "GB/s",
//		Series: []svg.Series{{Name: "busbw", X: sizes, Y: bandwidths}}}
//	err := p.Write(w)
package svg

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
)

// Colors can be told apart with any colour vision (Okabe and Ito, 2008).
var Colors = [...]string{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", Ink}

// These are the colours of everything but data.
const (
	Ground   = "#ffffff"
	Ink      = "#000000" // of words
	Axis     = "#444444"
	Muted    = "#666666" // of a line beside the one that counts
	Grid     = "#dddddd"
	FineGrid = "#eeeeee"
	Shade    = "#e4e4e4" // of areas
)

// dark has for each colour the one on a dark ground.
var dark = [...][2]string{
	{Ground, "#0d1117"}, {Ink, "#e6edf3"}, {Axis, "#9aa4af"}, {Muted, "#9aa4ae"}, {Grid, "#3d444d"},
	{FineGrid, "#2a3038"}, {Shade, "#343b44"}, {Colors[0], "#4aa8e0"}, {Colors[1], "#f0843c"}, {Colors[2], "#2fc79b"},
}

// Canvas is a document that is being written. Coordinates are pixels, counted to the right and downwards.
type Canvas struct{ b bytes.Buffer }

// New begins a document with the usual size of its letters.
func New(width, height, fontSize int) *Canvas {
	c := new(Canvas)
	c.Printf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" font-family="sans-serif" font-size="%d">`+"\n",
		width, height, width, height, fontSize)
	c.Printf("<style>@media (prefers-color-scheme: dark) {\ntext { fill: %s }\n", dark[1][1])
	for _, d := range dark {
		c.Printf("[fill=\"%s\"] { fill: %s } [stroke=\"%s\"] { stroke: %s }\n", d[0], d[1], d[0], d[1])
	}
	c.Printf("}</style>\n<rect width=\"%d\" height=\"%d\" fill=\"%s\"/>\n", width, height, Ground)
	return c
}

// Printf adds elements as they are; what isn't known to be harmless goes through Escape.
func (c *Canvas) Printf(format string, args ...any) { fmt.Fprintf(&c.b, format, args...) }

// Line adds a line. Colours that this package names have others on a dark ground.
func (c *Canvas) Line(x1, y1, x2, y2 float64, color string) {
	c.Printf(`<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s"/>`+"\n", x1, y1, x2, y2, color)
}

// Text adds words whose start, middle or end, as anchor says, is at x.
func (c *Canvas) Text(x, y float64, anchor string, size int, s string) {
	c.Printf(`<text x="%.1f" y="%.1f" text-anchor="%s" font-size="%d">%s</text>`+"\n", x, y, anchor, size, Escape(s))
}

// Box adds a filled rectangle that shows its title under the pointer.
func (c *Canvas) Box(x, y, w, h float64, color string, opacity float64, title string) {
	c.Printf(`<rect x="%.1f" y="%.2f" width="%.1f" height="%.2f" fill="%s" fill-opacity="%g" stroke="%s" stroke-width="0.2"><title>%s</title></rect>`+"\n",
		x, y, w, h, color, opacity, Ground, Escape(title))
}

// End writes the document.
func (c *Canvas) End(w io.Writer) error {
	c.Printf("</svg>\n")
	_, err := w.Write(c.b.Bytes())
	return err
}

// Escape makes words part of a document.
func Escape(s string) string {
	var b bytes.Buffer
	xml.EscapeText(&b, []byte(s)) // a Buffer takes everything
	return b.String()
}

// SizeText shows a number of bytes: 512, 1.5 Mi.
func SizeText(n float64) string {
	for _, u := range []struct {
		size float64
		name string
	}{{1 << 30, " Gi"}, {1 << 20, " Mi"}, {1 << 10, " Ki"}} {
		if n >= u.size {
			return fmt.Sprintf("%.4g%s", n/u.size, u.name)
		}
	}
	return fmt.Sprintf("%.4g", n)
}
