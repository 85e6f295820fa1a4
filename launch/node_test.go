package launch

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"
)

// TestOrders gives a launcher orders that lack something, or say what none do.
func TestOrders(t *testing.T) {
	for want, change := range map[string]func(*Orders){
		"the orders name no program":        func(o *Orders) { o.Program = nil },
		"name no program":                   func(o *Orders) { o.Program = []string{""} },
		"the orders are for node 0 of 0":    func(o *Orders) { o.Nodes = 0 },
		"the orders are for node 2 of 2":    func(o *Orders) { o.Node = 2 },
		"the orders are for node -1 of 2":   func(o *Orders) { o.Node = -1 },
		"of 100000000":                      func(o *Orders) { o.Nodes = 100_000_000 },
		"the orders name no directory":      func(o *Orders) { o.Dir = "" },
		"the orders say that 0s of silence": func(o *Orders) { o.LostAfter = 0 },
	} {
		o := &Orders{Nodes: 2, Dir: t.TempDir(), Program: []string{"true"}, LostAfter: time.Second}
		change(o)
		data, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		_, err = readOrders(bufio.NewReader(bytes.NewReader(appendFrame(nil, frameOrders, data))))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	for _, text := range []string{"null", "{}", "[]", `{"Program":1}`, ""} {
		_, err := readOrders(bufio.NewReader(bytes.NewReader(appendFrame(nil, frameOrders, []byte(text)))))
		if err == nil || !strings.Contains(err.Error(), "orders") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestPlainMessages shows what a launcher and ssh say with characters that move a cursor.
func TestPlainMessages(t *testing.T) {
	var out bytes.Buffer
	c := &console{out: &out, err: &out}
	c.printf("a\x1b[2Jb\n\n%s", "c\x1b]0;title\a")
	l := &lineWriter{console: c, w: &out, prefix: "chorus: host: ", foreign: true}
	io.WriteString(l, "ssh: \x1b[31mno\n\x9bmore")
	l.close()
	want := `chorus: a\x1b[2Jb` + "\n" + `chorus: c\x1b]0;title\a` + "\n" + `chorus: host: ssh: \x1b[31mno` + "\n" +
		`chorus: host: \x9bmore` + "\n"
	if out.String() != want {
		t.Errorf("got  %q\nwant %q", out.String(), want)
	}
}
