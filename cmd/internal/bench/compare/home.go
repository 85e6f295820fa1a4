package main

import (
	"context"
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

func (h *home) torchPython() string { return filepath.Join(h.torch, "bin", "python") }

// ready has a script fetch a peer, unless it's there, and build its driver. The error ends with the last thing that it
// said.
func (h *home) ready(ctx context.Context, p *peer) error {
	if p.runs != nil {
		if err := p.runs(); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, installLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", filepath.Join(h.drivers, "install.sh"), p.name, h.dir)
	cmd.Env = append(os.Environ(), "DRIVERS="+h.drivers, "TORCH="+h.torch)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	said, err := cmd.CombinedOutput()
	if err == nil {
		return nil
	}
	lines := strings.Split(strings.TrimSpace(string(said)), "\n")
	last := lines[len(lines)-1]
	for _, line := range slices.Backward(lines) { // pip's last lines are notices
		if strings.Contains(strings.ToLower(line), "error") {
			last = line
			break
		}
	}
	return fmt.Errorf("%w: %s", err, strings.TrimSpace(last))
}
