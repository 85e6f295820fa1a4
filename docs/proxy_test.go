package docs

import (
	"archive/zip"
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"
)

// throughProxy makes a Go module proxy of files that has the module as it is in this checkout, as a release, and
// returns the environment of a first-time user. Its dependencies come from this machine's module cache, which has
// checked them, or from that cache's own proxy: a network namespace reaches no database of checksums.
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
	env := goEnv(t)
	cached := filepath.Join(env("GOMODCACHE"), "cache", "download")
	return []string{
		"GOPROXY=file://" + proxy + ",file://" + cached + "," + env("GOPROXY"), "GOSUMDB=off", "GOFLAGS=-modcacherw",
		"GOPATH=" + t.TempDir(), "GOMODCACHE=" + t.TempDir(), "GOCACHE=" + env("GOCACHE"),
	}
}

// fromClone returns an environment in which `git clone https://github.com/chorus-comms/chorus` gives this checkout as
// it is, with changes that aren't committed. The clone uses Go's caches of this checkout.
func fromClone(t *testing.T) []string {
	t.Helper()
	origin := t.TempDir()
	unpack := exec.Command("sh", "-e", "-c", `git ls-files -z | xargs -0 sh -c 'for f; do [ ! -e "$f" ] || printf "%s\0" "$f"; done' sh |
tar -c --null -T - | tar -x -C "$1"
cd "$1"
git init -q -b main
git add -A -f
git -c user.name=Chorus -c user.email=chorus@example.com commit -q -m "This checkout"`, "sh", origin)
	unpack.Dir = ".."
	if out, err := unpack.CombinedOutput(); err != nil {
		t.Skipf("left out: no git, or no checkout: %v: %s", err, out)
	}
	env := goEnv(t)
	return []string{
		"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=url." + origin + ".insteadOf",
		"GIT_CONFIG_VALUE_0=https://github.com/chorus-comms/chorus", "GOPROXY=" + refusing(t, env("GOPROXY")),
		"GOSUMDB=off", "GOFLAGS=-trimpath", "GOMODCACHE=" + env("GOMODCACHE"), "GOCACHE=" + env("GOCACHE"),
		"GOPATH=" + t.TempDir(),
		"PIP_NO_BUILD_ISOLATION=0", // as pip reads it: without; PyPI's Go needn't be fetched
	}
}

// refusing is a proxy as companies have them: it refuses modules that it doesn't have, this one among them. For others
// it names the first of this machine's proxies.
func refusing(t *testing.T, proxies string) string {
	t.Helper()
	next, _, _ := strings.Cut(strings.ReplaceAll(proxies, "|", ","), ",")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasPrefix(r.URL.Path, "/github.com/chorus-comms"):
			http.Error(w, "this module is not allowed here", http.StatusForbidden)
		case strings.Contains(next, "://"):
			http.Redirect(w, r, strings.TrimSuffix(next, "/")+r.URL.Path, http.StatusFound)
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// goEnv returns a function that tells Go's variables.
func goEnv(t *testing.T) func(name string) string {
	return func(name string) string {
		out, err := exec.Command("go", "env", name).Output()
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(out))
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
