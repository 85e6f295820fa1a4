package devicetest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/chorus-comms/chorus/device/driver"
)

var programCases = []testCase{
	{"Random", 1, func(c *test) {
		for seed := range uint64(c.programs) {
			rng := rand.New(rand.NewPCG(seed, 1))
			if err := Program(c.drv, rng.IntN, Patience(c.patience)); err != nil {
				c.fail("program %d: %w", seed, err)
			}
		}
	}},
}

// Program runs one random program of copies, fills, host functions, events, waits and graphs on several streams and
// devices. It compares the memory at the end with the result of the same statements one after the other on the host.
// Function draw returns a number in [0, n), and decides everything, so that a library for property tests can shrink
// failing programs.
func Program(drv driver.Driver, draw func(n int) int, opts ...Option) error {
	s := newSuite(drv, opts)
	return s.run(testCase{"Program", 1, func(c *test) { newProgram(c, draw).run() }})
}

const bufferBytes = 512

// program is a program that runs. Statements that touch the same memory are ordered by events, in the order in which
// they were issued; so what they mean is what they mean one after the other. All else may run in any order.
type program struct {
	*test
	draw    func(n int) int
	buffers []*buffer
	tracks  []*track
	marks   []*mark
	begin   func() // lets the work begin that was held back so far
	log     []string
}

// buffer is memory with what it must hold once all statements so far are done.
type buffer struct {
	name    string
	p       driver.Ptr
	dev     int
	host    []byte // of pinned memory
	want    []byte
	lastUse []int // by track: the last statement that used it, 0 if none
}

// track is a stream.
type track struct {
	s     driver.StreamHandle
	index int
	dev   int
	count int   // statements issued
	known []int // by track: statements that are done before what is issued now
}

// mark is an event, and what it stands for.
type mark struct {
	e     driver.EventHandle
	dev   int
	track int   // -1: never recorded
	known []int // by track: what is done when it has happened
}

func newProgram(c *test, draw func(n int) int) *program {
	g := &program{test: c, draw: draw}
	tracks := 2 + draw(3)
	var opened []func()
	for i := range tracks {
		l := &track{index: i, dev: i % c.n, known: make([]int, tracks)}
		l.s = c.stream(l.dev)
		g.tracks = append(g.tracks, l)
	}
	for range 3 {
		for dev := range c.n {
			g.marks = append(g.marks, &mark{e: c.event(dev, false), dev: dev, track: -1})
		}
	}
	for i := range 3 + draw(3) {
		b := &buffer{name: fmt.Sprintf("d%d", i), want: pattern(bufferBytes, i), lastUse: make([]int, tracks)}
		b.dev = i % c.n
		b.p = c.put(b.dev, b.want)
		g.buffers = append(g.buffers, b)
	}
	for i := range 2 {
		b := &buffer{name: fmt.Sprintf("h%d", i), want: pattern(bufferBytes, 100+i), lastUse: make([]int, tracks)}
		b.p, b.host = c.pinned(bufferBytes)
		copy(b.host, b.want)
		g.buffers = append(g.buffers, b)
	}
	for _, l := range g.tracks {
		opened = append(opened, c.hold(l.s))
	}
	g.begin = sync.OnceFunc(func() {
		for _, open := range opened {
			open()
		}
	})
	return g
}

func (g *program) note(format string, args ...any) {
	g.log = append(g.log, fmt.Sprintf(format, args...))
}

func (g *program) check(err error) {
	if err != nil {
		g.fail("%w, after\n  %s", err, strings.Join(g.log, "\n  "))
	}
}

func (g *program) track() *track { return g.tracks[g.draw(len(g.tracks))] }

func (g *program) run() {
	for range 10 + g.draw(40) {
		switch g.draw(12) {
		default:
			g.statement(g.track())
		case 7:
			g.record(g.track())
		case 8:
			g.wait(g.track(), g.marks[g.draw(len(g.marks))])
		case 9:
			g.synchronize()
		case 10:
			g.graph(g.track())
		case 11:
			g.compare(g.buffers[g.draw(len(g.buffers))])
		}
	}
	for _, b := range g.buffers {
		g.compare(b)
	}
}

// statement issues a copy, a fill or a function.
func (g *program) statement(l *track) {
	dst, src := g.pair(l, g.buffers)
	value := byte(g.draw(256))
	g.order(l, dst, src)
	g.check(g.issue(l.s, dst, src, value))
	mean(dst, src, value)
	g.note("track %d: %s <- %s, %d", l.index, dst.name, src.name, value)
	g.used(l, dst, src)
}

// pair draws the buffers of a statement of a track. A device fills its own memory only.
func (g *program) pair(l *track, from []*buffer) (dst, src *buffer) {
	i, j := g.draw(len(from)), g.draw(len(from))
	if i == j && from[i].host == nil && from[i].dev != l.dev {
		j = (i + 1) % len(from)
	}
	return from[i], from[j]
}

// issue enqueues the statement that buffers and value make: between different buffers a copy; with itself a function if
// it is the host's, else a fill.
func (g *program) issue(s driver.StreamHandle, dst, src *buffer, value byte) error {
	switch {
	case dst != src:
		n := 1 + int(value)*2
		return g.drv.Copy(s, dst.p, src.p.Add(bufferBytes-n), n, driver.CopyDefault)
	case dst.host != nil:
		return g.drv.HostFunc(s, "multiply", func() error {
			for i := range dst.host {
				dst.host[i] = dst.host[i]*3 + value
				if i%128 == 0 {
					runtime.Gosched()
				}
			}
			return nil
		})
	}
	return g.drv.Fill(s, dst.p.Add(int(value)), value, bufferBytes-int(value))
}

// mean does on the host what issue enqueues.
func mean(dst, src *buffer, value byte) {
	switch {
	case dst != src:
		n := 1 + int(value)*2
		copy(dst.want[:n], src.want[bufferBytes-n:])
	case dst.host != nil:
		for i := range dst.want {
			dst.want[i] = dst.want[i]*3 + value
		}
	default:
		for i := int(value); i < bufferBytes; i++ {
			dst.want[i] = value
		}
	}
}

// order sees to it that what l issues next comes after all that used the buffers.
func (g *program) order(l *track, used ...*buffer) {
	for _, b := range used {
		for o, last := range b.lastUse {
			if o == l.index || last <= l.known[o] {
				continue
			}
			m := g.covering(o, last)
			if m == nil {
				m = g.record(g.tracks[o])
			}
			g.wait(l, m)
		}
	}
}

// used notes that l's next statement uses the buffers.
func (g *program) used(l *track, used ...*buffer) {
	l.count++
	l.known[l.index] = l.count
	for _, b := range used {
		b.lastUse[l.index] = l.count
	}
}

// covering returns a mark that stands for a statement of a track, or nil.
func (g *program) covering(track, statement int) *mark {
	for _, m := range g.marks {
		if m.track >= 0 && m.known[track] >= statement {
			return m
		}
	}
	return nil
}

// record records an event of the track's device, whatever it stood for before.
func (g *program) record(l *track) *mark {
	var fit []*mark
	for _, m := range g.marks {
		if m.dev == l.dev {
			fit = append(fit, m)
		}
	}
	m := fit[g.draw(len(fit))]
	g.check(g.drv.EventRecord(m.e, l.s))
	m.track, m.known = l.index, slices.Clone(l.known)
	g.note("track %d: record e%d", l.index, slices.Index(g.marks, m))
	return m
}

func (g *program) wait(l *track, m *mark) {
	g.check(g.drv.StreamWaitEvent(l.s, m.e))
	g.note("track %d: wait e%d", l.index, slices.Index(g.marks, m))
	if m.track >= 0 {
		learn(l.known, m.known)
	}
}

func learn(known, more []int) {
	for i, n := range more {
		known[i] = max(known[i], n)
	}
}

// synchronize lets the host wait for something, after which all tracks know of it.
func (g *program) synchronize() {
	g.begin()
	var known []int
	switch g.draw(3) {
	case 0:
		l := g.track()
		g.check(g.drv.StreamSynchronize(g.ctx, l.s))
		g.note("synchronize track %d", l.index)
		known = l.known
	case 1:
		m := g.marks[g.draw(len(g.marks))]
		g.check(g.drv.EventSynchronize(g.ctx, m.e))
		g.note("synchronize e%d", slices.Index(g.marks, m))
		known = m.known
	case 2:
		dev := g.draw(g.n)
		g.check(g.drv.Synchronize(g.ctx, dev))
		g.note("synchronize device %d", dev)
		known = make([]int, len(g.tracks))
		for _, l := range g.tracks {
			if l.dev == dev {
				learn(known, l.known)
			}
		}
	}
	for _, l := range g.tracks {
		learn(l.known, known)
	}
}

// graph captures statements, on two streams if it may, and replays them.
func (g *program) graph(l *track) {
	gr, ok := g.drv.(driver.Graphs)
	if !ok {
		return
	}
	type line struct {
		dst, src *buffer
		value    byte
	}
	// Two branches with memory of their own, so that they may run side by side.
	half := len(g.buffers) / 2
	branch := func(l *track, from []*buffer) (lines []line) {
		for range 1 + g.draw(3) {
			dst, src := g.pair(l, from)
			lines = append(lines, line{dst, src, byte(g.draw(256))})
		}
		return lines
	}
	o := g.track()
	first, second := branch(l, g.buffers[:half]), branch(o, g.buffers[half:])
	fork, join := g.event(l.dev, false), g.event(o.dev, false)
	issue := func(s driver.StreamHandle, lines []line) {
		for _, x := range lines {
			g.check(g.issue(s, x.dst, x.src, x.value))
		}
	}
	record := func() driver.GraphHandle {
		return g.captureGraph(l.s, func() {
			issue(l.s, first)
			if o != l {
				g.check(g.drv.EventRecord(fork, l.s))
				g.check(g.drv.StreamWaitEvent(o.s, fork))
			}
			issue(o.s, second)
			if o != l {
				g.check(g.drv.EventRecord(join, o.s))
				g.check(g.drv.StreamWaitEvent(l.s, join))
			}
		})
	}
	handle := record()
	x, err := gr.Instantiate(handle)
	g.check(err)
	g.check(gr.GraphDestroy(handle))
	for range 1 + g.draw(3) {
		if g.draw(2) == 1 { // other values, the same kinds of work
			for i := range first {
				first[i].value = byte(g.draw(256))
			}
			handle := record()
			g.check(gr.GraphUpdate(x, handle))
			g.check(gr.GraphDestroy(handle))
		}
		on := g.track()
		g.order(on, g.buffers...)
		g.check(gr.GraphLaunch(x, on.s))
		for _, x := range slices.Concat(first, second) {
			mean(x.dst, x.src, x.value)
		}
		g.note("track %d: replay of %d and %d statements", on.index, len(first), len(second))
		g.used(on, g.buffers...)
	}
	g.check(gr.ExecDestroy(x))
}

// compare waits until all that used a buffer is done, and looks at what it holds.
func (g *program) compare(b *buffer) {
	g.begin()
	l := g.tracks[0]
	g.order(l, b)
	got := b.host
	if got == nil {
		p, host := g.pinned(bufferBytes)
		g.check(g.drv.Copy(l.s, p, b.p, bufferBytes, driver.DeviceToHost))
		got = host
	}
	g.check(g.drv.StreamSynchronize(g.ctx, l.s))
	g.note("compare %s", b.name)
	for _, o := range g.tracks {
		learn(o.known, l.known)
	}
	if !bytes.Equal(got, b.want) {
		i := 0
		for got[i] == b.want[i] {
			i++
		}
		g.fail("%s holds %d at byte %d, want %d, after\n  %s", b.name, got[i], i, b.want[i], strings.Join(g.log, "\n  "))
	}
}
