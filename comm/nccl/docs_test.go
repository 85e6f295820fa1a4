//go:build linux

package nccl_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/comm/nccl/abi"
	"github.com/chorus-comms/chorus/comm/nccl/nccltest"
	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/internal/testutil"
	"github.com/chorus-comms/chorus/tensor"
)

// The tables of docs are what is really called, had and refused. CHORUS_TEST_WRITE=1 writes them.
func TestTables(t *testing.T) {
	old, new := calls(t, "2.18"), calls(t, "2.32")
	for file, tables := range map[string]map[string]string{
		"nccl.md": {"operations": operationsTable(old, new), "reductions": reductionsTable(t),
			"capabilities": capabilitiesTable()},
		"torchcomms.md": {"operations": backendsTable(calls(t, ""), old, new)},
	} {
		testutil.CheckDocTables(t, "../../docs/"+file, tables)
	}
}

// calls has rank 0 of two do every operation over a stand-in, and returns what it calls for each, or is refused with.
// Without a level it's the native backend, which calls nothing.
func calls(t *testing.T, level string) map[string]string {
	var mu sync.Mutex
	var seen []string
	name, library := "native", ""
	if level != "" {
		name = "nccl"
		library = simulate(t, nccltest.Options{Version: level, Fail: func(call string, rank int) abi.Result {
			mu.Lock()
			defer mu.Unlock()
			if call != "ncclCommGetAsyncError" && rank <= 0 && !slices.Contains(seen, call) {
				seen = append(seen, call)
			}
			return abi.Success
		}})
	}
	all := map[string]string{}
	each(t, open(t, name, library, 2), func(ctx context.Context, c *comm.Comm, s *device.Stream,
		_ *tensor.Tensor) error {
		me := c.Rank()
		x := func(n int) *tensor.Tensor { return tensor.Must(tensor.ZerosOn(ctx, s.Device(), dtype.Float32, n)) }
		two := func() []*tensor.Tensor { return []*tensor.Tensor{x(4), x(4)} }
		two0 := func() []*tensor.Tensor {
			if me == 0 {
				return two()
			}
			return nil
		}
		big0 := func() *tensor.Tensor {
			if me == 0 {
				return x(8)
			}
			return nil
		}
		batch := func() error {
			b := c.Batch()
			b.Send(x(4), 1-me)
			b.Recv(x(4), 1-me)
			return b.Issue(ctx)
		}
		lasting := func(n int) (*tensor.Tensor, error) { // of the library's memory, whose allocation is left out
			mem, err := c.Zeros(dtype.Float32, n)
			err = errors.Join(err, c.Barrier(ctx), s.Synchronize(ctx)) // an allocation doesn't say which rank it is of
			mu.Lock()
			defer mu.Unlock()
			if me == 0 {
				seen = nil
			}
			return mem, err
		}
		inWindow := func(call func(w *comm.Window) error) func() error { // what closing calls is left out
			return func() error {
				mem, err := lasting(1024)
				if err != nil {
					return err
				}
				w, err := c.NewWindow(ctx, mem)
				if err != nil {
					return err
				}
				err = call(w)
				mu.Lock()
				made := slices.Clone(seen)
				mu.Unlock()
				closed := w.Close(ctx)
				mu.Lock()
				defer mu.Unlock()
				if me == 0 {
					seen = made
				}
				return errors.Join(err, closed)
			}
		}
		for _, op := range []struct {
			name string
			call func() error
		}{
			{"send, recv", func() error {
				if me == 0 {
					return errors.Join(c.Send(ctx, x(4), 1), c.Recv(ctx, x(4), 1))
				}
				return errors.Join(c.Recv(ctx, x(4), 0), c.Send(ctx, x(4), 0))
			}},
			{"a batch", batch},
			{"a batch of collectives", func() error {
				b := c.Batch()
				b.Add(&comm.Op{Kind: backend.AllReduce, In: x(4), Out: x(4), Reduce: comm.Sum})
				b.Add(&comm.Op{Kind: backend.AllGatherSingle, In: x(4), Out: x(8)})
				return b.Issue(ctx)
			}},
			{"broadcast", func() error { return c.Broadcast(ctx, x(4), 0) }},
			{"all_reduce", func() error { return c.AllReduce(ctx, x(4), comm.Sum) }},
			{"all_reduce, premul_sum", func() error { return c.AllReduce(ctx, x(4), comm.PremulSum(2)) }},
			{"reduce", func() error { return c.Reduce(ctx, x(4), 0, comm.Sum) }},
			{"all_gather", func() error { return c.AllGather(ctx, two(), x(4)) }},
			{"all_gather_single", func() error { return c.AllGatherSingle(ctx, x(8), x(4)) }},
			{"all_gather_v", func() error { return c.AllGatherV(ctx, []*tensor.Tensor{x(1), x(2)}, x(me+1)) }},
			{"reduce_scatter", func() error { return c.ReduceScatter(ctx, x(4), two(), comm.Sum) }},
			{"reduce_scatter_single", func() error { return c.ReduceScatterSingle(ctx, x(4), x(8), comm.Sum) }},
			{"reduce_scatter_v", func() error {
				return c.ReduceScatterV(ctx, x(me+1), []*tensor.Tensor{x(1), x(2)}, comm.Sum)
			}},
			{"all_to_all", func() error { return c.AllToAll(ctx, two(), two()) }},
			{"all_to_all_single", func() error { return c.AllToAllSingle(ctx, x(8), x(8)) }},
			{"all_to_all_v_single", func() error { return c.AllToAllVSingle(ctx, x(8), x(8), []int{4, 4}, []int{4, 4}) }},
			{"barrier", func() error { return c.Barrier(ctx) }},
			{"scatter", func() error { return c.Scatter(ctx, x(4), two0(), 0) }},
			{"gather", func() error { return c.Gather(ctx, two0(), x(4), 0) }},
			{"gather_single", func() error { return c.GatherSingle(ctx, big0(), x(4), 0) }},
			{"scan", func() error { return c.Scan(ctx, x(4), comm.Sum) }},
			{"split", func() error {
				part, err := c.Split(ctx, []int{0, 1})
				if err != nil {
					return err
				}
				mu.Lock()
				made := slices.Clone(seen)
				mu.Unlock()
				err = part.Finalize(ctx)
				mu.Lock()
				defer mu.Unlock()
				if me == 0 {
					seen = made
				}
				return err
			}},
			{"register", func() error {
				y := x(4)
				if err := c.Register(y); err != nil {
					return err
				}
				return c.Deregister(y)
			}},
			{"register_symmetric", func() error {
				block, err := lasting(segment)
				if err != nil {
					return err
				}
				if err := c.RegisterSymmetric(ctx, block); err != nil {
					return err
				}
				return c.DeregisterSymmetric(ctx, block)
			}},
			{"an allocator, mem_alloc", func() error {
				a, err := c.Allocator()
				if err == nil {
					_, err = a.Empty(dtype.Float32, 4)
				}
				return err
			}},
			{"suspend, resume", func() error {
				if err := c.Suspend(ctx); err != nil {
					return err
				}
				return c.Resume(ctx)
			}},
			{"new_window, put", inWindow(func(w *comm.Window) error {
				return w.Put(ctx, x(4), comm.Target{Rank: 1 - me})
			})},
			{"new_window, signal, wait_signal", inWindow(func(w *comm.Window) error {
				return errors.Join(w.Signal(ctx, 1-me, 0), w.WaitSignal(ctx, 1-me, 0))
			})},
			{"new_window, get", inWindow(func(w *comm.Window) error { return w.Get(ctx, x(4), comm.Target{Rank: 1 - me}) })},
			{"new_window, accumulate", inWindow(func(w *comm.Window) error {
				return w.Accumulate(ctx, x(4), comm.Sum, comm.Target{Rank: 1 - me})
			})},
			{"new_window, fence", inWindow(func(w *comm.Window) error { return w.Fence(ctx, -1) })},
			{"recv of any source", func() error {
				if me == 0 {
					return c.Recv(ctx, x(4), comm.AnySource)
				} else if !c.Capabilities().AnySource {
					return nil
				}
				return c.Send(ctx, x(4), 0)
			}},
			{"a tag", func() error {
				if me == 0 {
					return c.Send(ctx, x(4), 1, comm.Tag(1))
				} else if !c.Capabilities().Tags {
					return nil
				}
				return c.Recv(ctx, x(4), 0, comm.Tag(1))
			}},
			{"all_reduce, band", func() error {
				return c.AllReduce(ctx, tensor.Must(tensor.ZerosOn(ctx, s.Device(), dtype.Int32, 4)), comm.BAnd)
			}},
		} {
			if err := errors.Join(c.Barrier(ctx), s.Synchronize(ctx)); err != nil {
				return err
			}
			mu.Lock()
			if me == 0 {
				seen = nil
			}
			mu.Unlock()
			err := op.call()
			if me == 1 {
				continue
			}
			mu.Lock()
			if err != nil {
				_, said, _ := strings.Cut(err.Error(), `"world": `)
				all[op.name] = strings.ReplaceAll(said, ".0 (a stand-in for "+t.Name()+")", "")
			} else if inGroup := slices.DeleteFunc(seen, func(s string) bool { return strings.HasPrefix(s, "ncclGroup") }); len(inGroup) <
				len(seen) {
				all[op.name] = "`" + strings.Join(inGroup, "`, `") + "`, in a group"
			} else {
				all[op.name] = "`" + strings.Join(seen, "`, `") + "`"
			}
			mu.Unlock()
		}
		return s.Synchronize(ctx)
	})
	return all
}

// backendsTable says what each operation is in each backend.
func backendsTable(native, old, new map[string]string) string {
	var b strings.Builder
	b.WriteString("| operation | `native`, `chorus`, `gloo` | `nccl`, of NCCL 2.18 | `nccl`, of NCCL 2.32 |\n" +
		"|---|---|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(native)) {
		if name == "a batch of collectives" || name == "register_symmetric" { // which torchcomms doesn't have
			continue
		}
		fmt.Fprintf(&b, "| %s |", name)
		for _, how := range []map[string]string{native, old, new} {
			fmt.Fprintf(&b, " %s |", kindOf(name, how[name]))
		}
		b.WriteString("\n")
	}
	return b.String()
}

// kindOf says what calls make of an operation: native if the last is the library's function for it.
func kindOf(name, calls string) string {
	plain := func(s string) string { return strings.ToLower(strings.ReplaceAll(s, "_", "")) }
	words := strings.Fields(strings.NewReplacer("_single", "", "_v", "", ", premul_sum", "").Replace(name))
	list := strings.Split(calls, "`")
	switch {
	case calls == "``": // the backend itself
		return "native"
	case len(list) < 2:
		return "refused: " + calls
	case strings.HasSuffix(calls, "in a group"):
		return "composed"
	case strings.Contains(plain(list[len(list)-2]), plain(words[len(words)-1])):
		return "native"
	}
	return "composed"
}

func operationsTable(old, new map[string]string) string {
	var names []string
	for name := range old {
		names = append(names, name)
	}
	slices.Sort(names)
	var b strings.Builder
	b.WriteString("| operation | NCCL 2.18 | NCCL 2.32 |\n|---|---|---|\n")
	for _, name := range names {
		there := new[name]
		if there == old[name] {
			there = "the same"
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", name, strings.ReplaceAll(old[name], "|", "\\|"), there)
	}
	return b.String()
}

func reductionsTable(t *testing.T) string {
	comms := open(t, "nccl", simulate(t, nccltest.Options{Version: "2.32"}), 2)
	caps := comms[0].Capabilities()
	for _, c := range comms {
		defer c.Abort(errors.New("it is done"))
	}
	var b strings.Builder
	b.WriteString("| elements | reductions | refused |\n|---|---|---|\n")
	for _, dt := range dtype.All() {
		var has, lacks []string
		for k := backend.SumKind; k <= backend.PremulSumKind; k++ {
			switch {
			case !k.Defined(dt):
			case caps.Reduces(k, dt):
				has = append(has, k.String())
			default:
				lacks = append(lacks, k.String())
			}
		}
		fmt.Fprintf(&b, "| %v | %s | %s |\n", dt, strings.Join(has, ", "), strings.Join(lacks, ", "))
	}
	return b.String()
}

func capabilitiesTable() string {
	var b strings.Builder
	b.WriteString("| capability | first release of NCCL | symbols |\n|---|---|---|\n")
	for _, c := range abi.Capabilities() {
		symbols := strings.ReplaceAll(strings.Join(c.Symbols, "`, `"), "|", "` or `")
		fmt.Fprintf(&b, "| %s | %s | `%s` |\n", c.Name, c.Since, symbols)
	}
	return b.String()
}
