package main

import (
	"fmt"
	"html"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/chorus-comms/chorus/device"
)

// draw writes the kernels and all-reduces of all devices as SVG, a line for each of the two on each device.
func draw(w io.Writer, activities []device.Activity) error {
	type line struct {
		dev     int
		compute bool
	}
	lines := map[line][]device.Activity{}
	var first, last time.Time
	for _, a := range activities {
		compute := a.Kind == device.ActivityKernel && strings.HasPrefix(a.Name, "backward")
		if !compute && !(a.Kind == device.ActivityHost && a.Name == "all_reduce") {
			continue
		}
		l := line{a.Device, compute}
		lines[l] = append(lines[l], a)
		if first.IsZero() || a.Start.Before(first) {
			first = a.Start
		}
		if a.End.After(last) {
			last = a.End
		}
	}
	const width, left, height = 860.0, 150.0, 26
	scale := width / max(last.Sub(first).Seconds(), 1e-9)
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %d" font-family="sans-serif" font-size="12">`+"\n", left+width+10, 2*ranks*height+40)
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" fill="white"/>`+"\n")
	for i := range 2 * ranks {
		l := line{i / 2, i%2 == 0}
		y := 10 + i*height
		name, color := "communication", "#d55e00"
		if l.compute {
			name, color = "computation", "#0072b2"
		}
		fmt.Fprintf(&b, `<text x="6" y="%d">device %d: %s</text>`+"\n", y+14, l.dev, name)
		slices.SortFunc(lines[l], func(a, b device.Activity) int { return a.Start.Compare(b.Start) })
		for _, a := range lines[l] {
			x := left + a.Start.Sub(first).Seconds()*scale
			fmt.Fprintf(&b, `<rect x="%.1f" y="%d" width="%.1f" height="%d" fill="%s" stroke="white"><title>%s, %v</title></rect>`+"\n",
				x, y, max(1, a.End.Sub(a.Start).Seconds()*scale), height-6, color, html.EscapeString(a.Name), a.End.Sub(a.Start).Round(time.Microsecond))
		}
	}
	fmt.Fprintf(&b, `<text x="%g" y="%d">%v</text>`+"\n</svg>\n", left, 2*ranks*height+30, last.Sub(first).Round(time.Millisecond))
	_, err := io.WriteString(w, b.String())
	return err
}
