package calibration

import (
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/chorus-comms/chorus/plan"
)

// entry is a calibration for so many ranks that differs from the default.
func entry(ranks int) Entry {
	m := plan.DefaultMachine()
	m.Sync = float64(ranks) * 1e-7
	return Entry{Ranks: ranks, Date: "2026-11-21T12:00:00Z", Placement: "near", Measured: []string{"sync_s"}, Machine: m}
}

func TestStoreAndLookup(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "calibration.json")
	for _, ranks := range []int{4, 2, 8, 2} {
		if err := Store(path, entry(ranks)); err != nil {
			t.Fatal(err)
		}
	}
	all, err := Read(path)
	if diff := cmp.Diff([]Entry{entry(2), entry(4), entry(8)}, all); diff != "" || err != nil {
		t.Errorf("%v\n%s", err, diff)
	}
	got, err := Lookup(path, 4)
	if diff := cmp.Diff(entry(4), got); diff != "" || err != nil {
		t.Errorf("%v\n%s", err, diff)
	}
	if _, err := Lookup(path, 3); !errors.Is(err, ErrUnusable) || !strings.Contains(err.Error(),
		"nothing for 3 ranks, only for 2, 4, 8") {
		t.Errorf("%v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "*")); len(left) != 1 {
		t.Errorf("left behind: %v", left)
	}
}

// TestUnusable reads files that must not be used; each error says why, and how to get a good one.
func TestUnusable(t *testing.T) {
	good, err := json.Marshal(file{Version: Version, Host: Here(), Entries: []Entry{entry(2)}})
	if err != nil {
		t.Fatal(err)
	}
	change := func(old, with string) string {
		if !strings.Contains(string(good), old) {
			t.Fatalf("no %s in %s", old, good)
		}
		return strings.Replace(string(good), old, with, 1)
	}
	for name, test := range map[string]struct{ text, says string }{
		"truncated":        {string(good[:len(good)/2]), "not a calibration"},
		"another document": {`{"rows":[]}`, "not a calibration"},
		"an older version": {change(`"version":1`, `"version":0`), "version 0 of the format"},
		"a newer version":  {`{"version":2,"values":{}}`, "version 2 of the format"},
		"another host":     {change(`"cores":`, `"cores":1`), "measured on"},
		"no entries":       {change(`"entries":[`, `"entries":[],"was":[`), "damaged"},
		"empty":            {`{"version":1,"host":` + string(must(json.Marshal(Here()))) + `,"entries":[]}`, "empty"},
		"a negative time":  {change(`"sync_s":`, `"sync_s":-`), "sync_s"},
		"a rate of zero":   {change(`"copy_bytes_per_s":50000000000`, `"copy_bytes_per_s":0`), "copy_bytes_per_s"},
		"no ranks":         {change(`"ranks":2`, `"ranks":0`), "0 ranks"},
		"an unknown field": {change(`"sync_s":`, `"snyc_s":`), "damaged"},
		"too much":         {string(good) + strings.Repeat(" ", mostBytes), "more than"},
	} {
		path := filepath.Join(t.TempDir(), "calibration.json")
		if err := os.WriteFile(path, []byte(test.text), 0o644); err != nil {
			t.Fatal(err)
		}
		_, err := Lookup(path, 2)
		if !errors.Is(err, ErrUnusable) || !strings.Contains(err.Error(), test.says) || !strings.Contains(err.Error(),
			"--calibrate") {
			t.Errorf("%s: %v", name, err)
		}
		// Measuring anew replaces what can't be used, but nothing that never was a calibration.
		if test.says == "not a calibration" {
			if err := Store(path, entry(2)); err == nil {
				t.Errorf("%s was replaced", name)
			}
			continue
		}
		if err := Store(path, entry(2)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := Lookup(path, 2); err != nil {
			t.Errorf("%s: after it was measured anew: %v", name, err)
		}
	}
	if _, err := Lookup(filepath.Join(t.TempDir(), "none"), 2); !errors.Is(err, ErrUnusable) ||
		!strings.Contains(err.Error(), "no such file") {
		t.Errorf("%v", err)
	}
	bad := entry(2)
	bad.Machine.Copy = math.NaN()
	if err := Store(filepath.Join(t.TempDir(), "bad"), bad); err == nil {
		t.Error("a rate that is no number was stored")
	}
}

func must(b []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return b
}

func TestPath(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", "/cache")
	for setting, want := range map[string]string{"": "", "off": "", "on": "/cache/chorus/calibration-" + Here().Name +
		".json", "/a/b.json": "/a/b.json"} {
		if got, err := Path(setting); got != want || err != nil {
			t.Errorf("%q: %q, %v", setting, got, err)
		}
	}
	t.Setenv("XDG_CACHE_HOME", "")
	t.Setenv("HOME", "")
	if path, err := Path("on"); err == nil {
		t.Errorf("without a home: %q", path)
	}
}

// FuzzParse demands that whatever a file holds, what is accepted can be used.
func FuzzParse(f *testing.F) {
	good, err := json.Marshal(file{Version: Version, Host: Here(), Entries: []Entry{entry(2), entry(3)}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(`{"version":1}`))
	here := Here()
	f.Fuzz(func(t *testing.T, text []byte) {
		all, err := parse(text, here)
		if err == nil && len(all) == 0 {
			t.Fatal("nothing was accepted")
		}
		for _, e := range all {
			if err := e.Machine.Validate(); err != nil {
				t.Fatal(err)
			}
		}
	})
}
