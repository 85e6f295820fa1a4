package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/launch"
)

// A round of LeftOut has one launcher of all ranks, which may lose one. The ranks work together until the culprit stands
// still; the others make a new world without it, and end. So must the launcher, and find that all went well.

// leavingOut makes a program of it, whose survivors are more than the one that is left out.
func (m *maker) leavingOut() {
	p := &m.p
	p.Size = max(p.Size, 3)
	world := make([]int, p.Size)
	for r := range world {
		world[r] = r
	}
	p.Hosts, p.Comms = make([]int, p.Size), []group{{world}}
	p.Steps = []step{{Do: collective, Kind: backend.AllReduce, DType: dtype.Float32, Count: 16}, {Do: await}}
	p.Fault.Step, p.Fault.Calls = 0, 0
}

// leftOut runs a round of LeftOut.
func (r *runner) leftOut(o *Outcome, round int) error {
	ps, err := r.take(1)
	if err != nil {
		return err
	}
	proc := ps[0]
	t := r.task(o.Program)
	t.Name, t.Launcher = fmt.Sprintf("round%d", round), &place{Nodes: 1}
	proc.tasks.Encode(t) // a process that is gone tells by the end of its answers
	limit := time.NewTimer(realBudget)
	defer limit.Stop()
	select {
	case a, ok := <-proc.answers:
		if !ok {
			o.Stuck = "the launcher ended: " + proc.errors.String()
			return nil
		}
		o.Reports, o.struck = a.Reports, a.Fired
		if a.Launcher != "" {
			o.unexplained = append(o.unexplained, "the launcher: "+a.Launcher)
		}
		r.give(proc)
	case <-limit.C:
		o.Stuck = "the launcher has not returned"
		kill(ps)
	case <-r.ctx.Done():
		kill(ps)
		return errStopped
	}
	return nil
}

// launcherOfAll is the launcher of a round of LeftOut, and answers with what its ranks have said.
func (w *worker) launcherOfAll(p *Program, t task) answer {
	var out bytes.Buffer
	job := &launch.Job{
		Command: os.Args, RanksPerNode: p.Size, MayLose: 1, Grace: launcherBeat, RunID: t.Name, Env: rankEnv(t), Stdout: &out,
	}
	a := answer{Reports: make([]*Report, p.Size)}
	if err := job.Run(context.Background()); err != nil {
		a.Launcher = err.Error()
	}
	for line := range strings.Lines(out.String()) {
		_, text, _ := strings.Cut(line, "]: ")
		var said answer
		switch err := json.Unmarshal([]byte(text), &said); {
		case err != nil:
			a.Launcher += fmt.Sprintf("; a rank says %q", line)
		case said.Fired != 0:
			a.Fired = said.Fired
		default:
			for _, rep := range said.Reports {
				a.Reports[rep.Rank] = rep
			}
		}
	}
	return a
}

// leftOut is a rank of a round of LeftOut.
func leftOut(p *Program, number int, out io.Writer) error {
	ctx := context.Background()
	c, err := comm.New(ctx, comm.WithFabric(p.Fabric), comm.WithTimeout(p.Patient), comm.WithAbortOnError(false))
	if err != nil {
		return err
	}
	if err := c.SetTimeout(p.timeout(0)); err != nil {
		return err
	}
	x, err := c.Empty(dtype.Float32, 16)
	if err != nil {
		return err
	}
	r := &rank{p: p, rank: number, comms: []*comm.Comm{c}, broken: make([]bool, 1), report: Report{Rank: number}}
	say := json.NewEncoder(out)
	for k := 0; !r.broken[0]; k++ {
		if number == p.Fault.Rank && k == p.Fault.After {
			if err := say.Encode(answer{Fired: time.Now().UnixNano()}); err != nil {
				return err
			}
			syscall.Kill(os.Getpid(), syscall.SIGSTOP)
			select {} // the signal may reach the other threads a moment later
		}
		x.Fill(float32(1))
		if err := c.AllReduce(ctx, x, comm.Sum); err != nil {
			r.fail(0, 0, err)
		}
	}
	r.regroup(c)
	return say.Encode(answer{Reports: []*Report{&r.report}})
}
