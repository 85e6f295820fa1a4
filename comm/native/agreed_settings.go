package native

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/internal/sys"
	"github.com/chorus-comms/chorus/plan"
	"github.com/chorus-comms/chorus/plan/calibration"
)

// agreedSettings are the settings that the ranks of a world must have in common: the same fabric, encrypted or not, and
// the same numbers by which algorithms are chosen. The cores, which the ranks of a host share, and the stages are the
// least that any rank has. The costs are those that rank 0 has measured, if it's to use them.
type agreedSettings struct {
	Fabric     string
	Cores      int    // that this process may use
	Host       string `json:",omitempty"`
	CPUs       string `json:",omitempty"` // which ones of its host, as the kernel lists them; empty if it doesn't say
	StageBytes int
	TLS        bool          `json:",omitempty"`
	Machine    *plan.Machine `json:",omitempty"`

	// Once they're agreed:
	here  int      // cores that the ranks of this host may use together
	hosts []string // of the ranks
}

func (t agreedSettings) agree(ctx context.Context, at backend.Where, exchange func(context.Context, []byte) ([][]byte,
	error)) (agreedSettings, error) {
	payload, err := json.Marshal(t)
	if err != nil {
		return t, err
	}
	all, err := exchange(ctx, payload)
	if err != nil {
		return t, err
	}
	var first agreedSettings
	var offers []agreedSettings         // those that differ from the rank's before
	together := map[string]sys.CPUSet{} // ranks that are bound to a core each have as many cores as ranks
	t.hosts = make([]string, len(all))
	for r, b := range all {
		if r > 0 && bytes.Equal(b, all[r-1]) { // such as that of a rank on the same host
			t.hosts[r] = t.hosts[r-1]
			continue
		}
		var x agreedSettings
		err := json.Unmarshal(b, &x)
		cpus, bad := sys.ParseCPUs(x.CPUs)
		if err != nil || bad != nil || x.Cores < 1 || x.StageBytes < minStage || x.Machine != nil &&
			x.Machine.Validate() != nil {
			return t, &backend.InternalError{Where: at, Err: fmt.Errorf("rank %d offers the terms %q", r, b)}
		}
		if r == 0 {
			first = x
		}
		if x.Fabric != first.Fabric {
			return t, &backend.MismatchError{Where: at, RankA: 0, RankB: r, OpA: "new(fabric " + first.Fabric + ")",
				OpB: "new(fabric " + x.Fabric + ")"}
		}
		if x.TLS != first.TLS {
			say := map[bool]string{false: "new(without TLS)", true: "new(with TLS)"}
			return t, &backend.MismatchError{Where: at, RankA: 0, RankB: r, OpA: say[first.TLS], OpB: say[x.TLS]}
		}
		t.StageBytes = min(t.StageBytes, x.StageBytes)
		t.hosts[r], together[x.Host] = x.Host, together[x.Host].Or(cpus)
		offers = append(offers, x)
	}
	t.here = max(t.Cores, len(together[t.Host]))
	t.Cores = t.here
	for _, x := range offers {
		t.Cores = min(t.Cores, max(x.Cores, len(together[x.Host])))
	}
	t.Machine = first.Machine
	return t, nil
}

// machine is what all ranks compute costs from.
func (t agreedSettings) machine() plan.Machine {
	m := plan.DefaultMachine()
	if t.Machine != nil {
		m = *t.Machine
	}
	m.Cores = t.Cores
	return m
}

// calibrated returns what was measured on this host for worlds of this size; nil if that isn't wanted, or can't be had,
// which is a warning: the communicator works all the same. Only rank 0's counts.
func (s *settings) calibrated(c backend.Config) *plan.Machine {
	if c.Rank != 0 || c.Size == 1 {
		return nil
	}
	path, err := calibration.Path(s.calibration)
	if path == "" && err == nil {
		return nil
	}
	var e calibration.Entry
	if err == nil {
		e, err = calibration.Lookup(path, c.Size)
	}
	if err != nil {
		c.Log.Warn("algorithms are chosen by the default costs", "communicator", c.Name, "reason", err)
		return nil
	}
	return &e.Machine
}
