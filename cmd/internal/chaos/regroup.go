package chaos

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/tensor"
)

// Regrouped is what came of a rank's Regroup at the end of its program.
type Regrouped struct {
	Members []int  `json:"members,omitempty"` // of the new world, by their rank in the old one
	Kind    string `json:"kind,omitempty"`    // of the error, if there was one
	Text    string `json:"text,omitempty"`
}

// How long ranks have to regroup, and how long they wait for each other in that: some come when they have waited in
// vain elsewhere.
const (
	regrouping = 60 * time.Second
	gathering  = 20 * time.Second
)

// regroups reports whether the ranks that are left at the end make a new world, whatever has become of the old one. In
// virtual time they can't: they meet over sockets. After links have broken it's not defined which rank does. With Stale
// the dumps are of the program alone.
func (p *Program) regroups() bool {
	switch p.Fault.Kind {
	case Absent, Exhausted, Cut, Partition, Stale:
		return false
	}
	return p.Regroup
}

// regroup makes a new world of those that are left, and checks what it computes.
func (r *rank) regroup(old *comm.Comm) {
	out := &Regrouped{}
	r.report.Regrouped = out
	ctx, cancel := context.WithTimeout(context.Background(), regrouping)
	defer cancel()
	opts := []comm.RegroupOption{comm.Patience(gathering)}
	if culprit := r.p.Fault.Rank; r.p.Fault.does() == Stop && r.blames(culprit) {
		opts = append(opts, comm.Without(culprit)) // as a program would that has read the error
	}
	c, err := old.Regroup(ctx, opts...)
	if err == nil {
		out.Members, err = r.tryOut(ctx, c)
		err = errors.Join(err, c.Finalize(ctx))
	} else {
		old.Finalize(ctx)
	}
	if err != nil {
		out.Kind, _ = classify(err, r.p.Comms[0])
		out.Text = err.Error()
	}
}

// blames reports whether an error of this rank's named another one.
func (r *rank) blames(who int) bool {
	return slices.ContainsFunc(r.report.Failures, func(x Failure) bool { return slices.Contains(x.Named, who) })
}

// tryOut returns the old ranks of a new world's members, and checks a sum.
func (r *rank) tryOut(ctx context.Context, c *comm.Comm) ([]int, error) {
	if err := c.SetTimeout(r.p.Patient); err != nil {
		return nil, err
	}
	all := tensor.Must(tensor.Empty(dtype.Int32, c.Size()))
	if err := c.AllGatherSingle(ctx, all, tensor.Of([]int32{int32(r.rank)})); err != nil {
		return nil, err
	}
	var members []int
	sum := 0
	for i := range c.Size() {
		members = append(members, int(all.At(i)))
		sum += members[i] + 1
	}
	const n = 5000
	x, err := c.Empty(dtype.Int32, n)
	if err != nil {
		return members, err
	}
	defer x.Free()
	fill(raw(x), dtype.Int32, func(int) int { return r.rank + 1 })
	if err := c.AllReduce(ctx, x, comm.Sum); err != nil {
		return members, err
	}
	if bad := differs(raw(x), dtype.Int32, func(int) int { return sum }); bad != "" {
		r.report.Wrong = append(r.report.Wrong, fmt.Sprintf("rank %d: sum in the new world: %s", r.rank, bad))
	}
	return members, nil
}

// regrouped says what is wrong with the world that a rank has made at the end; "" if nothing is.
func (o *Outcome) regrouped(r int, g *Regrouped) string {
	p, f := o.Program, o.Program.Fault
	if g == nil {
		return ""
	}
	gone := o.Fired && (f.dead() || f.Kind == Exit)
	var left []int
	for who := range p.Size {
		if !gone || who != f.Rank {
			left = append(left, who)
		}
	}
	switch {
	case g.Kind == "timeout" && len(left) == 1 && f.Kind != Kill: // it can't know that it's not the one that the other has lost
		return ""
	case g.Kind != "":
		return fmt.Sprintf("could not regroup: %s: %s", g.Kind, g.Text)
	case !slices.Equal(g.Members, left):
		return fmt.Sprintf("regrouped with ranks %v, not %v", g.Members, left)
	}
	return ""
}
