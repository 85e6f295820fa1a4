package native

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/internal/sys"
)

// offering is the exchange of ranks with these terms.
func offering(all []agreedSettings) func(context.Context, []byte) ([][]byte, error) {
	return func(context.Context, []byte) (payloads [][]byte, err error) {
		for _, t := range all {
			b, err := json.Marshal(t)
			if err != nil {
				return nil, err
			}
			payloads = append(payloads, b)
		}
		return payloads, nil
	}
}

// Ranks that a launcher has bound to a core each have as many cores together as there are ranks: they are not crowded.
func TestBoundRanksTogether(t *testing.T) {
	for _, test := range []struct {
		ranks []string // host and processors
		cores int      // by which all choose
		here  []int    // that the ranks of each rank's host have
	}{
		{[]string{"a 0", "a 1"}, 2, []int{2, 2}},
		{[]string{"a 0,8", "a 1,9", "a 2,10"}, 6, []int{6, 6, 6}},
		{[]string{"a 0", "a 0", "a 0"}, 1, []int{1, 1, 1}},
		{[]string{"a 0-1", "a 0-1"}, 2, []int{2, 2}},
		{[]string{"a 0", "b 0", "b 1"}, 1, []int{1, 2, 2}},
		{[]string{"a 0", "b 0", "a 1", "b 1"}, 2, []int{2, 2, 2, 2}},
		{[]string{"a ", "a "}, 1, []int{1, 1}}, // nobody knows
	} {
		var all []agreedSettings
		for _, r := range test.ranks {
			host, cpus, _ := strings.Cut(r, " ")
			set, err := sys.ParseCPUs(cpus)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, agreedSettings{Fabric: "auto", Cores: max(1, len(set)), Host: host, CPUs: cpus, StageBytes: minStage})
		}
		for r, mine := range all {
			agreed, err := mine.agree(t.Context(), backend.Where{Reporter: r}, offering(all))
			if err != nil || agreed.Cores != test.cores || agreed.here != test.here[r] {
				t.Errorf("rank %d of %q: %d cores, %d here, %v", r, test.ranks, agreed.Cores, agreed.here, err)
			}
		}
	}
}

// TestTLSOnOneRank is a mismatch that every rank is told of before it opens a fabric.
func TestTLSOnOneRank(t *testing.T) {
	all := []agreedSettings{{Fabric: "tcp", Cores: 2, StageBytes: minStage}, {Fabric: "tcp", Cores: 2, StageBytes: minStage},
		{Fabric: "tcp", Cores: 2, StageBytes: minStage, TLS: true}}
	for r, mine := range all {
		_, err := mine.agree(t.Context(), backend.Where{Comm: "world", Reporter: r, Op: "new"}, offering(all))
		mismatch, ok := errors.AsType[*backend.MismatchError](err)
		if !ok || mismatch.RankA != 0 || mismatch.RankB != 2 || !strings.Contains(err.Error(), "new(with TLS)") {
			t.Errorf("rank %d: %v", r, err)
		}
	}
}
