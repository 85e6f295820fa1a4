package launch

import (
	"crypto/rand"
	"encoding/hex"
	"strconv"
	"strings"
)

// errorFileVariable names the file in which a rank may leave what failed.
const errorFileVariable = "TORCHELASTIC_ERROR_FILE"

// storeVariable names a store where ranks meet, and the launchers of an elastic job.
const storeVariable = "CHORUS_STORE"

// place is where a rank stands in the job.
type place struct {
	rank, worldSize         int
	localRank, localSize    int
	node, nodes             int
	roleRank, roleWorldSize int
}

// environ is what a rank finds in its environment: torchrun's variables, and CHORUS_RUN, by which a rank knows that the
// launcher is ours. Later entries win over the base environment.
func (j *Job) environ(p place, restarts int, at *storeRelay, errorFile string) []string {
	n := strconv.Itoa
	env := append(j.Env[:len(j.Env):len(j.Env)],
		"RANK="+n(p.rank),
		"WORLD_SIZE="+n(p.worldSize),
		"LOCAL_RANK="+n(p.localRank),
		"LOCAL_WORLD_SIZE="+n(p.localSize),
		"GROUP_RANK="+n(p.node),
		"GROUP_WORLD_SIZE="+n(p.nodes),
		"ROLE_RANK="+n(p.roleRank),
		"ROLE_WORLD_SIZE="+n(p.roleWorldSize),
		"ROLE_NAME="+j.Role,
		"MASTER_ADDR="+at.addr,
		"MASTER_PORT="+n(at.port),
		"TORCHELASTIC_RESTART_COUNT="+n(restarts),
		"TORCHELASTIC_MAX_RESTARTS="+n(j.MaxRestarts),
		"TORCHELASTIC_RUN_ID="+j.RunID,
		"TORCHELASTIC_USE_AGENT_STORE=True",
		errorFileVariable+"="+errorFile,
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
func places(world []member, node int) []place {
	me := world[node]
	p := place{localSize: me.Ranks, node: node, nodes: len(world)}
	for i, m := range world {
		if i < node {
			p.rank += m.Ranks
		}
		p.worldSize += m.Ranks
		if m.Role == me.Role {
			if i < node {
				p.roleRank += m.Ranks
			}
			p.roleWorldSize += m.Ranks
		}
	}
	out := make([]place, me.Ranks)
	for l := range out {
		out[l] = p
		out[l].localRank = l
		out[l].rank += l
		out[l].roleRank += l
	}
	return out
}
