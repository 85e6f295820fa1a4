package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// home is the harness's own folder, in which all peers live: deleting it removes them.
type home struct {
	dir     string // absolute
	drivers string // the sources, absolute
	torch   string // a Python environment with PyTorch, absolute; only read
}

const installLimit = 10 * time.Minute

func (h *home) path(parts ...string) string {
	return filepath.Join(append([]string{h.dir}, parts...)...)
}

// python is the harness's own environment, whose pip fetches the wheels.
func (h *home) python() string { return h.path("py", "bin", "python") }

func (h *home) torchPython() string { return filepath.Join(h.torch, "bin", "python") }

// do runs a command in the folder; its error ends with the last thing that the command said.
func (h *home) do(ctx context.Context, name string, args ...string) error {
	_, err := h.output(ctx, name, args...)
	return err
}

func (h *home) output(ctx context.Context, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, installLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = h.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	var out, said strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		lines := strings.Split(strings.TrimSpace(said.String()+"\n"+out.String()), "\n")
		last := ""
		for _, line := range slices.Backward(lines) { // pip's last lines are notices
			if last = strings.TrimSpace(line); strings.Contains(strings.ToLower(last), "error") {
				break
			}
		}
		return "", fmt.Errorf("%s: %w: %s", filepath.Base(name), err, last)
	}
	return out.String(), nil
}

// wheels installs packages of the Python index into a folder of their own, without what they depend on: that
// would be PyTorch again, or packages that the index doesn't have.
func (h *home) wheels(ctx context.Context, folder string, packages ...string) error {
	if _, err := os.Stat(h.python()); err != nil {
		if err := h.do(ctx, "python3", "-m", "venv", h.path("py")); err != nil {
			return err
		}
	}
	args := append([]string{"-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps", "--prefix", h.path(folder)}, packages...)
	return h.do(ctx, h.python(), args...)
}

// debs unpacks Debian packages into a folder, without installing them, for which one need not be root.
func (h *home) debs(ctx context.Context, folder string, packages ...string) error {
	for _, tool := range []string{"apt-get", "dpkg-deb"} {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("there is no %s on this system: the package comes from Debian", tool)
		}
	}
	into := h.path("debs", folder)
	if err := os.MkdirAll(into, 0o755); err != nil {
		return err
	}
	fetch := func() error {
		cmd := `cd "$0" && apt-get download -q -o APT::Sandbox::User= "$@"`
		return h.do(ctx, "sh", append([]string{"-c", cmd, into}, packages...)...)
	}
	err := fetch()
	if err != nil && os.Geteuid() == 0 { // lists that were never fetched, or are out of date
		err = errors.Join(h.do(ctx, "apt-get", "update", "-q"), fetch())
	}
	if err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(into, "*.deb"))
	for _, f := range files {
		err = errors.Join(err, h.do(ctx, "dpkg-deb", "-x", f, h.path(folder)))
	}
	return err
}

// compile builds a driver with the flags that make its own loops as fast as ours.
func (h *home) compile(ctx context.Context, compiler, source, binary string, flags ...string) error {
	if err := os.MkdirAll(filepath.Dir(h.path(binary)), 0o755); err != nil {
		return err
	}
	if !filepath.IsAbs(source) {
		source = filepath.Join(h.drivers, source)
	}
	// What a library itself depends on is found when it's loaded.
	args := append([]string{"-O3", "-march=native", "-I" + h.drivers, "-o", h.path(binary), source, "-Wl,--allow-shlib-undefined"}, flags...)
	return h.do(ctx, compiler, args...)
}

// rpath is the flag that makes a driver find libraries where they lie from it, so that the folder can be moved.
func (h *home) rpath(folders ...string) string {
	flag := "-Wl"
	for _, f := range folders {
		if rel, err := filepath.Rel(h.path("bin"), f); err == nil {
			f = "$ORIGIN/" + rel // not joined, which would take them for folders
		}
		flag += ",-rpath," + f
	}
	return flag
}

// stamp is the file that says which version of a peer is in the folder.
func (h *home) stamp(name string) string { return h.path(name + ".ok") }
