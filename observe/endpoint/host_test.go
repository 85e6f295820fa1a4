package endpoint

import (
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/chorus-comms/chorus/observe"
)

// TestHosts asks under names that a browser might have been led here by.
func TestHosts(t *testing.T) {
	own, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(named(Handler(t.TempDir), []string{"node7.cluster"}))
	defer s.Close()
	port := s.URL[strings.LastIndexByte(s.URL, ':'):]
	for host, status := range map[string]int{
		"127.0.0.1" + port: 200, "127.0.0.1": 200, "localhost" + port: 200, "LocalHost.": 200, "job.localhost" + port: 200,
		own + port: 200, "node7.cluster:9400": 200, "NODE7.cluster": 200,
		"evil.example" + port: 421, "evil.example": 421, "127.0.0.2" + port: 421, "[::1]" + port: 421,
		"localhost.evil.example": 421, "xlocalhost": 421, "cluster": 421, "127.0.0.1.evil.example": 421,
	} {
		for _, path := range []string{"/", "/metrics", "/ranks"} {
			req, err := http.NewRequest("GET", s.URL+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Host = host
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != status {
				t.Errorf("%s at %q: %d, want %d", path, host, resp.StatusCode, status)
			}
		}
	}
	req := httptest.NewRequest("GET", "/", nil) // HTTP/1.0 has no name
	req.Host = ""
	w := httptest.NewRecorder()
	named(Handler(t.TempDir), nil).ServeHTTP(w, req)
	if w.Code != 421 {
		t.Errorf("without a name: %d", w.Code)
	}
	if isAddress("::ffff:127.0.0.1", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}) != true {
		t.Error("the same address in another form isn't known")
	}
}

// FuzzMetrics shows what ranks may be called: each line is a comment or a sample, as Prometheus reads them.
func FuzzMetrics(f *testing.F) {
	f.Add("world", "all_reduce")
	f.Add("x\"} 1\nforged{a=\"", "\x00\r\n\\")
	f.Fuzz(func(t *testing.T, name, op string) {
		l := &observe.Live{Job: op, Size: 1, Comms: []observe.LiveComm{{Name: name, Members: []int{0}, Op: op,
			Took: []observe.Latency{{Op: op}}}}}
		for line := range strings.Lines(string(metrics(observe.NewTop(nil, []observe.Answer{{Live: l}})))) {
			if !strings.HasPrefix(line, "# ") && !strings.HasPrefix(line, "chorus_") {
				t.Errorf("%q", line)
			}
		}
	})
}
