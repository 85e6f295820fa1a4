package observe

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/internal/plain"
	"github.com/chorus-comms/chorus/observe/record"
)

// FuzzAnswer reads anything as what a rank answers: it's refused, or can be shown.
func FuzzAnswer(f *testing.F) {
	dir := f.TempDir()
	r := record.Open(record.Settings{Entries: 8, Dir: dir}, "train", "world", 0, 2)
	r.Begin(&backend.Op{Kind: backend.Barrier}, false)
	good, err := json.Marshal(r.Rank().Live())
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
		a := Answer{Path: "train_rank_0" + record.SocketSuffix}
		a.Err = a.readLive(reply)
		if (a.Live == nil) == (a.Err == nil) {
			t.Fatalf("%v, %v", a.Live, a.Err)
		}
		twin := a
		for _, job := range Running([]Answer{a, twin, {Path: "train_rank_1" + record.SocketSuffix, Err: os.ErrDeadlineExceeded}}) {
			top := NewTop(job, job)
			text := top.String()
			if line := strings.ReplaceAll(text, "\n", ""); plain.Line(line) != line {
				t.Errorf("%q", text)
			}
			if _, err := json.Marshal(top); err != nil {
				t.Error(err)
			}
		}
	})
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
