package members

import (
	"encoding/json"
	"fmt"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/fabric"
)

// direct is the fabric of a rank whose notices its peer acts on at once.
type direct struct {
	fabric.Messenger
	rank int
	peer *Group
}

func (d *direct) Rank() int { return d.rank }

func (d *direct) Control(_ int, payload []byte) error {
	var n Notice
	err := json.Unmarshal(payload, &n)
	if err == nil {
		d.peer.Notice(d.rank, n)
	}
	return err
}

func (d *direct) Announced(uint32, uint64) (fabric.Desc, bool) { return fabric.Desc{}, false }

// asking has rank 0 ask rank 1, which reports a failure and so doesn't answer yet. The channel gets the answers.
func asking(t *testing.T) (groups [2]*Group, answers chan map[int]Notice) {
	groups, answers = [2]*Group{{}, {}}, make(chan map[int]Notice, 1)
	for r, g := range groups {
		g.Init(&World{Fab: &direct{rank: r, peer: groups[1-r]}}, nil, 1, "pair", []int{0, 1})
	}
	groups[1].Reporting.Begin()
	go func() { answers <- groups[0].ask(5, []int{1}, time.Hour, nil) }()
	synctest.Wait()
	select {
	case <-answers:
		t.Fatal("answered before the failure was reported")
	default:
	}
	return groups, answers
}

// TestAnswerAfterReport asks a rank that is reporting a failure: its answer comes after the report.
func TestAnswerAfterReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		groups, answers := asking(t)
		groups[1].Fail(&backend.AbortedError{Where: groups[1].Where(), By: 1, Reason: "enough"})
		groups[1].Reporting.End()
		if got := <-answers; got[1].Kind != answerKind || !groups[0].Raised() {
			t.Errorf("answers %+v, the cause %v", got, groups[0].Cause())
		}
	})
}

// TestAskTheLost asks a rank that is found lost meanwhile: ask doesn't wait for its answer.
func TestAskTheLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		groups, answers := asking(t)
		start, g := time.Now(), groups[0]
		why := fmt.Errorf("connecting: %w", syscall.ECONNREFUSED)
		g.World.Lose(1, why)
		g.Lost(1, why)
		<-answers
		if waited := time.Since(start); waited != 0 { // in virtual time
			t.Errorf("it was waited for, %v", waited)
		}
		groups[1].Reporting.End()
	})
}
