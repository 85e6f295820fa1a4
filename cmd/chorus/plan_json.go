package main

import (
	"encoding/json"
	"io"

	"github.com/chorus-comms/chorus/plan"
)

// planDocument is what chorus plan --json prints: docs/algorithms.md describes it, and its names stay.
type planDocument struct {
	Collective  string     `json:"collective"`
	Algorithm   string     `json:"algorithm"`
	World       int        `json:"world"`
	Root        int        `json:"root"`
	Count       int        `json:"count"`
	ElemBytes   int        `json:"elem_bytes"`
	InPlace     bool       `json:"in_place"`
	Hosts       []int      `json:"hosts"`
	StageBytes  int        `json:"stage_bytes"`
	ChunkBytes  int        `json:"chunk_bytes"`
	Mapped      bool       `json:"mapped"`
	EstimatedUS float64    `json:"estimated_us"`
	Ranks       []planRank `json:"ranks"`
}

type planRank struct {
	Rank  int        `json:"rank"`
	Tmp   int        `json:"tmp"`
	Stage int        `json:"stage"`
	Steps []planStep `json:"steps"`
}

type planStep struct {
	Do    string      `json:"do"`
	Peer  *int32      `json:"peer,omitempty"`
	Phase uint32      `json:"phase,omitempty"`
	Count *int        `json:"count,omitempty"`
	Src   []planPlace `json:"src,omitempty"`
	Dst   []planPlace `json:"dst,omitempty"`
	Final bool        `json:"final,omitempty"`
}

type planPlace struct {
	Buffer string `json:"buffer"`
	Rank   int32  `json:"rank"`
	Offset int    `json:"offset"`
}

// newPlanDocument describes the plans of some ranks for one request.
func newPlanDocument(q plan.Request, plans []*plan.Plan, seconds float64) planDocument {
	d := planDocument{Collective: q.Collective.String(), Algorithm: plans[0].Algorithm, World: q.World, Root: q.Root,
		Count: q.Count, ElemBytes: q.ElemSize,
		InPlace: q.InPlace, Hosts: q.Topo.Host, StageBytes: q.StageBytes, ChunkBytes: q.ChunkBytes, Mapped: plans[0].Mapped,
		EstimatedUS: seconds * 1e6}
	for _, p := range plans {
		r := planRank{Rank: p.Request.Rank, Tmp: p.Tmp, Stage: p.Stage, Steps: []planStep{}}
		for i := range p.Steps {
			r.Steps = append(r.Steps, newPlanStep(&p.Steps[i]))
		}
		d.Ranks = append(d.Ranks, r)
	}
	return d
}

func newPlanStep(s *plan.Step) planStep {
	out := planStep{Do: s.Kind.String(), Phase: s.Phase, Src: newPlanPlaces(s.Src), Dst: newPlanPlaces(s.Dst),
		Final: s.Final}
	switch s.Kind {
	case plan.Send, plan.Recv, plan.RecvReduce:
		out.Peer, out.Count = &s.Peer, &s.N
	case plan.Copy, plan.Fold:
		out.Count = &s.N
	case plan.Await:
		out.Peer = &s.Peer
	}
	return out
}

func newPlanPlaces(refs []plan.Ref) (places []planPlace) {
	for _, r := range refs {
		places = append(places, planPlace{r.Buf.String(), r.Rank, r.Off})
	}
	return places
}

func (d *planDocument) write(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", " ")
	return e.Encode(d)
}
