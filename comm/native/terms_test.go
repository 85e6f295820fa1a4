package native

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/chorus-comms/chorus/comm/backend"
)

// TestTLSOnOneRank is a mismatch that every rank is told of before it opens a fabric.
func TestTLSOnOneRank(t *testing.T) {
	all := []terms{{Fabric: "tcp", Cores: 2, StageBytes: minStage}, {Fabric: "tcp", Cores: 2, StageBytes: minStage}, {Fabric: "tcp", Cores: 2, StageBytes: minStage, TLS: true}}
	exchange := func(context.Context, []byte) (payloads [][]byte, err error) {
		for _, t := range all {
			b, err := json.Marshal(t)
			if err != nil {
				return nil, err
			}
			payloads = append(payloads, b)
		}
		return payloads, nil
	}
	for r, mine := range all {
		_, err := mine.agree(t.Context(), backend.Where{Comm: "world", Rank: r, Op: "new"}, exchange)
		mismatch, ok := errors.AsType[*backend.MismatchError](err)
		if !ok || mismatch.RankA != 0 || mismatch.RankB != 2 || !strings.Contains(err.Error(), "new(with TLS)") {
			t.Errorf("rank %d: %v", r, err)
		}
	}
}
