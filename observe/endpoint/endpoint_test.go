package endpoint_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/observe"
	"github.com/chorus-comms/chorus/observe/endpoint"
	"github.com/chorus-comms/chorus/observe/record"
	"github.com/chorus-comms/chorus/tensor"
)

func TestEndpoint(t *testing.T) {
	dir := t.TempDir()
	r := record.Open(record.Settings{Entries: 8, Dir: dir}, "train", `odd "name"`, 0, 2)
	defer r.Close()
	x := tensor.Of(make([]float32, 100))
	r.Begin(&backend.Op{Kind: backend.AllReduce, In: x, Out: x, Reduce: backend.Reduction{Kind: backend.SumKind}}, false)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error)
	go func() { served <- endpoint.Serve(ctx, l, func() string { return dir }) }()
	defer func() {
		stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()
	get := func(path string, status int) string {
		t.Helper()
		resp, err := http.Get("http://" + l.Addr().String() + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != status {
			t.Errorf("%s: %v, %v: %s", path, resp.Status, err, body)
		}
		return string(body)
	}
	// Two communicators may have one name, and one that's called like the second of them here; a name may stand for two
	// sets of ranks.
	var others []*record.Recorder
	for _, name := range []string{"twin", "twin", "twin#2"} {
		others = append(others, r.Split(name, 0, []int{0, 1}))
		defer others[len(others)-1].Close()
	}
	others[1].Begin(&backend.Op{Kind: backend.Barrier}, false)
	// An operation that is large enough to be timed is counted once, however often it's queried.
	large := tensor.Of(make([]float32, 1<<16))
	long := backend.Op{Kind: backend.Broadcast, In: large, Out: large}
	timed := r.Split("timed", 0, []int{0, 1})
	defer timed.Close()
	timed.Begin(&long, false)
	long.Seq = 1
	timed.Done(&long)
	get("/metrics", 200)
	text := get("/metrics", 200)
	samples := map[string]bool{}
	for l := range strings.Lines(text) {
		name, _, _ := strings.Cut(l, "} ")
		if !strings.HasPrefix(l, "#") && samples[name] {
			t.Errorf("a sample stands there twice: %s", l)
		}
		samples[name] = true
	}
	for _, want := range []string{
		`chorus_up{job="train",rank="0"} 1`,
		`chorus_operations_total{job="train",rank="0",comm="odd \"name\""} 1`,
		`chorus_bytes_total{job="train",rank="0",comm="odd \"name\""} 400`,
		`chorus_collective{job="train",rank="0",comm="odd \"name\""} 1`,
		`chorus_operations_total{job="train",rank="0",comm="twin"} 0`,
		`chorus_operation_duration_seconds_bucket{job="train",rank="0",comm="timed",op="broadcast",le="+Inf"} 1`,
		`chorus_operation_duration_seconds_count{job="train",rank="0",comm="timed",op="broadcast"} 1`,
		`chorus_operations_total{job="train",rank="0",comm="twin#2"} 1`,
		`chorus_operations_total{job="train",rank="0",comm="twin#2#2"} 0`,
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("%s is missing in\n%s", want, text)
		}
	}
	if problems, err := promlint.New(strings.NewReader(text)).Lint(); err != nil || len(problems) > 0 {
		t.Errorf("Prometheus' own parser and rules: %v, %v", problems, err)
	}
	dashboard, err := os.ReadFile("../../docs/grafana.json")
	if err != nil {
		t.Fatal(err)
	}
	queries := regexp.MustCompile(`"expr": ".*\b(chorus_\w+)\{`).FindAllStringSubmatch(string(dashboard), -1)
	if len(queries) < 6 {
		t.Errorf("the dashboard has %d queries of ours", len(queries))
	}
	for _, q := range queries {
		if family := strings.TrimSuffix(q[1], "_bucket"); !strings.Contains(text, "# TYPE "+family+" ") {
			t.Errorf("the dashboard asks for %s, which nobody serves", family)
		}
	}
	if got := get("/ranks", 200); !strings.Contains(got, `"op":"all_reduce(float32[100], sum)"`) {
		t.Errorf("/ranks: %s", got)
	}
	if got := get("/rank/0/pprof/heap", 200); len(got) < 100 {
		t.Errorf("a heap profile of %d bytes", len(got))
	}
	get("/rank/1/pprof/heap", 404)
	get("/rank/x/pprof/heap", 404)
	get("/rank/0/pprof/none", 404)
}

// TestLive asks whether ranks are alive, as the liveness probe of a pod does: before there are any, while one runs,
// beside one that has died, and beside one that takes requests and doesn't answer.
func TestLive(t *testing.T) {
	dir := t.TempDir()
	h := endpoint.Handler(func() string { return dir })
	live := func(status int, want string) {
		t.Helper()
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/live", nil))
		if w.Code != status || w.Body.String() != want {
			t.Errorf("status %d, %q; want %d, %q", w.Code, w.Body, status, want)
		}
	}
	live(200, "0 ranks answer\n")
	defer record.Open(record.Settings{Entries: 8, Dir: dir}, "train", "world", 0, 3).Close()
	live(200, "1 ranks answer\n")
	socket := func(rank int) *net.UnixListener {
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, record.FileName("train", rank)+record.SocketSuffix)})
		if err != nil {
			t.Fatal(err)
		}
		l.SetUnlinkOnClose(false)
		return l
	}
	socket(1).Close()
	live(200, "1 ranks answer\n")
	l := socket(2)
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.Close()
		}
	}()
	live(503, "rank 2 does not answer: it's stopped, or stuck in the kernel\n")
}

// TestPage writes the page of a job that is stuck, in which what programs have named can't break out of the script.
func TestPage(t *testing.T) {
	r := record.Open(record.Settings{Entries: 8, Dir: t.TempDir()}, "train", "</script>", 0, 2)
	defer r.Close()
	r.Begin(&backend.Op{Kind: backend.Barrier}, false)
	dir := t.TempDir()
	if _, err := record.DumpAll(dir); err != nil {
		t.Fatal(err)
	}
	dumps, err := observe.ReadDir(dir, 0)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := endpoint.WritePage(&b, dumps, []observe.Silent{{Rank: 1, State: "stopped"}}); err != nil {
		t.Fatal(err)
	}
	for part, n := range map[string]int{`"kind":"no_dump"`: 1, `"op":"barrier"`: 2,
		`"silent":[{"rank":1,"dead":false,"state":"stopped"}]`: 1, "</script>": 1, "/*given*/": 0} {
		if got := strings.Count(b.String(), part); got != n {
			t.Errorf("%q stands there %d times, not %d", part, got, n)
		}
	}
}

// TestPageFaces demands that the page is light and dark by its reader's system, and no wider than a phone: colours are
// variables, which both schemes set, and columns are places in a row's lines there.
func TestPageFaces(t *testing.T) {
	var b strings.Builder
	if err := endpoint.WritePage(&b, nil, nil); err != nil {
		t.Fatal(err)
	}
	page := b.String()
	_, style, _ := strings.Cut(page, "<style>")
	style, script, _ := strings.Cut(style, "</style>")
	if !strings.Contains(page, `<meta name="viewport" content="width=device-width, initial-scale=1">`) {
		t.Error("a phone would shrink the page")
	}

	schemes := regexp.MustCompile(`:root \{([^}]*)\}`).FindAllStringSubmatch(style, -1)
	if len(schemes) != 2 || !strings.Contains(style, "@media (prefers-color-scheme: dark) {\n\t\t:root {") {
		t.Fatalf("%d sets of colours", len(schemes))
	}
	set := regexp.MustCompile(`(--[a-z-]+): (#[0-9a-f]+)`)
	light, dark := map[string]string{}, map[string]string{}
	for _, m := range set.FindAllStringSubmatch(schemes[0][1], -1) {
		light[m[1]] = m[2]
	}
	for _, m := range set.FindAllStringSubmatch(schemes[1][1], -1) {
		dark[m[1]] = m[2]
	}
	for name, color := range light {
		if dark[name] == "" || dark[name] == color {
			t.Errorf("%s is %q in the dark, %s in the light", name, dark[name], color)
		}
		if !strings.Contains(style, "var("+name+")") {
			t.Errorf("nothing has the colour %s", name)
		}
	}
	rest := strings.ReplaceAll(strings.ReplaceAll(style, schemes[0][0], ""), schemes[1][0], "")
	if fixed := regexp.MustCompile(`#[0-9a-f]{3,6}\b|rgba?\(`).FindAllString(rest+script, -1); fixed != nil {
		t.Errorf("colours that are none of the two schemes': %v", fixed)
	}
	for _, m := range regexp.MustCompile(`var\((--[a-z-]+)\)`).FindAllStringSubmatch(rest+script, -1) {
		if light[m[1]] == "" {
			t.Errorf("no scheme sets %s", m[1])
		}
	}

	if wide := regexp.MustCompile(`[^-]\b(min-)?width: *\d*[2-9]\dr?em|[^-]\b(min-)?width: *([4-9]\d\d|\d{4,})px`).
		FindAllString(rest, -1); wide != nil {
		t.Errorf("wider than a phone: %v", wide)
	}
	_, phone, _ := strings.Cut(style, "@media (max-width:")
	for _, column := range []string{"rank", "op", "for", "at"} {
		if !strings.Contains(phone, "td."+column) || !regexp.MustCompile(`"`+column+`( n)?"\]`).MatchString(script) {
			t.Errorf("a phone's rows have no place for the column %s", column)
		}
	}
}
