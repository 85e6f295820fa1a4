package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// found says of a peer whether it can be measured.
type found struct {
	Peer    string `json:"peer"`
	Title   string `json:"title"`
	Skipped string `json:"skipped,omitempty"` // why it's not measured
}

// installPeers makes the named peers ready, one after another, and says of each whether it is.
func installPeers(ctx context.Context, h *home, names []string, log io.Writer) ([]found, error) {
	if err := os.MkdirAll(h.dir, 0o755); err != nil {
		return nil, err
	}
	var all []found
	for i := range peers {
		p := &peers[i]
		f := found{Peer: p.name, Title: p.title}
		if !slices.Contains(names, p.name) {
			f.Skipped = "not asked for"
			all = append(all, f)
			continue
		}
		start := time.Now()
		if err := h.ready(ctx, p); err != nil {
			if ctx.Err() != nil {
				return all, ctx.Err()
			}
			f.Skipped = err.Error()
			fmt.Fprintf(log, "%-10s skipped: %v\n", p.name, err)
		} else {
			fmt.Fprintf(log, "%-10s ready in %.0f s: %s\n", p.name, time.Since(start).Seconds(), p.title)
		}
		all = append(all, f)
	}
	return all, nil
}

// ready fetches a peer unless it's there, and builds its driver anew if a source is newer.
func (h *home) ready(ctx context.Context, p *peer) error {
	if p.runs != nil {
		if err := p.runs(); err != nil {
			return err
		}
	}
	if _, err := os.Stat(h.stamp(p.name)); err != nil {
		if err := p.install(ctx, h); err != nil {
			return err
		}
		if err := os.WriteFile(h.stamp(p.name), nil, 0o644); err != nil {
			return err
		}
	}
	built := h.path("bin", p.name+".ok")
	if h.upToDate(filepath.Join("bin", p.name+".ok")) {
		return nil
	}
	if err := p.build(ctx, h); err != nil {
		return err
	}
	return os.WriteFile(built, nil, 0o644)
}

// upToDate reports whether a file is newer than every driver's source.
func (h *home) upToDate(name string) bool {
	at, err := os.Stat(h.path(name))
	if err != nil {
		return false
	}
	sources, _ := filepath.Glob(filepath.Join(h.drivers, "*.[ch]*"))
	return !slices.ContainsFunc(sources, func(s string) bool {
		info, err := os.Stat(s)
		return err != nil || info.ModTime().After(at.ModTime())
	})
}
