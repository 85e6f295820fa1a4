package docs

import (
	"archive/zip"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"
)

// throughProxy makes a Go module proxy of files that has the module as it is in this checkout, as a release, and
// returns the environment of one who uses it for the first time. What the module needs comes from this machine's module
// cache, which has checked it, or from where that came: a network namespace reaches no database of checksums.
func throughProxy(t *testing.T) []string {
	t.Helper()
	const module, version = "github.com/chorus-comms/chorus", "v0.1.0"
	proxy := t.TempDir()
	versions := filepath.Join(proxy, filepath.FromSlash(module), "@v")
	if err := os.MkdirAll(versions, 0o777); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{
		"list":            []byte(version + "\n"),
		version + ".info": fmt.Appendf(nil, `{"Version": %q, "Time": "2026-01-01T00:00:00Z"}`, version),
		version + ".mod":  []byte(read(t, "../go.mod")),
		version + ".zip":  zipped(t, module+"@"+version),
	} {
		if err := os.WriteFile(filepath.Join(versions, name), content, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	env := func(name string) string {
		out, err := exec.Command("go", "env", name).Output()
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(out))
	}
	cached := filepath.Join(env("GOMODCACHE"), "cache", "download")
	return []string{
		"GOPROXY=file://" + proxy + ",file://" + cached + "," + env("GOPROXY"), "GOSUMDB=off", "GOFLAGS=-modcacherw",
		"GOPATH=" + t.TempDir(), "GOMODCACHE=" + t.TempDir(), "GOCACHE=" + env("GOCACHE"),
	}
}

// zipped returns the module's files as a proxy's archive has them: those that git knows, without other modules and
// links.
func zipped(t *testing.T, prefix string) []byte {
	t.Helper()
	list := exec.Command("git", "ls-files", "-z")
	list.Dir = ".."
	out, err := list.Output()
	if err != nil {
		t.Skipf("left out: no git, or no checkout: %v", err)
	}
	files := strings.Split(strings.TrimRight(string(out), "\x00"), "\x00")
	var others []string
	for _, file := range files {
		if path.Base(file) == "go.mod" && file != "go.mod" {
			others = append(others, path.Dir(file)+"/")
		}
	}
	var archive bytes.Buffer
	w := zip.NewWriter(&archive)
next:
	for _, file := range files {
		for _, other := range others {
			if strings.HasPrefix(file, other) {
				continue next
			}
		}
		if info, err := os.Lstat(filepath.Join("..", file)); err != nil || !info.Mode().IsRegular() {
			continue
		}
		f, err := w.Create(prefix + "/" + file)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write([]byte(read(t, filepath.Join("..", file)))); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return archive.Bytes()
}
