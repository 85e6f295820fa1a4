package accl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/chorus-comms/chorus/accl/abi"
	"github.com/chorus-comms/chorus/accl/engine"
	"github.com/chorus-comms/chorus/internal/svg"
)

// Moves are the instructions that the data movers of a world's engines carry out for one collective.
type Moves struct {
	Scenario abi.Scenario
	Ranks    int
	All      []RankMove // in the order of their beginnings
}

// RankMove is an instruction of one rank's engine.
type RankMove struct {
	abi.Move
	Rank     int
	From, To time.Duration // since the first began
}

// collectives are those that RecordMoves knows, with how many blocks of count each side has.
var collectives = map[abi.Scenario]struct {
	in, out func(ranks int) int
	run     func(d *Driver, ctx context.Context, in, out *Buffer, count int, opts ...Option) error
}{
	abi.Bcast: {one, one, func(d *Driver, ctx context.Context, in, _ *Buffer, n int, o ...Option) error {
		return d.Bcast(ctx, in, n, 0, o...)
	}},
	abi.Scatter: {perRank, one, func(d *Driver, ctx context.Context, in, out *Buffer, n int, o ...Option) error {
		return d.Scatter(ctx, in, out, n, 0, o...)
	}},
	abi.Gather: {one, perRank, func(d *Driver, ctx context.Context, in, out *Buffer, n int, o ...Option) error {
		return d.Gather(ctx, in, out, n, 0, o...)
	}},
	abi.Reduce: {one, one, func(d *Driver, ctx context.Context, in, out *Buffer, n int, o ...Option) error {
		return d.Reduce(ctx, abi.Sum, in, out, n, 0, o...)
	}},
	abi.Allgather: {one, perRank, func(d *Driver, ctx context.Context, in, out *Buffer, n int, o ...Option) error {
		return d.Allgather(ctx, in, out, n, o...)
	}},
	abi.Allreduce: {one, one, func(d *Driver, ctx context.Context, in, out *Buffer, n int, o ...Option) error {
		return d.Allreduce(ctx, abi.Sum, in, out, n, o...)
	}},
	abi.ReduceScatter: {perRank, one, func(d *Driver, ctx context.Context, in, out *Buffer, n int, o ...Option) error {
		return d.ReduceScatter(ctx, abi.Sum, in, out, n, o...)
	}},
	abi.Alltoall: {perRank, perRank, func(d *Driver, ctx context.Context, in, out *Buffer, n int, o ...Option) error {
		return d.Alltoall(ctx, in, out, n, o...)
	}},
}

func one(int) int       { return 1 }
func perRank(n int) int { return n }

// Collectives are the scenarios that RecordMoves knows.
func Collectives() (all []abi.Scenario) {
	for s := range collectives {
		all = append(all, s)
	}
	slices.Sort(all)
	return all
}

// RecordMoves has engines of this process carry a collective of float32 elements out, from or to rank 0, and returns
// their instructions. c says how they are set up.
func RecordMoves(ctx context.Context, s abi.Scenario, ranks, count int, p abi.Protocol, c Config,
	opts ...Option) (*Moves, error) {
	what, known := collectives[s]
	if !known || ranks < 1 || count < 1 {
		return nil, fmt.Errorf("accl: no moves of %v of %d elements among %d ranks", s, count, ranks)
	}
	m := &Moves{Scenario: s, Ranks: ranks}
	var mu sync.Mutex
	var first time.Time
	net := engine.NewNetwork()
	ds := make([]*Driver, ranks)
	c.Ranks = nil
	for r := range uint32(ranks) {
		c.Ranks = append(c.Ranks, abi.Rank{IP: 0x7F000001, Port: 5500 + r, Session: r})
	}
	for r := range ranks {
		e := engine.New(engine.Config{Session: uint32(r), Protocol: p, Network: sends{net.Port(uint32(r))},
			Moves: func(_ abi.Call, i abi.Move, from, to time.Time) {
				mu.Lock()
				defer mu.Unlock()
				if first.IsZero() || from.Before(first) {
					first = from
				}
				m.All = append(m.All, RankMove{i, r, time.Duration(from.UnixNano()), time.Duration(to.UnixNano())})
			}})
		net.Attach(uint32(r), e)
		var err error
		c.Local = r
		if ds[r], err = New(ctx, InProcess(e), c); err != nil {
			return nil, err
		}
		defer ds[r].Close()
	}
	errs := make([]error, ranks)
	var wg sync.WaitGroup
	for r, d := range ds {
		wg.Go(func() {
			in, err := d.Buffer(what.in(ranks)*count, abi.Float32)
			out, err2 := d.Buffer(what.out(ranks)*count, abi.Float32)
			if errs[r] = cmp.Or(err, err2); errs[r] == nil {
				errs[r] = what.run(d, ctx, in, out, count, opts...)
			}
		})
	}
	wg.Wait()
	for i := range m.All {
		m.All[i].From -= time.Duration(first.UnixNano())
		m.All[i].To -= time.Duration(first.UnixNano())
	}
	slices.SortStableFunc(m.All, func(a, b RankMove) int {
		return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.Rank, b.Rank))
	})
	return m, errors.Join(errs...)
}

// sends is a network whose engines reach each other's memory by instructions alone.
type sends struct{ engine.Network }

// WriteText lists the instructions: when, of which rank, their words, and what they say.
func (m *Moves) WriteText(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%v among %d ranks: %d moves\n", m.Scenario, m.Ranks, len(m.All))
	for _, x := range m.All {
		var words []string
		for _, v := range x.Words() {
			words = append(words, fmt.Sprintf("%x", v))
		}
		fmt.Fprintf(&b, "%9.1f us  rank %d  %v\n%s[%s]\n", float64(x.From)/1e3, x.Rank, x.Move, strings.Repeat(" ", 22),
			strings.Join(words, " "))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// columns are where moves are drawn, and how many: each is after the one before it of its rank, and after the one whose
// message it takes.
func (m *Moves) columns() (columns []int, n int) {
	columns = make([]int, len(m.All))
	rest := make([][]int, m.Ranks) // of each rank's moves, in their order
	for i, x := range m.All {
		rest[x.Rank] = append(rest[x.Rank], i)
	}
	next := make([]int, m.Ranks)
	sent := map[[2]int][]int{} // columns of messages that weren't received yet, by sender and receiver
	place := func(r int, wait bool) bool {
		if len(rest[r]) == 0 {
			return false
		}
		i, at := rest[r][0], next[r]
		x := m.All[i]
		way := [2]int{x.source(), r}
		if q := sent[way]; len(q) > 0 {
			at, sent[way] = max(at, q[0]+1), q[1:]
		} else if wait && way[0] >= 0 {
			return false
		}
		if x.Remote {
			to := [2]int{r, int(x.Dst)}
			sent[to] = append(sent[to], at)
		}
		columns[i], next[r], rest[r] = at, at+1, rest[r][1:]
		n = max(n, at+1)
		return true
	}
	for placed := 0; placed < len(m.All); {
		before := placed
		for r := range rest {
			for place(r, true) {
				placed++
			}
		}
		for r := 0; placed == before; r++ { // one takes a message of several moves
			if place(r, false) {
				placed++
			}
		}
	}
	return columns, n
}

// source is the rank whose message the move takes, -1 if it takes none.
func (x *RankMove) source() int {
	for _, s := range []abi.Slot{x.Op0, x.Op1} {
		if s.Opcode == abi.MoveOnRecv {
			return int(s.Src)
		}
	}
	return -1
}

// WriteSVG draws them: a row for each rank, its moves in their order with their words, and a line to the rank that a
// move's result is for. Columns are no times.
func (m *Moves) WriteSVG(w io.Writer) error {
	const (
		left, top         = 70, 60
		column, row       = 150, 130
		boxWide, boxTall  = 138, 84
		small, lineHeight = 9, 12
	)
	columns, n := m.columns()
	width, height := left+column*max(n, 3)+20, top+row*m.Ranks+10
	c := svg.New(width, height, 12)
	c.Text(10, 22, "start", 14, fmt.Sprintf("%v among %d ranks: %d moves of the engines", m.Scenario, m.Ranks, len(m.All)))
	c.Text(10, 40, "start", 11, "point at a move for its words; a line goes to the rank that its result is for")
	middle := func(rank int) float64 { return float64(top + row*rank + boxTall/2) }
	for r := range m.Ranks {
		c.Text(10, middle(r), "start", 12, fmt.Sprintf("rank %d", r))
		c.Line(left, middle(r), float64(width-20), middle(r), svg.Grid)
	}
	for i, x := range m.All {
		at, y := float64(left+column*columns[i]), float64(top+row*x.Rank)
		color := svg.Colors[2] // within the engine
		switch {
		case x.Op1.Opcode == abi.MoveOnRecv && x.Remote:
			color = svg.Colors[3]
		case x.Remote:
			color = svg.Colors[0]
		case x.Op1.Opcode == abi.MoveOnRecv:
			color = svg.Colors[4]
		}
		if x.Remote && int(x.Dst) < m.Ranks {
			c.Line(at+boxWide, middle(x.Rank), at+column, middle(int(x.Dst)), color)
		}
		c.Box(at, y, boxWide, boxTall, color, 0.25, fmt.Sprintf("%v\nwords %#x\n%v to %v", x.Move, x.Words(), x.From, x.To))
		for k, line := range x.lines() {
			c.Text(at+4, y+float64(lineHeight*(k+1)), "start", small, line)
		}
	}
	return c.End(w)
}

// lines are what a move's box says.
func (x *RankMove) lines() []string {
	lines := []string{fmt.Sprintf("%d elements", x.Count)}
	for i, s := range [3]abi.Slot{x.Op0, x.Op1, x.Res} {
		if s.Opcode == abi.MoveNone {
			continue
		}
		line := []string{"op0 ", "op1 ", "res "}[i] + s.Opcode.String()
		if s.Opcode == abi.MoveOnRecv {
			line += fmt.Sprintf(" of rank %d", s.Src)
		}
		if s.Compressed {
			line += ", f16"
		}
		lines = append(lines, line)
	}
	if x.Remote {
		way := "eager"
		if x.Rendezvous {
			way = "rendezvous"
		}
		lines = append(lines, fmt.Sprintf("to rank %d, %s", x.Dst, way))
	}
	return append(lines, fmt.Sprintf("word 0: %#06x", x.Words()[0]))
}
