package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPages writes the pages of this module.
func TestPages(t *testing.T) {
	into := t.TempDir()
	gone := filepath.Join(into, "go", "gone.md")
	if err := os.MkdirAll(filepath.Dir(gone), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(gone, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := run("../..", into); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(gone); err == nil {
		t.Error("the page of a package that is no more is still there")
	}
	for page, wants := range map[string][]string{
		"index.md": {"| [comm/backend](comm/backend.md) | ", "| [chorus](chorus.md) | "},
		"comm.md": {
			"# comm\n", "import \"github.com/chorus-comms/chorus/comm\"",
			"\"the source\") {#Comm.AllReduce}", "blob/main/comm/", `??? example "Example`,
			"{#New}", `<a id="Sum"></a>`, "Output:",
		},
		"chorus.md":       {"(comm.md)", "(comm/backend.md)"},
		"comm/backend.md": {`<a id="Backend.Submit"></a>`, "type Backend interface {"},
		"device/cpu.md":   {"(driver.md#Memory)"},
	} {
		text, err := os.ReadFile(filepath.Join(into, "go", filepath.FromSlash(page)))
		if err != nil {
			t.Error(err)
			continue
		}
		for _, want := range wants {
			if !strings.Contains(string(text), want) {
				t.Errorf("%s lacks %q", page, want)
			}
		}
	}
	for _, none := range []string{"internal", "cmd", "examples", "docs.md", "capi.md"} {
		if _, err := os.Stat(filepath.Join(into, "go", none)); err == nil {
			t.Errorf("there is a page of %s, which no program imports", none)
		}
	}
}
