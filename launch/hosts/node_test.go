package hosts

import (
	"bufio"
	"bytes"
	"encoding/json"
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
