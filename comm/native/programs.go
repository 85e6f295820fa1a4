package native

import (
	"cmp"
	"slices"
	"unsafe"
)

// programs are what a group has compiled, by shape. Those that were used least recently make room for new ones.
type programs struct {
	all   map[shape]*compiled
	bytes int
	clock uint64 // of uses
}

// maxProgramBytes bounds what a group's programs take, but for the last one, which may be larger by itself.
const maxProgramBytes = 8 << 20

// find returns what was compiled for a shape, or nil.
func (p *programs) find(key shape) *compiled {
	c := p.all[key]
	if c != nil {
		p.clock++
		c.used = p.clock
	}
	return c
}

// add keeps what was compiled for a shape. It reports whether others had to go.
func (p *programs) add(key shape, c *compiled) (full bool) {
	if p.all == nil {
		p.all = map[shape]*compiled{}
	}
	if old := p.all[key]; old != nil { // for other counts with the same hash
		p.bytes -= old.size()
	}
	p.clock++
	c.used = p.clock
	p.all[key] = c
	p.bytes += c.size()
	if p.bytes <= maxProgramBytes {
		return false
	}
	old := make([]*compiled, 0, len(p.all))
	for _, other := range p.all {
		if other != c {
			old = append(old, other)
		}
	}
	slices.SortFunc(old, func(a, b *compiled) int { return cmp.Compare(a.used, b.used) })
	for _, other := range old {
		if p.bytes <= maxProgramBytes*3/4 { // so that the next ones find room
			break
		}
		p.bytes -= other.size()
		delete(p.all, other.shape)
	}
	return true
}

// size is about how many bytes the programs for a shape take.
func (c *compiled) size() int {
	word, ints := int(unsafe.Sizeof(0)), len(c.req.Counts)+len(c.req.SendCounts)+len(c.req.RecvCounts)
	n := int(unsafe.Sizeof(*c)+2*unsafe.Sizeof(shape{})) + ints*word + len(c.sizes)*int(unsafe.Sizeof(sizes{}))
	for _, p := range []*program{c.plain, c.apart, c.mapped} {
		if p == nil {
			continue
		}
		n += int(unsafe.Sizeof(*p)) + cap(p.steps)*int(unsafe.Sizeof(step{})) + len(p.touches)
		for i := range p.steps {
			n += (cap(p.steps[i].dst) + cap(p.steps[i].src)) * int(unsafe.Sizeof(ref{}))
		}
	}
	return n
}
