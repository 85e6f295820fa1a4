package main

import (
	"context"
	"fmt"
	"io"
	"os"
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
