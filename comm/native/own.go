package native

import (
	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/comm/backend/base"
	"github.com/chorus-comms/chorus/comm/native/members"
	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/plan"
)

// own is what the other members are told of a group's part: members.Own.
type own struct{ *group }

func (g own) At(op *backend.Op) backend.Where { return g.whereIs(op) }

func (g own) UnderWay() (seq uint64, job *base.Job, desc, said *fabric.Desc) {
	return g.seq, &g.job.Job, &g.job.desc, &g.said
}

func (g own) Posted(f func(m *fabric.Msg, rank int, comes bool)) {
	for k, s := range g.posted {
		f(g.msgs[k], int(s.peer), s.kind != plan.Send)
	}
}

func (g own) Told(from int, n members.Notice) {
	if n.Kind == members.SplitFailed {
		g.splitFailed(from, n)
	}
}
