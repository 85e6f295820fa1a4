package rendezvous

import (
	"bytes"
	"compress/gzip"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/launch/internal/process"
	"github.com/chorus-comms/chorus/observe"
	"github.com/chorus-comms/chorus/observe/record"
	"github.com/chorus-comms/chorus/store"
)

// dumpOf is the dump of a rank of three that has timed out waiting for rank 2.
func dumpOf(t testing.TB, rank int) *observe.Dump {
	t.Helper()
	dir := t.TempDir()
	r := record.Open(record.Settings{Entries: 8}, "job", "world", rank, 3)
	r.Begin(&backend.Op{Kind: backend.Barrier}, false)
	r.Failed(&backend.TimeoutError{Where: backend.Where{Comm: "world", Op: "barrier", Seq: 1, Reporter: rank},
		Attendance: backend.Attendance{Missing: []int{2}}})
	defer r.Close()
	if _, err := record.DumpAll(dir); err != nil {
		t.Fatal(err)
	}
	dumps, err := observe.ReadDir(dir, 5)
	if err != nil {
		t.Fatal(err)
	}
	return dumps[0]
}

// TestExplainAcrossNodes has three launchers, of which the last is lost, tell what their ranks have recorded: both that
// are left hear the same.
func TestExplainAcrossNodes(t *testing.T) {
	h := store.NewHash(time.Minute)
	defer h.Close()
	job := &Config{Nodes: 3, Grace: time.Minute, LostAfter: time.Minute, Monitor: time.Millisecond}
	livenessOf := func(rv *rendezvous) *liveness {
		v := &liveness{rv: rv, say: func(*process.Failure) {}}
		v.ctx, v.end = context.WithCancelCause(t.Context())
		rv.world = make([]Member, 3)
		return v
	}
	type answer struct {
		text string
		ok   bool
	}
	answers := make(chan answer)
	dumps := []*observe.Dump{dumpOf(t, 0), dumpOf(t, 1)}
	for n, d := range dumps {
		rv := newFixed(&rendezvous{job: job, Node: n, serverPos: 1, store: store.NewPrefix("p", h)}).rendezvous
		if n == 1 { // it serves
			rv.server, rv.first = new(store.TCPServer), true
		}
		rv.alive = livenessOf(rv)
		rv.alive.lose(2, "there", "its host burns")
		go func() {
			rv.publish(4, []*observe.Dump{d})
			text, ok := rv.explainAcrossNodes(4)
			answers <- answer{text, ok}
		}()
	}
	first, second := <-answers, <-answers
	if first != second || !first.ok {
		t.Errorf("told %+v and %+v", first, second)
	}
	if want := "1. no_dump: rank 2 left no dump (dead, stopped or cut off) and is missing from barrier #1 of \"world\""; !strings.HasPrefix(first.text, want) ||
		!strings.Contains(first.text, "ranks 0-1: barrier #1") {
		t.Errorf("told:\n%s\nwant\n%s", first.text, want)
	}
	gone := newFixed(&rendezvous{job: job, store: store.NewPrefix("p", h)}).rendezvous
	gone.alive = livenessOf(gone)
	gone.alive.noAnswer(context.DeadlineExceeded)
	if _, ok := gone.explainAcrossNodes(5); ok {
		t.Error("told by nobody")
	}
}

// FuzzCollect has another launcher write anything of its ranks' records: what is taken of it can be explained.
func FuzzCollect(f *testing.F) {
	packed, err := pack(dumpOf(f, 1))
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte("1"), packed)
	f.Add([]byte("1 1 7 x"), packed[:len(packed)/2])
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	z.Write([]byte(`{"chorus":{"format":1,"rank":1,"size":3}}`))
	z.Close()
	f.Add([]byte("1"), b.Bytes())
	mine := []*observe.Dump{dumpOf(f, 0)}
	f.Fuzz(func(t *testing.T, ranks, record []byte) {
		h := store.NewHash(time.Second)
		defer h.Close()
		rv := newFixed(&rendezvous{job: &Config{Nodes: 2, LostAfter: time.Second}, store: store.NewPrefix("p", h)})
		rv.publish(0, mine)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		for key, value := range map[string][]byte{"stopped/1": ranks, "record/1": record} {
			if err := rv.store.Set(ctx, attemptKey(0, key), value); err != nil {
				t.Fatal(err)
			}
		}
		dumps := rv.collect(ctx, 0)
		explain(dumps)
		for i, d := range dumps[1:] {
			if d.Chorus.Rank <= dumps[i].Chorus.Rank || d.Chorus.Size != 3 {
				t.Errorf("rank %d of %d follows rank %d", d.Chorus.Rank, d.Chorus.Size, dumps[i].Chorus.Rank)
			}
		}
	})
}
