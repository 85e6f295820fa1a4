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
		return observe.LiveTop(ctx, dir())
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
	mux.HandleFunc("GET /live", func(w http.ResponseWriter, r *http.Request) {
		top, err := look(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		live(w, top)
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

// live says whether all ranks answer. A rank that has died is none of its business: the launcher ends the job, or goes
// on without that rank. Before the ranks have begun there are none that don't answer.
func live(w http.ResponseWriter, t *observe.Top) {
	var stuck []string
	for _, s := range t.Silent {
		if !s.Dead {
			stuck = append(stuck, s.String())
		}
	}
	if len(stuck) > 0 {
		http.Error(w, strings.Join(stuck, "\n"), http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintf(w, "%d ranks answer\n", t.Ranks)
}

// metrics writes Prometheus' text format: https://prometheus.io/docs/instrumenting/exposition_formats.
func metrics(t *observe.Top) []byte {
	var b strings.Builder
	for _, f := range t.Families() {
		fmt.Fprintf(&b, "# HELP %s %s\n# TYPE %s %s\n", f.Name, f.Help, f.Name, f.Kind)
		for _, s := range f.Samples {
			labels := make([]string, len(f.Labels))
			for i, name := range f.Labels {
				labels[i] = fmt.Sprintf("%s=\"%s\"", name, escape.Replace(s.Values[i]))
			}
			with := strings.Join(labels, ",")
			if s.Latency == nil {
				fmt.Fprintf(&b, "%s{%s} %v\n", f.Name, with, s.Value)
			} else {
				histogram(&b, f.Name, with, s.Latency)
			}
		}
	}
	return []byte(b.String())
}

// histogram writes the samples of how long the operations of one kind have taken.
func histogram(b *strings.Builder, name, labels string, h *observe.Latency) {
	n := uint64(0)
	for i, count := range h.Counts {
		n += count
		end := "+Inf"
		if i < len(record.LatencyBounds) {
			end = fmt.Sprint(record.LatencyBounds[i])
		}
		fmt.Fprintf(b, "%s_bucket{%s,le=\"%s\"} %d\n", name, labels, end, n)
	}
	fmt.Fprintf(b, "%s_sum{%s} %v\n%s_count{%s} %d\n", name, labels, h.Sum, name, labels, n)
}

var escape = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)
