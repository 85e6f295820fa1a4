package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestReport reads what go test says of a package that passes, one that fails and one that doesn't compile.
func TestReport(t *testing.T) {
	const said = `{"Action":"run","Package":"a","Test":"TestFine"}
{"Action":"output","Package":"a","Test":"TestFine","Output":"    a_test.go:3: nobody reads this\n"}
{"Action":"pass","Package":"a","Test":"TestFine"}
{"Action":"output","Package":"a","Test":"TestOut","Output":"=== RUN   TestOut\n"}
{"Action":"output","Package":"a","Test":"TestOut","Output":"    a_test.go:9: left out: no ip\n"}
{"Action":"output","Package":"a","Test":"TestOut","Output":"--- SKIP: TestOut (0.00s)\n"}
{"Action":"skip","Package":"a","Test":"TestOut"}
{"Action":"output","Package":"a","Test":"TestOut/too","Output":"    a_test.go:19: no ip\n"}
{"Action":"skip","Package":"a","Test":"TestOut/too"}
{"Action":"output","Package":"a","Output":"PASS\n"}
{"Action":"output","Package":"a","Output":"ok  \ta\t0.2s\n"}
{"Action":"pass","Package":"a"}
{"Action":"output","Package":"b","Test":"TestBad","Output":"    b_test.go:3: three isn't four\n"}
{"Action":"fail","Package":"b","Test":"TestBad"}
{"Action":"output","Package":"b","Output":"panic: oh\n"}
{"Action":"output","Package":"b","Test":"TestOpen","Output":"panic: index out of range\n"}
{"Action":"output","Package":"b","Output":"FAIL\tb\t0.2s\n"}
{"Action":"fail","Package":"b"}
{"Action":"output","Package":"c","Output":"?   \tc\t[no test files]\n"}
{"Action":"skip","Package":"c"}
{"ImportPath":"d","Action":"build-output","Output":"d.go:1: no\n"}
go: something else
`
	r := report{said: map[name][]string{}, left: map[string][]name{}}
	var out strings.Builder
	if err := r.read(strings.NewReader(said), &out); err != nil {
		t.Fatal(err)
	}
	if want := "ok  \ta\t0.2s\n    b_test.go:3: three isn't four\nFAIL\tb\t0.2s\npanic: oh\npanic: index out of range\nd.go:1: no\ngo: something else\n"; out.String() != want {
		t.Errorf("it shows\n%s", out.String())
	}
	if !r.failed {
		t.Error("nothing has failed")
	}
	file := filepath.Join(t.TempDir(), "left-out")
	for range 2 {
		if err := r.append(file); err != nil {
			t.Fatal(err)
		}
	}
	left, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if want := strings.Repeat("left out: no ip: 2 tests, such as TestOut of a\n", 2); string(left) != want {
		t.Errorf("left out are\n%s", left)
	}
}
