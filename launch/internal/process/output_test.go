package process

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func writeLines(prefix string, chunks ...string) string {
	var b bytes.Buffer
	l := &LineWriter{Console: &Console{}, W: &b, Prefix: prefix}
	for _, c := range chunks {
		l.Write([]byte(c))
	}
	l.Close()
	return b.String()
}

func TestLines(t *testing.T) {
	for _, test := range []struct {
		chunks []string
		want   string
	}{
		{[]string{""}, ""},
		{[]string{"a\n"}, ">a\n"},
		{[]string{"a"}, ">a\n"},
		{[]string{"\n\n"}, ">\n>\n"},
		{[]string{"a", "b\nc", "", "d"}, ">ab\n>cd\n"},
		{[]string{"a\r\nb\r", "\nc\r"}, ">a\n>b\n>c\n"},
		{[]string{"10%\r20%\r30%\n"}, ">10%\n>20%\n>30%\n"},
		{[]string{"a\r\r\n"}, ">a\n>\n"},
		{[]string{strings.Repeat("x", maxLine+5), "\n"}, ">" + strings.Repeat("x", maxLine) + "\n>xxxxx\n"},
	} {
		if got := writeLines(">", test.chunks...); got != test.want {
			t.Errorf("%.40q: got %.40q, want %.40q", test.chunks, got, test.want)
		}
	}
}

// TestLinesDoNotDependOnChunks cuts a text at random places.
func TestLinesDoNotDependOnChunks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOfN(rapid.SampledFrom([]rune("ab\r\n")), 0, 60, -1).Draw(t, "text")
		var chunks []string
		for rest := text; rest != ""; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "cut")
			chunks = append(chunks, rest[:n])
			rest = rest[n:]
		}
		want := ""
		if s := strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\r", "\n"); s != "" {
			for line := range strings.SplitSeq(strings.TrimSuffix(s, "\n"), "\n") {
				want += "[7]: " + line + "\n"
			}
		}
		if got := writeLines("[7]: ", chunks...); got != want {
			t.Fatalf("%q: got %q, want %q", chunks, got, want)
		}
	})
}

// slowWriter writes byte by byte, as a console may.
type slowWriter struct{ b bytes.Buffer }

func (w *slowWriter) Write(p []byte) (int, error) {
	for _, c := range p {
		w.b.WriteByte(c)
	}
	return len(p), nil
}

func TestLinesOfRanksDoNotMix(t *testing.T) {
	var w slowWriter
	c := &Console{Out: &w, Err: &w}
	var wg sync.WaitGroup
	for rank := range 8 {
		l := &LineWriter{Console: c, W: &w, Prefix: fmt.Sprintf("[%d]: ", rank)}
		wg.Go(func() {
			for i := range 100 {
				fmt.Fprintf(l, "%d says", rank)
				fmt.Fprintf(l, " %d\n", i)
				c.Printf("a word of\nthe launcher")
			}
			l.Close()
		})
	}
	wg.Wait()
	next := make([]int, 8)
	for line := range strings.Lines(w.b.String()) {
		var rank, again, i int
		if line == "chorus: a word of\n" || line == "chorus: the launcher\n" {
			continue
		}
		if _, err := fmt.Sscanf(line, "[%d]: %d says %d\n", &rank, &again, &i); err != nil || rank != again ||
			next[rank] != i {
			t.Fatalf("broken line %q", line)
		}
		next[rank]++
	}
	if slices.Min(next) != 100 {
		t.Errorf("lines of each rank: %v", next)
	}
}

func TestTail(t *testing.T) {
	var l Tail
	for i := range 30 {
		fmt.Fprintf(&l, "line %d\r\n", i)
	}
	fmt.Fprint(&l, "bad \xff, ", strings.Repeat("z", 2*tailWidth))
	got := l.Last()
	if len(got) != tailLines || got[0] != "line 11" || !strings.HasPrefix(got[19], "bad ?, zz") ||
		!strings.HasSuffix(got[19], "z...") {
		t.Errorf("%q", got)
	}
}

func TestErrorFiles(t *testing.T) {
	for text, want := range map[string]string{
		`{"message": {"message": "ValueError: x\n", "extraInfo": {"timestamp": "1"}}}`: "ValueError: x",
		`{"message": "plain"}`: "plain",
		`{"message": 3}`:       "", `{}`: "", `[`: "", ``: "", `null`: "", `{"message": {"message": {}}}`: "",
	} {
		if got := parseErrorFile([]byte(text)); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

func FuzzErrorFile(f *testing.F) {
	f.Add([]byte(`{"message": {"message": "x", "extraInfo": {"timestamp": "1"}}}`))
	f.Add([]byte(`{"message": "plain"}`))
	f.Add([]byte(`{"message": [{}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if parseErrorFile(data) != "" && !json.Valid(data) {
			t.Error("a message from what is not JSON")
		}
	})
}

func TestFailureTexts(t *testing.T) {
	for want, f := range map[string]Failure{
		"rank 3 (local rank 1, pid 7 on h) exited with status 2, 1.5s after its start":                                                 {Kind: Exited, ExitStatus: 2},
		"rank 3 (local rank 1, pid 7 on h) was killed by SIGSEGV (core dumped), 1.5s after its start":                                  {Kind: Signaled, Signal: syscall.SIGSEGV, CoreDumped: true},
		"rank 3 (local rank 1, pid 7 on h) was killed by SIGKILL (by hand, or by the kernel for want of memory), 1.5s after its start": {Kind: Signaled, Signal: syscall.SIGKILL},
		"rank 3 (local rank 1, pid 7 on h) was killed by signal 40, 1.5s after its start":                                              {Kind: Signaled, Signal: 40},
		"rank 3 (local rank 1 on h) could not be started: why":                                                                         {Kind: NotStarted, Reason: "why"},
		"the launcher of node 1 (h) received SIGINT":                                                                                   {Kind: Interrupted, Signal: syscall.SIGINT},
		"node 1 (h) is lost: why": {Kind: NodeLost, Reason: "why"},
	} {
		f.Rank, f.LocalRank, f.Pid, f.Node, f.Host, f.After = 3, 1, 7, 1, "h", 1500*time.Millisecond
		if got := f.Error(); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		// Another node reads exactly the failure that one node publishes.
		text, err := json.Marshal(f)
		again := new(Failure)
		err = errors.Join(err, json.Unmarshal(text, again))
		if err != nil || again.Error() != want || again.Code() != f.Code() {
			t.Errorf("%s became %s: %v", want, again, err)
		}
	}
}

// TestPlainMessages shows what a launcher and ssh say with characters that move a cursor.
func TestPlainMessages(t *testing.T) {
	var out bytes.Buffer
	c := &Console{Out: &out, Err: &out}
	c.Printf("a\x1b[2Jb\n\n%s", "c\x1b]0;title\a")
	l := &LineWriter{Console: c, W: &out, Prefix: "chorus: host: ", Foreign: true}
	io.WriteString(l, "ssh: \x1b[31mno\n\x9bmore")
	l.Close()
	want := `chorus: a\x1b[2Jb` + "\n" + `chorus: c\x1b]0;title\a` + "\n" + `chorus: host: ssh: \x1b[31mno` + "\n" +
		`chorus: host: \x9bmore` + "\n"
	if out.String() != want {
		t.Errorf("got  %q\nwant %q", out.String(), want)
	}
}
