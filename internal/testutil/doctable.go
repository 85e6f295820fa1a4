package testutil

import (
	"os"
	"strings"
	"testing"
)

// CheckDocTables demands that a page has these tables, by their names. With CHORUS_TEST_WRITE=1 it writes them. In the
// page they stand between comments:
//
//	<!-- table: reductions -->
//	| elements | reductions |
//	...
//	<!-- end of table -->
func CheckDocTables(t *testing.T, page string, tables map[string]string) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	got := string(text)
	for name, table := range tables {
		begin, end := "<!-- table: "+name+" -->\n", "<!-- end of table -->"
		before, rest, ok := strings.Cut(got, begin)
		_, after, closed := strings.Cut(rest, end)
		if !ok || !closed {
			t.Fatalf("%s has no table %s", page, name)
		}
		got = before + begin + table + end + after
	}
	if got == string(text) {
		return
	}
	if os.Getenv("CHORUS_TEST_WRITE") == "" {
		t.Fatalf("the tables of %s are others: CHORUS_TEST_WRITE=1 go test -run %s in this directory", page, t.Name())
	}
	if err := os.WriteFile(page, []byte(got), 0o600); err != nil {
		t.Fatal(err)
	}
}
