// Package native is Chorus' own backend: it turns every collective into a plan
// and runs the plan over a fabric.
//
// Importing package comm registers it as "native", the default:
//
//	c, err := comm.New(ctx, comm.WithBackend("native"), comm.WithHints(map[string]string{"fabric": "tcp"}))
//
// Its main type is group, one rank's part of one communicator. Groups that were
// split from each other share a world: the fabric, and the table through which
// its events find their group. Package members is what a group knows of its other members when operations fail.
//
// The path of an operation: request.go turns a backend.Op into a plan.Request
// and two flat buffers; choose.go selects the algorithms, and program.go compiles their
// plans, once per shape, which programs.go keeps; exec.go runs them.
//
// Hints (per communicator, or per operation where marked *):
//
//	fabric       auto, shm, tcp, mem, or any registered fabric
//	algorithm*   a name for every collective ("ring"), or a list ("all_reduce=ring,broadcast=binomial")
//	chunk_bytes* pipeline granularity
//	stage_bytes  shared scratch per rank
//	mapped*      "off" stages memory that could be mapped, "on" uses it whatever the cost
//	slots*       "off" keeps small messages out of the slots beside the flags
//	stores*      "cached" or "bypass": how large copies into a stage are stored
//	calibration  "on", or a path: the cost model's numbers are measured ones
//	fabric.<x>   option x of the fabric, such as fabric.connections
//
// Invariants: one collective of a group at a time; every wait watches the group's
// Abort; once raised, the first cause is what every later call returns.
package native
