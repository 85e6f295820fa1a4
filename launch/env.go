package launch

import (
	"crypto/rand"
	"encoding/hex"
	"strconv"
	"strings"

	"github.com/chorus-comms/chorus/launch/internal/process"
	"github.com/chorus-comms/chorus/launch/internal/rendezvous"
)

// storeVariable names a store where ranks meet, and the launchers of an elastic job.
const storeVariable = "CHORUS_STORE"

// environ is what a rank finds in its environment: torchrun's variables, and CHORUS_RUN, by which a rank knows that the
// launcher is ours. Later entries win over the base environment.
func (j *Job) environ(p process.Place, restarts int, at *storeRelay, errorFile string) []string {
	n := strconv.Itoa
	env := append(j.Env[:len(j.Env):len(j.Env)],
		"RANK="+n(p.Rank),
		"WORLD_SIZE="+n(p.WorldSize),
		"LOCAL_RANK="+n(p.LocalRank),
		"LOCAL_WORLD_SIZE="+n(p.LocalSize),
		"GROUP_RANK="+n(p.Node),
		"GROUP_WORLD_SIZE="+n(p.Nodes),
		"ROLE_RANK="+n(p.RoleRank),
		"ROLE_WORLD_SIZE="+n(p.RoleWorldSize),
		"ROLE_NAME="+j.Role,
		"MASTER_ADDR="+at.addr,
		"MASTER_PORT="+n(at.port),
		"TORCHELASTIC_RESTART_COUNT="+n(restarts),
		"TORCHELASTIC_MAX_RESTARTS="+n(j.MaxRestarts),
		"TORCHELASTIC_RUN_ID="+j.RunID,
		"TORCHELASTIC_USE_AGENT_STORE=True",
		process.ErrorFileVariable+"="+errorFile,
		"CHORUS_RUN="+j.RunID,
		"CHORUS_STORE_ADDR="+at.direct,
	)
	if j.elastic() {
		// That's where the launchers meet. Ranks use the store of their attempt, in which there's no key of another one.
		env = append(env, storeVariable+"=")
	}
	return env
}

// lookup finds a variable in the ranks' environment, in which later entries win.
func (j *Job) lookup(name string) (value string, ok bool) {
	for _, e := range j.Env {
		if n, v, _ := strings.Cut(e, "="); n == name {
			value, ok = v, true
		}
	}
	return value, ok
}

// dumps is the directory that the environment gives for what ranks record; empty: none.
func (j *Job) dumps() string {
	dir, _ := j.lookup(dumpVariable)
	return dir
}

// newRunID names a job that was given no name. Several launchers cannot agree on a random one before they have met, and
// jobs that meet at different endpoints do not see each other's names, so torchrun's default serves them.
func newRunID(nodes int) string {
	if nodes > 1 {
		return "none"
	}
	var b [4]byte
	rand.Read(b[:]) // never fails
	return "run-" + hex.EncodeToString(b[:])
}

// places numbers the ranks of a node: ranks count through the nodes in order, and so do the ranks of each role.
func places(world []rendezvous.Member, node int) []process.Place {
	me := world[node]
	p := process.Place{LocalSize: me.Ranks, Node: node, Nodes: len(world)}
	for i, m := range world {
		if i < node {
			p.Rank += m.Ranks
		}
		p.WorldSize += m.Ranks
		if m.Role == me.Role {
			if i < node {
				p.RoleRank += m.Ranks
			}
			p.RoleWorldSize += m.Ranks
		}
	}
	out := make([]process.Place, me.Ranks)
	for l := range out {
		out[l] = p
		out[l].LocalRank = l
		out[l].Rank += l
		out[l].RoleRank += l
	}
	return out
}
