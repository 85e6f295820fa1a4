package endpoint

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/chorus-comms/chorus/observe"
	"github.com/chorus-comms/chorus/observe/record"
	"github.com/chorus-comms/chorus/secure"
)

// askLimit bounds how long ranks are waited for; one that is stopped doesn't answer.
const askLimit = 2 * time.Second

// Serve serves [Handler] at a listener, which it closes, until ctx ends. Its clients are unauthenticated, and limited
// as [secure.LimitListener] has it. A request must name the address that it came to, localhost, this host, or one of
// names. Otherwise a web page whose own host name resolves to this address could read everything.
func Serve(ctx context.Context, l net.Listener, dir func() string, names ...string) error {
	s := &http.Server{Handler: named(Handler(dir), names), ReadHeaderTimeout: 10 * time.Second}
	defer context.AfterFunc(ctx, func() { s.Close() })()
	if err := s.Serve(secure.LimitListener(l)); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// Handler serves what the ranks tell whose records go to the directory that dir returns at the time of a request; of
// several jobs that run there, those of the one that began last. It answers whatever host a request names.
func Handler(dir func() string) http.Handler {
	mux := http.NewServeMux()
	look := func(r *http.Request) (*observe.Top, error) {
		ctx, cancel := context.WithTimeout(r.Context(), askLimit)
		defer cancel()
		now, err := observe.AskLive(ctx, dir())
		if err != nil {
			return nil, err
		}
		if jobs := observe.Running(now); len(jobs) > 0 {
			now = jobs[0]
		}
		return observe.NewTop(nil, now), nil
	}
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Write(page)
	})
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		top, err := look(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		w.Write(metrics(top))
	})
	mux.HandleFunc("GET /ranks", func(w http.ResponseWriter, r *http.Request) {
		top, err := look(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(top)
	})
	mux.HandleFunc("GET /rank/{rank}/pprof/{profile}", func(w http.ResponseWriter, r *http.Request) {
		rank, err := strconv.Atoi(r.PathValue("rank"))
		if err != nil {
			http.Error(w, "no such rank", http.StatusNotFound)
			return
		}
		seconds, err := strconv.Atoi(r.FormValue("seconds"))
		if err != nil {
			seconds = 5
		}
		w.Header().Set("Content-Type", "application/octet-stream")
		if err := observe.Profile(r.Context(), w, dir(), rank, r.PathValue("profile"), seconds); err != nil {
			http.Error(w, err.Error(), http.StatusNotFound)
		}
	})
	return mux
}

// metrics writes Prometheus' text format: https://prometheus.io/docs/instrumenting/exposition_formats.
func metrics(t *observe.Top) []byte {
	var b strings.Builder
	family := func(name, kind, help string, each func(sample func(value float64, labels ...any))) {
		fmt.Fprintf(&b, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
		each(func(value float64, labels ...any) {
			b.WriteString(name)
			for i := 0; i < len(labels); i += 2 {
				open := byte(',')
				if i == 0 {
					open = '{'
				}
				b.WriteByte(open)
				fmt.Fprintf(&b, "%s=\"%s\"", labels[i], escape.Replace(fmt.Sprint(labels[i+1])))
			}
			fmt.Fprintf(&b, "} %v\n", value)
		})
	}
	names := distinct(t.Rows)
	rows := func(value func(r *observe.TopRow) float64) func(func(float64, ...any)) {
		return func(sample func(float64, ...any)) {
			for i := range t.Rows {
				r := &t.Rows[i]
				sample(value(r), "job", t.Job, "rank", r.Rank, "comm", names[i])
			}
		}
	}
	family("chorus_up", "gauge", "Whether the rank answers.", func(sample func(float64, ...any)) {
		last := -1
		for _, r := range t.Rows {
			if r.Rank != last {
				sample(1, "job", t.Job, "rank", r.Rank)
			}
			last = r.Rank
		}
		for _, s := range t.Silent {
			sample(0, "job", t.Job, "rank", s.Rank)
		}
	})
	family("chorus_operations_total", "counter", "Operations that the rank has called.",
		rows(func(r *observe.TopRow) float64 { return float64(r.Ops) }))
	family("chorus_bytes_total", "counter", "Bytes of the rank's tensors in its operations.",
		rows(func(r *observe.TopRow) float64 { return float64(r.Bytes) }))
	family("chorus_collective", "gauge", "Number of the last collective that the rank has begun.",
		rows(func(r *observe.TopRow) float64 { return float64(r.Last) }))
	family("chorus_operation_seconds", "gauge", "How long the operation lasts that the rank is in; 0 without one.",
		rows(func(r *observe.TopRow) float64 { return r.For }))
	family("chorus_broken", "gauge", "Whether the communicator is broken.", rows(func(r *observe.TopRow) float64 {
		if r.Cause != "" {
			return 1
		}
		return 0
	}))
	histograms(&b, t, names)
	family("chorus_waited_for_seconds", "gauge",
		"How long others have waited for a rank in a collective that it has not entered.",
		func(sample func(float64, ...any)) { waitedFor(t, sample) })
	return []byte(b.String())
}

// histograms writes how long the operations of each row have taken. names are the rows' communicators.
func histograms(b *strings.Builder, t *observe.Top, names []string) {
	const took = "chorus_operation_duration_seconds"
	const help = "How long operations have taken, of those that were timed and still recorded at a look."
	fmt.Fprintf(b, "# HELP %s %s\n# TYPE %s histogram\n", took, help, took)
	for i := range t.Rows {
		r := &t.Rows[i]
		for _, h := range r.Took {
			labels := fmt.Sprintf("job=\"%s\",rank=\"%d\",comm=\"%s\",op=\"%s\"", escape.Replace(t.Job), r.Rank,
				escape.Replace(names[i]), escape.Replace(h.Op))
			n := uint64(0)
			for j, count := range h.Counts {
				n += count
				end := "+Inf"
				if j < len(record.LatencyBounds) {
					end = fmt.Sprint(record.LatencyBounds[j])
				}
				fmt.Fprintf(b, "%s_bucket{%s,le=\"%s\"} %d\n", took, labels, end, n)
			}
			fmt.Fprintf(b, "%s_sum{%s} %v\n%s_count{%s} %d\n", took, labels, h.Sum, took, labels, n)
		}
	}
}

// waitedFor passes on how long others have waited for each rank.
func waitedFor(t *observe.Top, sample func(value float64, labels ...any)) {
	longest := map[label]float64{}
	var order []label
	for _, w := range t.Waits {
		for _, rank := range w.For {
			l := label{rank, w.Comm}
			if _, known := longest[l]; !known {
				order = append(order, l)
			}
			longest[l] = max(longest[l], w.Longest)
		}
	}
	for _, l := range order {
		sample(longest[l], "job", t.Job, "rank", l.rank, "comm", l.comm)
	}
}

// label is what tells the samples of a family apart.
type label struct {
	rank int
	comm string
}

// distinct returns the names of communicators so that no two of a rank have the same, which a program may well give
// them: Prometheus refuses all samples of an answer in which two have the same labels. The second "x" of a rank is
// "x#2".
func distinct(rows []observe.TopRow) []string {
	names := make([]string, len(rows))
	taken := map[label]bool{}
	for i := range rows {
		l := label{rows[i].Rank, rows[i].Name}
		for n := 2; taken[l]; n++ {
			l.comm = fmt.Sprintf("%s#%d", rows[i].Name, n)
		}
		taken[l], names[i] = true, l.comm
	}
	return names
}

var escape = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)
