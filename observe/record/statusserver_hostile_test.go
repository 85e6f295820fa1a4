package record

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// FuzzStatusServer asks a rank anything: it answers with a line of JSON or closes, and is there for the next.
func FuzzStatusServer(f *testing.F) {
	r := Open(Settings{Entries: 8, Dir: f.TempDir()}, "train", "world", 0, 2)
	f.Cleanup(r.Close)
	for _, line := range []string{AskLive + "\n", AskLive, "\n", strings.Repeat("x", 100), AskProfile + " heap\n",
		AskProfile + " none 5\n", AskProfile + " heap -1\n"} {
		f.Add([]byte(line))
	}
	f.Fuzz(func(t *testing.T, request []byte) {
		line, _, _ := strings.Cut(string(request), "\n")
		if what := strings.Fields(line); len(what) > 0 && (what[0] == AskDump || what[0] == AskProfile && len(what) > 1 &&
			what[1] == "profile") {
			t.Skip("it takes its time")
		}
		ours, theirs := net.Pipe()
		done := make(chan struct{})
		go func() { defer close(done); r.rank.answer(theirs, nil) }()
		heard := make(chan string)
		go func() { b, _ := io.ReadAll(ours); heard <- string(b) }()
		ours.Write(request)
		if len(request) < 64 && !strings.Contains(string(request), "\n") {
			ours.Write([]byte("\n"))
		}
		answer := <-heard
		ours.Close()
		<-done
		if strings.TrimSpace(line) == AskLive && (len(request) < 64) && !strings.HasPrefix(answer, "{") {
			t.Errorf("%q is answered by %q", request, answer)
		}
	})
}

// TestProfileEnds asks a rank that is leaving for a profile over ten minutes: it gets what there is.
func TestProfileEnds(t *testing.T) {
	closed := make(chan struct{})
	close(closed)
	ours, theirs := net.Pipe()
	defer ours.Close()
	ours.SetDeadline(time.Now().Add(time.Minute))
	done := make(chan struct{})
	go func() { defer close(done); new(Rank).answer(theirs, closed) }()
	io.WriteString(ours, AskProfile+" profile 600\n")
	if got, err := io.ReadAll(ours); err != nil || len(got) == 0 {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	<-done
}
