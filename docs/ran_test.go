package docs

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/chorus-comms/chorus/internal/testutil"
)

// TestWhatRan holds the table of clusters.md to testutil.Things. With CHORUS_TEST_WRITE=1 and the file that
// CHORUS_TEST_RAN names it writes the table: scripts/what-ran.sh does so.
func TestWhatRan(t *testing.T) {
	const page, name, head = "clusters.md", "what ran", "| what | version | by | outcome |\n|---|---|---|---|\n"
	if path := os.Getenv(testutil.RanVar); path != "" && os.Getenv("CHORUS_TEST_WRITE") != "" {
		runs, err := readRuns(path)
		if err != nil {
			t.Fatal(err)
		}
		testutil.CheckDocTables(t, page, map[string]string{name: head + ranTable(runs)})
	}
	_, rest, _ := strings.Cut(read(t, page), "<!-- table: "+name+" -->\n")
	table, _, _ := strings.Cut(rest, "<!-- end of table -->")
	rows, ok := strings.CutPrefix(table, head)
	if !ok {
		t.Fatalf("%s has no table with this head:\n%s", page, head)
	}
	var things []string
	for row := range strings.Lines(rows) {
		cells := strings.Split(strings.Trim(row, "|\n"), "|")
		if len(cells) != 4 {
			t.Fatalf("%d cells: %s", len(cells), row)
		}
		thing, version, outcome := strings.TrimSpace(cells[0]), strings.TrimSpace(cells[1]), strings.TrimSpace(cells[3])
		things = append(things, thing)
		if outcome != "passed" && outcome != "left out" || (version == "") != (outcome == "left out") {
			t.Errorf("%s %s: %s", thing, version, outcome)
		}
	}
	if !slices.Equal(things, testutil.Things) {
		t.Errorf("the table has %q, and the tests run %q", things, testutil.Things)
	}
}

// TestWhatRanTable makes a table of runs of which some have failed or were left out.
func TestWhatRanTable(t *testing.T) {
	got := ranTable([]testutil.Run{
		{Thing: "Slurm", Version: "22.05.8", Test: "TestSlurm", Outcome: "passed"},
		{Thing: "Slurm", Version: "22.05.8", Test: "TestOneProgram/two_nodes_of_Slurm", Outcome: "passed"},
		{Thing: "etcd", Version: "3.7.3", Test: "TestMemberKilled", Outcome: "failed"},
		{Thing: "etcd", Version: "3.7.3", Test: "TestMemberKilled", Outcome: "passed"},
		{Thing: "Ray", Test: "TestOneProgram/two_nodes_of_Ray", Outcome: "left out"},
	})
	for _, want := range []string{"| Slurm | 22.05.8 | TestOneProgram, TestSlurm | passed |\n", "| Ray | | | left out |\n",
		"| etcd | 3.7.3 | TestMemberKilled | failed |\n", "| UCX | | | left out |\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if n := strings.Count(got, "\n"); n != len(testutil.Things) {
		t.Errorf("%d rows", n)
	}
}

func readRuns(path string) (all []testutil.Run, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(text)) {
		var r testutil.Run
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			return nil, fmt.Errorf("%s: %w: %s", path, err, line)
		}
		if !slices.Contains(testutil.Things, r.Thing) {
			return nil, fmt.Errorf("%s: testutil.Things has no %q", path, r.Thing)
		}
		all = append(all, r)
	}
	return all, nil
}

// ranTable has a row for each thing: its versions, the tests that ran it, and whether all passed.
func ranTable(runs []testutil.Run) string {
	var b strings.Builder
	for _, thing := range testutil.Things {
		var versions, tests []string
		outcome := "left out"
		for _, r := range runs {
			if r.Thing != thing || r.Outcome == "left out" {
				continue
			}
			test := r.Test
			if strings.HasPrefix(test, "Test") {
				test, _, _ = strings.Cut(test, "/")
			}
			versions, tests = append(versions, r.Version), append(tests, test)
			if outcome != "failed" {
				outcome = r.Outcome
			}
		}
		cells := []string{thing}
		for _, all := range [][]string{versions, tests} {
			slices.Sort(all)
			cells = append(cells, strings.Join(slices.Compact(all), ", "))
		}
		for _, cell := range append(cells, outcome) {
			fmt.Fprint(&b, strings.TrimRight("| "+cell, " "), " ")
		}
		b.WriteString("|\n")
	}
	return b.String()
}
