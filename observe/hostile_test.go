package observe

import (
	"encoding/json"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/comm/backend"
)

// FuzzStatusServer asks a rank anything: it answers with a line of JSON or closes, and is there for the next.
func FuzzStatusServer(f *testing.F) {
	r := Open(Settings{Entries: 8, Dir: f.TempDir()}, "train", "world", 0, 2)
	f.Cleanup(r.Close)
	for _, line := range []string{askLive + "\n", askLive, "\n", strings.Repeat("x", 100), askProfile + " heap\n",
		askProfile + " none 5\n", askProfile + " heap -1\n"} {
		f.Add([]byte(line))
	}
	f.Fuzz(func(t *testing.T, request []byte) {
		line, _, _ := strings.Cut(string(request), "\n")
		if what := strings.Fields(line); len(what) > 0 && (what[0] == askDump || what[0] == askProfile && len(what) > 1 &&
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
		if strings.TrimSpace(line) == askLive && (len(request) < 64) && !strings.HasPrefix(answer, "{") {
			t.Errorf("%q is answered by %q", request, answer)
		}
	})
}

// FuzzAnswer reads anything as what a rank answers: it's refused, or can be shown.
func FuzzAnswer(f *testing.F) {
	dir := f.TempDir()
	r := Open(Settings{Entries: 8, Dir: dir}, "train", "world", 0, 2)
	r.Begin(&backend.Op{Kind: backend.Barrier}, false)
	good, err := json.Marshal(r.rank.Live())
	r.Close()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	for _, text := range []string{"", "null", "{}", "[]", `{"job":"x","rank":0,"size":1,"where":{}}`,
		`{"rank":0,"size":1,"where":{"ranks":[0]}}`, `{"rank":0,"size":1,"where":{"ranks":[]}}`,
		`{"rank":9,"size":10}`, `{"rank":0,"size":4611686018427387904}`,
		`{"rank":0,"size":2,"comms":[{"name":"w","rank":1,"members":[0]}]}`,
		`{"rank":0,"size":2,"comms":[{"name":"w","rank":0,"members":[0,5]}]}`,
		`{"rank":0,"size":2,"comms":[{"name":"w","rank":0,"members":[0,1],"op":"x","seq":3,"for_s":1e300,"took":[{"op":"x"}]}]}`,
		`{"rank":0,"size":1,"comms":[{"name":"\u001b[2J","rank":0,"members":[0],"ops":1,"op":"\n1. forged"}]}`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, reply []byte) {
		a := Answer{Path: "train_rank_0" + socketSuffix}
		a.Err = a.readLive(reply)
		if (a.Live == nil) == (a.Err == nil) {
			t.Fatalf("%v, %v", a.Live, a.Err)
		}
		twin := a
		for _, job := range Running([]Answer{a, twin, {Path: "train_rank_1" + socketSuffix, Err: os.ErrDeadlineExceeded}}) {
			top := NewTop(job, job)
			text := top.String()
			if strings.ContainsFunc(strings.ReplaceAll(text, "\n", ""), hidden) {
				t.Errorf("%q", text)
			}
			if _, err := json.Marshal(top); err != nil {
				t.Error(err)
			}
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
	io.WriteString(ours, askProfile+" profile 600\n")
	if got, err := io.ReadAll(ours); err != nil || len(got) == 0 {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	<-done
}

// FuzzStacks reads anything as what the runtime prints of goroutines.
func FuzzStacks(f *testing.F) {
	f.Add("goroutine 1 [running]:\nmain.load(0x1)\n\t/src/train.go:29 +0x1d\nmain.main()\n\t/src/train.go:5\n\ngoroutine 7 [chan receive, 3 minutes]:\n")
	f.Add("goroutine 1 [running]:\n(\n:\n")
	f.Add("goroutine [[]:\n\n\n:-1\n")
	f.Fuzz(func(t *testing.T, text string) {
		for _, g := range parseStacks(text) {
			for _, at := range g.frames {
				if !strings.Contains(text, at.File) || !strings.Contains(text, at.Name) {
					t.Errorf("%+v is made up", at)
				}
			}
		}
	})
}
