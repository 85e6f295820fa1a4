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

// draw writes the kernels and all-reduces of all devices as SVG, a line for each of the two on each device, over an
// axis of time.
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
	const width, left, height = 820, 180, 26
	const bottom = 10 + 2*ranks*height
	scale := width / max(last.Sub(first).Seconds(), 1e-9)
	c := svg.New(left+width+30, bottom+50, 12)
	step := tick(last.Sub(first))
	for at := time.Duration(0); at <= last.Sub(first); at += step {
		x := left + at.Seconds()*scale
		c.Line(x, 6, x, bottom, svg.Grid)
		c.Text(x, bottom+18, "middle", 12, fmt.Sprint(at))
	}
	c.Line(left, bottom, left+width, bottom, svg.Axis)
	c.Text(left+width/2, bottom+40, "middle", 12, "time")
	for i := range 2 * ranks {
		l := line{i / 2, i%2 == 0}
		y := 10 + i*height
		name, color := "communication", svg.Colors[1]
		if l.compute {
			name, color = "computation", svg.Colors[0]
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
	return c.End(w)
}

// tick returns the time between two ticks, of which some ten are to be in all.
func tick(all time.Duration) time.Duration {
	for step := time.Microsecond; ; step *= 10 {
		for _, n := range []time.Duration{1, 2, 5} {
			if all <= 10*n*step {
				return n * step
			}
		}
	}
}
