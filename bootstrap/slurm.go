package bootstrap

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/chorus-comms/chorus/internal/sys"
)

// readSlurm reads what srun sets. A batch script without srun sees SLURM_PROCID=0
// and the size of the whole job as well, but it is no rank: it has no step.
func readSlurm(e env) (*Info, error) {
	size := e.first("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS")
	if !e.has("SLURM_PROCID") || size == "" || e.first("SLURM_STEP_ID", "SLURM_STEPID") == "" {
		return nil, nil
	}
	i, err := e.world("SLURM_PROCID", size, "SLURM_LOCALID", "", "", "")
	if err != nil {
		return nil, err
	}
	return i, i.slurmPlace(e)
}

// slurmPlace reads the job, the hosts and the meeting point of a Slurm step: the
// first host of the step has rank 0, unless the user has placed the ranks. It does
// nothing outside of Slurm.
func (i *Info) slurmPlace(e env) error {
	step := e.first("SLURM_STEP_ID", "SLURM_STEPID")
	if step == "" || !e.has("SLURM_JOB_ID") {
		return nil
	}
	i.RunID = e.get("SLURM_JOB_ID") + "." + e.get(step)
	err := e.numbers(field{&i.NodeRank, "SLURM_NODEID", -1},
		field{&i.Nodes, e.first("SLURM_STEP_NUM_NODES", "SLURM_NNODES"), 0},
		field{&i.RestartCount, "SLURM_RESTART_COUNT", 0})
	if err != nil {
		return err
	}
	if i.Nodes == 1 {
		i.LocalSize = i.Size
		return nil
	}
	if name := e.first("SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"); name != "" && i.LocalSize == 0 {
		if i.LocalSize, err = tasksOn(e.get(name), i.NodeRank); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	list := e.first("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST")
	if list == "" {
		return nil
	}
	hosts, err := ParseHostlist(e.get(list))
	if err != nil {
		return fmt.Errorf("%s=%q: %w", list, e.get(list), err)
	}
	first := hosts[0]
	if strings.HasPrefix(e.get("SLURM_DISTRIBUTION"), "arbitrary") {
		if first = firstPlaced(e.get("SLURM_HOSTFILE")); !slices.Contains(hosts, first) {
			return nil // then MASTER_ADDR must say it
		}
	}
	i.MasterAddr, i.MasterPort, i.shared = first, slurmPort(e.get("SLURM_JOB_ID"), e.get(step)), true
	return nil
}

// maxPlaced bounds the file in which a user places the ranks.
const maxPlaced = 16 << 20

// firstPlaced returns the host of rank 0 by a file in which the user has placed the ranks; empty: it doesn't say so. In
// srun's variables the hosts are in the order of the cluster.
func firstPlaced(path string) string {
	text, err := sys.ReadRegular(path, maxPlaced)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		line, _, _ = strings.Cut(line, "#")
		item, _, _, err := cutItem(strings.TrimSpace(line))
		if err != nil || item == "" {
			continue
		}
		host, _, _ := strings.Cut(item, "*") // and a number of ranks there
		if hosts, err := ParseHostlist(host); err == nil {
			return hosts[0]
		}
		return ""
	}
	return ""
}

// slurmPort is a port for a step; 0: the numbers are none. Jobs that run at the same time on a host, as those of an
// array do, have numbers that are close to each other, and so other ports.
func slurmPort(job, step string) int {
	j, err1 := strconv.ParseUint(job, 10, 32)
	s, err2 := strconv.ParseUint(step, 10, 32)
	if err1 != nil || err2 != nil {
		return 0
	}
	return firstPort + int((j+4099*s)%ports)
}

// tasksOn returns how many tasks a node has, by a list such as 3,1(x2), which is one of three nodes; 0 if the list
// doesn't have the node.
func tasksOn(list string, node int) (int, error) {
	bad := fmt.Errorf("%q is no list of numbers of tasks, such as 3,1(x2)", list)
	before, found := 0, 0
	for part := range strings.SplitSeq(list, ",") {
		count, times, repeated := strings.Cut(part, "(x")
		n, err := number(count)
		if err != nil {
			return 0, bad
		}
		nodes := 1
		if repeated {
			digits, closed := strings.CutSuffix(times, ")")
			if nodes, err = number(digits); err != nil || !closed || nodes < 1 {
				return 0, bad
			}
		}
		if before <= node && node-before < nodes {
			found = n
		}
		before += nodes
	}
	return found, nil
}
