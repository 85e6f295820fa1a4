package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/internal/svg"
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
	const width, left, height = 860, 150, 26
	scale := width / max(last.Sub(first).Seconds(), 1e-9)
	c := svg.New(left+width+10, 2*ranks*height+40, 12)
	for i := range 2 * ranks {
		l := line{i / 2, i%2 == 0}
		y := 10 + i*height
		name, color := "communication", "#d55e00"
		if l.compute {
			name, color = "computation", "#0072b2"
		}
		c.Text(6, float64(y+14), "start", 12, fmt.Sprintf("device %d: %s", l.dev, name))
		slices.SortFunc(lines[l], func(a, b device.Activity) int { return a.Start.Compare(b.Start) })
		for _, a := range lines[l] {
			x := left + a.Start.Sub(first).Seconds()*scale
			took := a.End.Sub(a.Start)
			c.Box(x, float64(y), max(1, took.Seconds()*scale), height-6, color, 1, fmt.Sprintf("%s, %v", a.Name,
				took.Round(time.Microsecond)))
		}
	}
	c.Text(left, float64(2*ranks*height+30), "start", 12, fmt.Sprint(last.Sub(first).Round(time.Millisecond)))
	return c.End(w)
}
