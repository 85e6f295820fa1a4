package memviz

import (
	"fmt"
	"io"
	"slices"

	"github.com/chorus-comms/chorus/device/cache"
	"github.com/chorus-comms/chorus/internal/svg"
)

// Options say what is drawn, and how.
type Options struct {
	Device int
	Time   bool // the horizontal axis is time, not the number of the event
}

const (
	width, height = 1200, 800
	left, right   = 110, 30
	linesTop      = 50
	linesBottom   = 220
	mapTop        = 260
	mapBottom     = height - 60
	gap           = 4 // pixels between segments that don't touch
)

// Draw writes the picture of a device as an SVG document.
func Draw(w io.Writer, s *cache.Snapshot, o Options) error {
	t, err := newTimeline(s, o.Device)
	if err != nil {
		return err
	}
	p := &picture{Canvas: svg.New(width, height, 13), timeline: t, byTime: o.Time}
	p.layOut()
	p.Text(left, 28, "start", 17, fmt.Sprintf("Memory of device %d: %d events, %d allocations", o.Device, t.events,
		len(t.allocated)))
	p.lines()
	p.blocks()
	p.axis()
	return p.End(w)
}

// picture is the document that is being written.
type picture struct {
	*svg.Canvas
	*timeline
	byTime bool
	ranges []addressRange
}

// addressRange is a part of the address space that was reserved at some time. y is that of its first byte, counted
// downwards.
type addressRange struct {
	addr, end uint64
	y, scale  float64
}

// x is where an event stands.
func (p *picture) x(event int) float64 {
	part := float64(event) / float64(max(1, p.events))
	if p.byTime && p.events > 1 {
		first, last := p.times[0], p.times[p.events-1]
		part = float64(p.times[min(event, p.events-1)]-first) / float64(max(1, last-first))
	}
	return left + part*(width-left-right)
}

// layOut finds the ranges of addresses that touch, and stacks them with gaps between.
func (p *picture) layOut() {
	all := slices.Concat(p.reserved, p.allocated)
	slices.SortFunc(all, byAddress)
	var total uint64
	for _, s := range all {
		if n := len(p.ranges); n > 0 && s.addr <= p.ranges[n-1].end {
			p.ranges[n-1].end = max(p.ranges[n-1].end, s.end())
		} else {
			p.ranges = append(p.ranges, addressRange{addr: s.addr, end: s.end()})
		}
	}
	for _, r := range p.ranges {
		total += r.end - r.addr
	}
	space := min(gap, 100/float64(max(1, len(p.ranges))))
	scale := (mapBottom - mapTop - space*float64(len(p.ranges))) / float64(max(1, total))
	y := float64(mapBottom)
	for i := range p.ranges {
		r := &p.ranges[i]
		r.y, r.scale = y, scale
		y -= float64(r.end-r.addr)*scale + space
	}
}

// y is where an address stands.
func (p *picture) y(addr uint64) float64 {
	i, found := slices.BinarySearchFunc(p.ranges, addr, func(r addressRange, a uint64) int {
		switch {
		case r.addr < a:
			return -1
		case r.addr > a:
			return 1
		}
		return 0
	})
	if !found {
		i--
	}
	return p.ranges[i].y - float64(addr-p.ranges[i].addr)*p.ranges[i].scale
}

// lines draws how many bytes were reserved and allocated.
func (p *picture) lines() {
	most := max(slices.Max(p.heldBytes), slices.Max(p.allocBytes), 1)
	y := func(n int64) float64 { return linesBottom - float64(n)/float64(most)*(linesBottom-linesTop) }
	for i := range 3 {
		n := most / 2 * int64(i)
		p.Line(left, y(n), width-right, y(n), svg.Grid)
		p.Text(left-8, y(n)+5, "end", 12, sizeText(n))
	}
	for _, l := range []struct {
		name, color string
		bytes       []int64
	}{{"reserved", svg.Muted, p.heldBytes}, {"allocated", svg.Colors[0], p.allocBytes}} {
		p.Printf(`<polyline fill="none" stroke="%s" stroke-width="1.5" points="`, l.color)
		for i, n := range l.bytes {
			p.Printf("%.1f,%.1f ", p.x(i), y(n))
			p.Printf("%.1f,%.1f ", p.x(min(i+1, p.events)), y(n))
		}
		p.Printf(`"><title>%s, at most %s</title></polyline>`+"\n", l.name, sizeText(slices.Max(l.bytes)))
	}
	p.Printf(`<text x="%d" y="28" text-anchor="end"><tspan fill="%s">reserved, at most %s</tspan>  <tspan fill="%s">allocated, at most %s</tspan></text>`+"\n",
		width-right, svg.Muted, sizeText(slices.Max(p.heldBytes)), svg.Colors[0], sizeText(slices.Max(p.allocBytes)))
}

// blocks draws what was reserved and, in front of it, what was allocated.
func (p *picture) blocks() {
	for _, s := range p.reserved {
		p.rect(s, s.from, s.to, svg.Shade, 1, fmt.Sprintf("reserved: %s at %#x, stream %d", sizeText(s.size), s.addr,
			s.stream))
	}
	for _, s := range p.allocated {
		end := "still allocated"
		if !s.stillThere {
			end = fmt.Sprintf("freed at event %d", s.freed)
		}
		title := fmt.Sprintf("%s at %#x, stream %d, from event %d, %s", sizeText(s.size), s.addr, s.stream, s.from, end)
		if s.where != "" {
			title += "\n" + s.where
		}
		color := svg.Colors[int(s.stream%cache.Stream(len(svg.Colors)-1))]
		p.rect(s, s.from, s.freed, color, 0.85, title)
		if s.to > s.freed+1 {
			p.rect(s, s.freed, s.to, color, 0.3, title+"\nwaiting for other streams")
		}
	}
	for _, at := range p.outOfMemory {
		p.Printf(`<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="#cc0000"><title>out of memory</title></line>`+"\n",
			p.x(at), linesTop, p.x(at), mapBottom)
	}
}

func (p *picture) rect(s span, from, to int, color string, opacity float64, title string) {
	x, bottom := p.x(from), p.y(s.addr)
	w, h := max(0.3, p.x(to)-x), max(0.3, float64(s.size)*p.ranges[0].scale)
	p.Box(x, bottom-h, w, h, color, opacity, title)
}

func (p *picture) axis() {
	p.Text(left-8, mapTop+12, "end", 12, "addresses")
	p.Text(left-8, linesTop-8, "end", 12, "bytes")
	name, last := "events", fmt.Sprint(p.events)
	if p.byTime && p.events > 0 {
		name, last = "time", fmt.Sprintf("%.3f ms", float64(p.times[p.events-1]-p.times[0])/1e3)
	}
	p.Line(left, mapBottom, width-right, mapBottom, svg.Axis)
	p.Text(left, mapBottom+20, "middle", 12, "0")
	p.Text((left+width-right)/2, mapBottom+34, "middle", 13, name)
	p.Text(width-right, mapBottom+20, "end", 12, last)
}

// sizeText shows a size: 512 B, 1.5 MiB.
func sizeText[N int64 | uint64](n N) string {
	text := svg.SizeText(float64(n))
	if n < 1<<10 {
		text += " "
	}
	return text + "B"
}
