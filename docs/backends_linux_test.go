package docs

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/comm"
	_ "github.com/chorus-comms/chorus/comm/accl"
	"github.com/chorus-comms/chorus/comm/backend"
	_ "github.com/chorus-comms/chorus/comm/fake"
	_ "github.com/chorus-comms/chorus/comm/gloo"
	"github.com/chorus-comms/chorus/comm/mpi"
	"github.com/chorus-comms/chorus/comm/nccl"
	"github.com/chorus-comms/chorus/comm/nccl/nccltest"
	"github.com/chorus-comms/chorus/device"
	_ "github.com/chorus-comms/chorus/device/accinte"
	"github.com/chorus-comms/chorus/internal/testutil"
	"github.com/chorus-comms/chorus/store"
)

// abilities says what the fields of Capabilities are, those that are the same on all machines.
var abilities = []struct{ field, what string }{
	{"Windows", "one-sided windows"}, {"PutOnly", "of those, put, signal and wait alone"},
	{"SharedMem", "peers' memory can be mapped"}, {"AnySource", "receives from any source"}, {"Tags", "tags"},
	{"Abort", "`Abort` tells the others"}, {"InProcess", "ranks may be goroutines of one process"}, {"MaxWorld", "most ranks"},
	{"NoOp", "moves no data"}, {"Foreign", "members may be no programs of Chorus, whose wire compares no operations"},
}

// TestCapabilities writes what backends can do as they say themselves.
func TestCapabilities(t *testing.T) {
	rt, err := device.Open("accinte")
	if err != nil {
		t.Fatal(err)
	}
	columns := []string{"native", "gloo", "accl", "fake"}
	var all []backend.Capabilities
	for _, name := range columns {
		all = append(all, capabilities(t, comm.WithBackend(name)))
	}
	columns, all = append(columns, "mpi"), append(all, mpi.Capabilities())
	for _, version := range []string{"2.18", "2.32"} {
		sim, err := nccltest.New(nccltest.Options{Version: version, Driver: rt.Driver()})
		if err != nil {
			t.Fatal(err)
		}
		place := "a stand-in of version " + version
		if _, err := nccl.Supply("NCCL", place, sim.Table(), "accinte"); err != nil {
			t.Fatal(err)
		}
		columns = append(columns, "nccl, of NCCL "+version)
		all = append(all, capabilities(t, comm.WithBackend("nccl"), comm.WithDevice("accinte:0"),
			comm.WithHints(map[string]string{"library": place})))
	}
	var b strings.Builder
	row := func(head string, cell func(c backend.Capabilities) string) {
		fmt.Fprintf(&b, "| %s |", head)
		for _, c := range all {
			fmt.Fprintf(&b, " %s |", cell(c))
		}
		b.WriteString("\n")
	}
	fmt.Fprintf(&b, "| | %s |\n|---|%s\n", strings.Join(columns, " | "), strings.Repeat("---|", len(columns)))
	for _, a := range abilities {
		row(a.what, func(c backend.Capabilities) string {
			switch v := reflect.ValueOf(c).FieldByName(a.field).Interface().(type) {
			case bool:
				return map[bool]string{true: "yes"}[v && (a.field != "PutOnly" || c.Windows)]
			case int:
				return strings.TrimPrefix(fmt.Sprint(v), "0")
			}
			panic(a.field)
		})
	}
	row("lacks the reductions", func(c backend.Capabilities) string {
		var lacks []string
		for k := backend.SumKind; k <= backend.PremulSumKind; k++ {
			if !slices.Contains(c.Reductions(), k) {
				lacks = append(lacks, k.String())
			}
		}
		return strings.Join(lacks, ", ")
	})
	testutil.CheckDocTables(t, "backends.md", map[string]string{"capabilities": b.String()})
	for i, f := range reflect.VisibleFields(reflect.TypeFor[backend.Capabilities]()) {
		known := slices.Contains([]string{"Name", "Devices", "LocalSize", "Reduces"}, f.Name)
		for _, a := range abilities {
			known = known || a.field == f.Name
		}
		if !known {
			t.Errorf("field %d, %s, has no row", i, f.Name)
		}
	}
}

// capabilities are those of a world of two.
func capabilities(t *testing.T, opts ...comm.NewOption) backend.Capabilities {
	t.Helper()
	st := store.NewHash(time.Minute)
	var comms [2]*comm.Comm
	var errs [2]error
	both := func(f func(r int) error) {
		var wg sync.WaitGroup
		for r := range comms {
			wg.Go(func() { errs[r] = f(r) })
		}
		wg.Wait()
		if err := errors.Join(errs[:]...); err != nil {
			t.Fatal(err)
		}
	}
	ctx := context.Background()
	both(func(r int) (err error) {
		comms[r], err = comm.New(ctx, append([]comm.NewOption{comm.WithRank(r, 2), comm.WithStore(st)}, opts...)...)
		return err
	})
	c := comms[0].Capabilities()
	both(func(r int) error { return comms[r].Finalize(ctx) })
	return c
}
