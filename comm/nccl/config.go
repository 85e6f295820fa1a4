package nccl

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"unsafe"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/comm/nccl/abi"
)

// config is a communicator's configuration; one without packed is of a library that takes none.
type config struct {
	packed  *abi.Config
	signals int // how many counters a rank has for each other one
	// Calls of the communicator block until they're done, a collective's until it's enqueued.
	blocking bool
	calls    atomic.Int32 // that have not returned, and so use packed
	freed    atomic.Bool  // no other thread needs it
}

// free frees the configuration, when the library's last call with it has returned.
func (c *config) free() {
	c.freed.Store(true)
	c.settle()
}

func (c *config) settle() {
	if c.calls.Load() == 0 && c.freed.Swap(false) && c.packed != nil {
		c.packed.Free()
	}
}

// used calls f, which may return late.
func (c *config) used(f func() error) func() error {
	c.calls.Add(1)
	return func() error {
		defer c.settle()
		defer c.calls.Add(-1)
		return f()
	}
}

func (c *config) pointer() unsafe.Pointer {
	if c.packed == nil {
		return nil
	}
	return c.packed.Pointer()
}

// Releases of NCCL in which calls that don't block hang now and then, for which PyTorch doesn't make them any more
// (pull request 154055).
const hangsFrom, hangsUntil abi.Version = 22600, 22700

// ours are hints of torchcomms' backends that are about things which are otherwise here.
var ours = []string{"max_event_pool_size", "garbage_collect_interval_ms", "enable_cuda_graph_support",
	"graph_timeout_check_interval_ms"}

// config makes the configuration that hints say: they're the fields' names, or those in the way of Python, with the
// prefix of NCCLX if one likes.
func (r *rank) config(at backend.Where, name string, hints map[string]string) (*config, error) {
	set := map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(hints)) {
		f, known := fieldOf(strings.TrimPrefix(key, "ncclx::"))
		if slices.Contains(ours, key) {
			continue
		}
		if key == "compare" {
			var err error
			if r.compares, err = strconv.ParseBool(hints[key]); err != nil {
				return nil, &backend.InvalidArgumentError{Where: at,
					Detail: fmt.Sprintf("hint compare=%q is neither true nor false", hints[key])}
			}
			continue
		}
		if key == "regroup" {
			if err := r.setRegroups(at, hints[key]); err != nil {
				return nil, err
			}
			continue
		}
		if !known {
			return nil, &backend.InvalidArgumentError{Where: at,
				Detail: fmt.Sprintf("unknown hint %q; a communicator of %s takes library, compare, regroup, %s", key, r.family,
					fieldNames())}
		}
		if f.Since > r.lib.version || r.lib.CommInitRankConfig == nil {
			return nil, &backend.UnsupportedError{Where: at,
				Detail: fmt.Sprintf("hint %s: %v has no %s, which came with %s %v", key, r.lib, f.Name, r.lib.name, f.Since)}
		}
		value := hints[key]
		if b, err := strconv.ParseBool(value); err == nil && !f.String {
			value = map[bool]string{false: "0", true: "1"}[b]
		}
		set[f.Name] = value
	}
	if r.lib.CommInitRankConfig == nil {
		return &config{blocking: true}, nil
	}
	if set["blocking"] == "" {
		set["blocking"] = "0"
		if r.lib.version >= hangsFrom && r.lib.version < hangsUntil {
			set["blocking"] = "1"
		}
	}
	if f, _ := abi.FieldNamed("commName"); r.lib.version >= f.Since && set[f.Name] == "" {
		set[f.Name] = name
	}
	signals := 1
	if f, _ := abi.FieldNamed("numRmaSig"); r.lib.version >= f.Since {
		if set[f.Name] == "" {
			set[f.Name] = strconv.Itoa(1 + windows*backend.SignalSlots)
		}
		signals, _ = strconv.Atoi(set[f.Name]) // what is no number Pack refuses
	}
	packed, err := abi.Pack(r.lib.version, set)
	if err != nil {
		return nil, &backend.InvalidArgumentError{Where: at, Detail: "hint " + err.Error()}
	}
	return &config{packed: packed, signals: signals, blocking: set["blocking"] == "1"}, nil
}

// fieldOf finds a field by its name, or by what that is in Python: comm_name, cta_policy.
func fieldOf(name string) (abi.Field, bool) {
	plain := func(s string) string { return strings.ToLower(strings.ReplaceAll(s, "_", "")) }
	for _, f := range abi.Fields {
		if f.Name == name || strings.Contains(name, "_") && plain(f.Name) == plain(name) {
			return f, true
		}
	}
	return abi.Field{}, false
}

func fieldNames() string {
	var names []string
	for _, f := range abi.Fields {
		names = append(names, f.Name)
	}
	return strings.Join(names, ", ")
}

// operationPrefix stands before the fields of an operation's configuration, of which some are a communicator's as well.
const operationPrefix = "op."

// operationHints are the hints of operations.
func operationHints() (all []backend.OpHint) {
	for _, f := range abi.OperationFields {
		if slices.Contains([]string{"ext", "userProfilerTag", "launchCompletionEvent"}, f.Name) {
			continue
		}
		name := operationPrefix + f.Name
		all = append(all, backend.OpHint{Name: name, Check: func(value string) error {
			if _, err := strconv.ParseInt(value, 10, 32); err != nil && !f.String {
				return fmt.Errorf("hint %s=%q is no number", name, value)
			}
			return nil
		}})
	}
	return all
}

// configurable are the operations that the library takes a configuration for.
var configurable = []backend.Kind{backend.Broadcast, backend.AllReduce, backend.Reduce, backend.AllGather,
	backend.AllGatherSingle, backend.AllGatherV, backend.ReduceScatter, backend.ReduceScatterSingle,
	backend.ReduceScatterV, backend.AllToAllSingle, backend.GatherSingle, backend.Scan}

// operationConfig is what an operation's hints say; nil if they say nothing.
func (r *rank) operationConfig(op *backend.Op) (*abi.Config, error) {
	if len(op.Hints) == 0 {
		return nil, nil
	}
	set := map[string]string{}
	for name, value := range op.Hints {
		if field, ok := strings.CutPrefix(name, operationPrefix); ok {
			set[field] = value
		}
	}
	if len(set) == 0 || !slices.Contains(configurable, op.Kind) { // the communicator's hints are those of all operations
		return nil, nil
	}
	if err := r.lib.need(r.Of(op), "operation configurations"); err != nil {
		return nil, err
	}
	if set["forceAlgSelection"] == "" {
		set["forceAlgSelection"] = "1"
	}
	packed, err := abi.PackOperation(r.lib.version, set)
	if err != nil {
		return nil, &backend.InvalidArgumentError{Where: r.Of(op), Detail: err.Error()}
	}
	return packed, nil
}
