package rendezvous

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/chorus-comms/chorus/launch/internal/process"
	"github.com/chorus-comms/chorus/observe"
)

// The launcher that serves the attempts' stores examines the records of ranks on all nodes. Each launcher puts its
// ranks' dumps into the rendezvous before it reports them dead, and prints the explanation that comes back.

const (
	// recordsTime is how long a launcher waits for the others' records after their ranks must be dead.
	recordsTime = 5 * time.Second
	// maxDump bounds what a dump in the rendezvous may come to.
	maxDump = 64 << 20
)

// explain returns the explanation of a job's failure from its ranks' dumps; empty if there are no findings.
func explain(dumps []*observe.Dump) string {
	r := observe.Explain(dumps)
	if len(r.Findings) == 0 {
		return ""
	}
	return strings.TrimRight(r.Details(), "\n")
}

// publish puts the dumps of this node's ranks into the rendezvous. One that can't be put there is missing for the other
// nodes, too.
func (rv *rendezvous) publish(attempt int, dumps []*observe.Dump) {
	var ranks []string
	for _, d := range dumps {
		packed, err := pack(d)
		if err != nil {
			continue
		}
		rank := strconv.Itoa(d.Chorus.Rank)
		ctx, cancel := rv.withLimit()
		if rv.store.Set(ctx, attemptKey(attempt, "record/"+rank), packed) == nil {
			ranks = append(ranks, rank)
		}
		cancel()
	}
	ctx, cancel := rv.withLimit()
	defer cancel()
	rv.store.Set(ctx, attemptKey(attempt, "stopped/"+strconv.Itoa(rv.Node)), []byte(strings.Join(ranks, " ")))
}

// explainAcrossNodes returns the explanation of a failure from the dumps of all ranks, and whether there could be one.
func (rv *rendezvous) explainAcrossNodes(attempt int) (text string, ok bool) {
	ctx, cancel := context.WithTimeout(rv.alive.reach(), rv.job.Grace+recordsTime)
	defer cancel()
	key := attemptKey(attempt, "explained")
	if rv.first {
		text = explain(rv.collect(ctx, attempt))
		return text, rv.store.Set(ctx, key, []byte(text)) == nil
	}
	if !rv.hasStopped(ctx, rv.serverPos, key) {
		return "", false
	}
	told, err := rv.store.Get(ctx, key)
	return string(told), err == nil
}

// collect returns the dumps that the launchers have put into the rendezvous, by rank. It waits for all nodes but those
// that are lost.
func (rv *rendezvous) collect(ctx context.Context, attempt int) []*observe.Dump {
	byRank := map[int]*observe.Dump{}
	size := 0
	for n, stopped := range rv.keys(attemptKey(attempt, "stopped/%d")) {
		if !rv.hasStopped(ctx, n, stopped) {
			continue
		}
		ranks, err := rv.store.Get(ctx, stopped)
		if err != nil {
			continue
		}
		for _, rank := range strings.Fields(string(ranks)) {
			key := attemptKey(attempt, "record/"+rank)
			if there, err := rv.store.Check(ctx, key); err != nil || !there {
				continue
			}
			packed, err := rv.store.Get(ctx, key)
			if err != nil {
				continue
			}
			if d, err := unpack(packed); err == nil && (size == 0 || d.Chorus.Size == size) {
				byRank[d.Chorus.Rank], size = d, d.Chorus.Size
			}
		}
	}
	var dumps []*observe.Dump
	for _, rank := range slices.Sorted(maps.Keys(byRank)) {
		dumps = append(dumps, byRank[rank])
	}
	return dumps
}

// hasStopped waits until a node has written a key, and reports false if it won't.
func (rv *rendezvous) hasStopped(ctx context.Context, n int, key string) bool {
	for {
		lost := rv.kind.lost(n)
		if there, err := rv.store.Check(ctx, key); there || err != nil || lost {
			return there && err == nil
		}
		if !process.Sleep(ctx, rv.job.Monitor) {
			return false
		}
	}
}

func pack(d *observe.Dump) ([]byte, error) {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if err := json.NewEncoder(z).Encode(d); err != nil {
		return nil, err
	}
	err := z.Close()
	return b.Bytes(), err
}

func unpack(packed []byte) (*observe.Dump, error) {
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(z, maxDump+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxDump {
		return nil, fmt.Errorf("a dump of more than %d bytes", maxDump)
	}
	return observe.Parse(text, 0)
}
