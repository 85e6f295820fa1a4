package observe

import (
	"context"
	"fmt"

	"github.com/chorus-comms/chorus/observe/record"
)

// A Family is a metric with its samples, in the terms of Prometheus.
type Family struct {
	Name, Help string
	Kind       string // "gauge", "counter" or "histogram"
	Labels     []string
	Samples    []Sample
}

// A Sample is one value of a Family. No two of a family have the same labels.
type Sample struct {
	Values  []string // of the labels, in their order
	Value   float64  // of a gauge or a counter
	Latency *Latency // of a histogram, by record.LatencyBounds
}

// Families returns the metrics of t: what package endpoint serves in Prometheus' text format.
func (t *Top) Families() []Family {
	names := distinct(t.Rows)
	family := func(name, kind, help string, value func(r *TopRow) float64) Family {
		f := Family{Name: name, Kind: kind, Help: help, Labels: []string{"job", "rank", "comm"}}
		for i := range t.Rows {
			r := &t.Rows[i]
			f.Samples = append(f.Samples, Sample{Values: []string{t.Job, fmt.Sprint(r.Rank), names[i]}, Value: value(r)})
		}
		return f
	}
	return []Family{
		t.up(),
		family("chorus_operations_total", "counter", "Operations that the rank has called.",
			func(r *TopRow) float64 { return float64(r.Ops) }),
		family("chorus_bytes_total", "counter", "Bytes of the rank's tensors in its operations.",
			func(r *TopRow) float64 { return float64(r.Bytes) }),
		family("chorus_collective", "gauge", "Number of the last collective that the rank has begun.",
			func(r *TopRow) float64 { return float64(r.Last) }),
		family("chorus_operation_seconds", "gauge", "How long the operation lasts that the rank is in; 0 without one.",
			func(r *TopRow) float64 { return r.For }),
		family("chorus_broken", "gauge", "Whether the communicator is broken.", func(r *TopRow) float64 {
			if r.Cause != "" {
				return 1
			}
			return 0
		}),
		t.durations(names),
		t.waitedFor(),
	}
}

// up says which ranks answer.
func (t *Top) up() Family {
	f := Family{Name: "chorus_up", Kind: "gauge", Help: "Whether the rank answers.", Labels: []string{"job", "rank"}}
	add := func(rank int, value float64) {
		f.Samples = append(f.Samples, Sample{Values: []string{t.Job, fmt.Sprint(rank)}, Value: value})
	}
	last := -1
	for _, r := range t.Rows {
		if r.Rank != last {
			add(r.Rank, 1)
		}
		last = r.Rank
	}
	for _, s := range t.Silent {
		add(s.Rank, 0)
	}
	return f
}

// durations says how long the operations of each row have taken. names are the rows' communicators.
func (t *Top) durations(names []string) Family {
	f := Family{Name: "chorus_operation_duration_seconds", Kind: "histogram",
		Help:   "How long operations have taken, of those that were timed and still recorded at a look.",
		Labels: []string{"job", "rank", "comm", "op"}}
	for i := range t.Rows {
		r := &t.Rows[i]
		for j := range r.Took {
			f.Samples = append(f.Samples, Sample{Values: []string{t.Job, fmt.Sprint(r.Rank), names[i], r.Took[j].Op},
				Latency: &r.Took[j]})
		}
	}
	return f
}

// waitedFor says how long others have waited for each rank.
func (t *Top) waitedFor() Family {
	f := Family{Name: "chorus_waited_for_seconds", Kind: "gauge",
		Help:   "How long others have waited for a rank in a collective that it has not entered.",
		Labels: []string{"job", "rank", "comm"}}
	longest := map[commOfRank]float64{}
	var order []commOfRank
	for _, w := range t.Waits {
		for _, rank := range w.For {
			l := commOfRank{rank, w.Comm}
			if _, known := longest[l]; !known {
				order = append(order, l)
			}
			longest[l] = max(longest[l], w.Longest)
		}
	}
	for _, l := range order {
		f.Samples = append(f.Samples, Sample{Values: []string{t.Job, fmt.Sprint(l.rank), l.comm}, Value: longest[l]})
	}
	return f
}

// commOfRank is what tells the samples of a family apart.
type commOfRank struct {
	rank int
	comm string
}

// distinct returns the names of communicators so that no two of a rank have the same, which a program may well give
// them: Prometheus refuses all samples of an answer in which two have the same labels. The second "x" of a rank is
// "x#2".
func distinct(rows []TopRow) []string {
	names := make([]string, len(rows))
	taken := map[commOfRank]bool{}
	for i := range rows {
		l := commOfRank{rows[i].Rank, rows[i].Name}
		for n := 2; taken[l]; n++ {
			l.comm = fmt.Sprintf("%s#%d", rows[i].Name, n)
		}
		taken[l], names[i] = true, l.comm
	}
	return names
}

// LiveTop asks all ranks whose dumps would go to dir what they do, as AskLive does. Of several jobs that run there, it
// returns the one that began last.
func LiveTop(ctx context.Context, dir string) (*Top, error) {
	now, err := AskLive(ctx, dir)
	if err != nil {
		return nil, err
	}
	if jobs := Running(now); len(jobs) > 0 {
		now = jobs[0]
	}
	return NewTop(nil, now), nil
}

// OwnTop returns what the ranks of this process do. Usually that's one.
func OwnTop() *Top {
	var now []Answer
	for _, l := range record.LiveAll() {
		now = append(now, Answer{Live: l})
	}
	return NewTop(nil, now)
}
