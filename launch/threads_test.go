package launch

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Only a program that reads OMP_NUM_THREADS is worth a word; it's set for all.
func TestUsesOpenMP(t *testing.T) {
	dir := t.TempDir()
	script := func(name, first string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(first+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		return path
	}
	want := map[string]bool{
		script("train", "#!/usr/bin/env python3"): true,
		script("old", "#!/usr/bin/python2.7 -u"):  true,
		script("python3.12", "no binary"):         true,
		script("shell", "#!/bin/sh"):              false,
		script("text", "python3"):                 false,
		script("empty", ""):                       false,
		os.Args[0]:                                false,
		"sh":                                      false,
		"no-such-program":                         false,
	}
	if cc, err := exec.LookPath("cc"); err == nil {
		build := func(name string, args ...string) string {
			path := filepath.Join(dir, name)
			cmd := exec.Command(cc, append([]string{"-shared", "-nostdlib", "-Wl,--no-as-needed", "-x", "c", "/dev/null", "-x",
				"none", "-o", path}, args...)...)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			return path
		}
		for library, known := range map[string]bool{"libgomp.so.1": true, "libiomp5.so": true, "libopenblas64_.so.0": true,
			"libgo.so.9": false} {
			l := build(library, "-Wl,-soname,"+library)
			want[build("linked-to-"+library, l)] = known
		}
	}
	for path, yes := range want {
		if got := usesOpenMP(path); got != yes {
			t.Errorf("%s: %v", path, got)
		}
	}
}

func TestThreadsAreSaid(t *testing.T) {
	for _, test := range []struct {
		ranks       int
		script, env string
		said        bool
		value       string
	}{
		{2, "python-like", "", true, "1"},
		{1, "python-like", "", false, ""},
		{2, "python-like", "5", false, "5"},
		{2, "shell", "", false, "1"},
	} {
		path := filepath.Join(t.TempDir(), test.script)
		if err := os.WriteFile(path, []byte("#!/bin/sh\necho \"threads:$OMP_NUM_THREADS\"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		job, out, errs := newJob(t, test.ranks, "")
		job.Command = []string{path}
		job.Env = append(slices.DeleteFunc(job.Env, func(v string) bool { return strings.HasPrefix(v, "OMP_NUM_THREADS=") }),
			"OMP_NUM_THREADS="+test.env)
		if err := job.Run(t.Context()); err != nil {
			t.Fatal(err, errs)
		}
		if said := strings.Contains(errs.String(), "OMP_NUM_THREADS is set to 1"); said != test.said {
			t.Errorf("%+v: %s", test, errs)
		}
		if strings.Count(out.String(), "threads:"+test.value+"\n") != test.ranks {
			t.Errorf("%+v: %s", test, out)
		}
	}
}
