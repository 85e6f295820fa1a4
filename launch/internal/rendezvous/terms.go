package rendezvous

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/chorus-comms/chorus/store"
)

// agreedSettings are the settings that must be equal on all launchers of a job.
type agreedSettings struct {
	Nodes, MaxRestarts int
	MinNodes           int // of an elastic job
	Server             int // the node that serves
	Host               string
	LostAfter          time.Duration // of the launcher that serves; all go by it
}

// settings are this launcher's.
func (j *Config) settings() agreedSettings {
	t := agreedSettings{Nodes: j.Nodes, MaxRestarts: j.MaxRestarts, LostAfter: j.LostAfter}
	if j.Elastic() {
		t.MinNodes = j.MinNodes
	}
	return t
}

// nodes is how many there are, as in --nnodes.
func (t agreedSettings) nodes() string {
	if t.MinNodes == 0 {
		return strconv.Itoa(t.Nodes)
	}
	return fmt.Sprintf("%d:%d", t.MinNodes, t.Nodes)
}

// agree compares the terms of the serving launcher with this one's.
func (rv *rendezvous) agree(ctx context.Context) error {
	if rv.terms != nil {
		if err := rv.sameJob(ctx); err != nil {
			return err
		}
	}
	data, err := rv.store.Get(ctx, "job")
	if err != nil {
		return fmt.Errorf("launch: no job %q at the rendezvous at %s: %w", rv.job.RunID, rv.endpoint, err)
	}
	var t agreedSettings
	if err := json.Unmarshal(data, &t); err != nil {
		return fmt.Errorf("launch: rendezvous at %s: bad job record: %w", rv.endpoint, err)
	}
	if t.Server < 0 || t.Server >= max(t.Nodes, 1) {
		return fmt.Errorf("launch: rendezvous at %s: bad job record: node %d of %d serves", rv.endpoint, t.Server, t.Nodes)
	}
	if own := rv.job.settings(); t.Nodes != own.Nodes || t.MinNodes != own.MinNodes || t.MaxRestarts != own.MaxRestarts {
		what := fmt.Sprintf("was started for %s nodes and %d restarts", own.nodes(), own.MaxRestarts)
		rv.terms.report(ctx, rv.job.called()+" "+what)
		return fmt.Errorf("launch: node %d (%s) was started for %s nodes and %d restarts, this one for %s and %d",
			t.Server, t.Host, t.nodes(), t.MaxRestarts, own.nodes(), own.MaxRestarts)
	}
	rv.serverPos, rv.serverHost = t.Server, t.Host
	if t.LostAfter > 0 {
		rv.job.LostAfter = t.LostAfter
	}
	return nil
}

// sameJob is an error if the rendezvous is that of another job, which that one's launcher is told.
func (rv *rendezvous) sameJob(ctx context.Context) error {
	at, err := rv.terms.served(ctx)
	if err != nil {
		return fmt.Errorf("launch: rendezvous at %s: %w", rv.endpoint, err)
	}
	if at.RunID == rv.job.RunID {
		return nil
	}
	rv.terms.report(ctx, fmt.Sprintf("%s is of job %q", rv.job.called(), rv.job.RunID))
	return fmt.Errorf("launch: at %s the launcher on %s serves the rendezvous of job %q, and this one is of job %q"+
		" (--rdzv-id)", rv.endpoint, at.Host, at.RunID, rv.job.RunID)
}

// terms are the keys of the rendezvous that are no job's:
//
//	chorus//job       which job's it is
//	chorus//differ/N  what a launcher has said that can't join, from 1
//
// A job's own keys begin with chorus/ and its id, which isn't empty and has no slash.
type terms struct {
	store store.Store
	heard []string // what launchers have said
}

// served says which job's the rendezvous is.
type served struct{ RunID, Host string }

const (
	servedKey = "chorus//job"
	differKey = "chorus//differ"
	// maxDiffer is how many launchers that can't join are told of.
	maxDiffer = 16
)

func (t *terms) offer(s served) error {
	text, _ := json.Marshal(s)
	return t.store.Set(context.Background(), servedKey, text)
}

func (t *terms) served(ctx context.Context) (s served, err error) {
	data, err := t.store.Get(ctx, servedKey)
	if err != nil {
		return s, err
	}
	return decode[served](data)
}

// report says that this launcher can't join, and why. That it isn't heard is no error of its own.
func (t *terms) report(ctx context.Context, text string) {
	if t == nil {
		return
	}
	if n, err := t.store.Add(ctx, differKey, 1); err == nil && n <= maxDiffer {
		t.store.Set(ctx, differKey+"/"+strconv.FormatInt(n, 10), []byte(text))
	}
}

// hear notes what launchers have said that can't join, and says it.
func (t *terms) hear(ctx context.Context, say func(string, ...any)) {
	for t != nil && len(t.heard) < maxDiffer {
		key := differKey + "/" + strconv.Itoa(len(t.heard)+1)
		if there, err := t.store.Check(ctx, key); err != nil || !there {
			return
		}
		text, err := t.store.Get(ctx, key)
		if err != nil {
			return
		}
		t.heard = append(t.heard, string(text))
		say("%s: it can't join", text)
	}
}

// differ is the end of a sentence about launchers that have not come.
func (t *terms) differ() string {
	if t == nil || len(t.heard) == 0 {
		return ""
	}
	return "; " + strings.Join(t.heard, "; ")
}
