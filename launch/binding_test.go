package launch

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/chorus-comms/chorus/internal/sys"
	"github.com/chorus-comms/chorus/launch/internal/launchtest"
)

// Two sockets of two NUMA nodes each, five cores of two threads; processor 3 isn't there.
var fiveCores = []sys.Core{
	{CPUs: sys.CPUSet{0, 8}, Socket: 0, Node: 0}, {CPUs: sys.CPUSet{1, 9}, Socket: 0, Node: 0}, {CPUs: sys.CPUSet{2, 10},
		Socket: 0, Node: 1},
	{CPUs: sys.CPUSet{4, 12}, Socket: 1, Node: 2}, {CPUs: sys.CPUSet{5}, Socket: 1, Node: 3},
}

func TestBind(t *testing.T) {
	for _, test := range []struct {
		to    Binding
		ranks int
		want  string // processors of each rank, and its threads
	}{
		{BindCore, 5, "0,8*1 1,9*1 2,10*1 4,12*1 5*1"},
		{BindCore, 2, "0,8*1 2,10*1"},
		{BindCore, 1, "0,8*1"},
		{BindSocket, 1, "0-2,8-10*3"},
		{BindSocket, 2, "0-2,8-10*3 4-5,12*2"},
		{BindSocket, 3, "0-2,8-10*1 0-2,8-10*1 4-5,12*2"},
		{BindSocket, 5, "0-2,8-10*1 0-2,8-10*1 0-2,8-10*1 4-5,12*1 4-5,12*1"},
		{BindNUMA, 2, "0-1,8-9*2 4,12*1"},
		{BindNUMA, 4, "0-1,8-9*2 2,10*1 4,12*1 5*1"},
		{BindCore, 6, "6 ranks on 5 cores"},
		{BindNUMA, 6, "6 ranks on 5 cores"},
	} {
		all, why := test.to.bind(fiveCores, test.ranks)
		var got []string
		for _, b := range all {
			got = append(got, fmt.Sprintf("%v*%d", b.cpus, b.threads()))
		}
		if text := strings.Join(got, " ") + why; text != test.want {
			t.Errorf("%d ranks to %s: %s, want %s", test.ranks, test.to, text, test.want)
		}
	}
	all, _ := BindSocket.bind(fiveCores, 2)
	if got := all[0].String(); got != "processors 0-2,8-10: 3 cores of socket 0, NUMA nodes 0-1" {
		t.Error(got)
	}
	all, _ = BindCore.bind(fiveCores, 5)
	if got := all[4].String(); got != "processors 5: 1 core of socket 1, NUMA node 3" {
		t.Error(got)
	}
}

// whereabouts runs ranks that say where they may run.
func whereabouts(t *testing.T, to Binding, ranks int, env ...string) (lines []string, stderr string) {
	t.Helper()
	job, out, errs := newJob(t, ranks, "whereabouts")
	job.Env = slices.DeleteFunc(job.Env, func(v string) bool {
		return strings.HasPrefix(v, "OMP_NUM_THREADS=") || strings.HasPrefix(v, "GOMAXPROCS=")
	})
	job.Env = append(job.Env, env...)
	job.Bind, job.ReportBindings = to, true
	if err := job.Run(t.Context()); err != nil {
		t.Fatal(err, errs)
	}
	for rank := range ranks {
		lines = append(lines, out.Lines(fmt.Sprintf("[%d]: ", rank))...)
	}
	return lines, errs.String()
}

// Each rank, and what it starts, may run where the launcher says, and has as many threads; the launcher itself stays
// where it was.
func TestBoundRanks(t *testing.T) {
	before, err := sys.AllowedCPUs()
	if err != nil {
		t.Skip(err)
	}
	cores, err := sys.Cores("/sys/devices/system", before)
	if err != nil {
		t.Fatal(err)
	}
	ranks := min(len(cores), 2)
	lines, stderr := whereabouts(t, BindCore, ranks)
	var want []string
	for r := range ranks {
		cpus := cores[r*len(cores)/ranks].CPUs
		want = append(want, fmt.Sprintf("allowed %v, child %v, GOMAXPROCS %d, OMP_NUM_THREADS 1", cpus, cpus, min(len(cpus),
			runtime.GOMAXPROCS(0))))
		launchtest.WantText(t, stderr, fmt.Sprintf("chorus: rank %d is bound to processors %v: 1 core of socket", r, cpus))
	}
	if !slices.Equal(lines, want) {
		t.Errorf("%q\nwant %q", lines, want)
	}
	lines, _ = whereabouts(t, BindNUMA, 1, "OMP_NUM_THREADS=7")
	if len(lines) != 1 || !strings.HasSuffix(lines[0], "OMP_NUM_THREADS 7") {
		t.Errorf("the environment's number of threads: %q", lines)
	}
	for _, to := range []Binding{BindCore, BindSocket, BindNUMA} {
		lines, stderr = whereabouts(t, to, len(cores)+1)
		launchtest.WantText(t, stderr, fmt.Sprintf("chorus: %d ranks on %d cores: the ranks are not bound\n", len(cores)+1, len(cores)),
			fmt.Sprintf("chorus: not bound, on processors %v: ranks 0-%d\n", before, len(cores)))
		for _, l := range lines {
			if !strings.HasPrefix(l, fmt.Sprintf("allowed %v, child %v, ", before, before)) || !strings.HasSuffix(l,
				"OMP_NUM_THREADS 1") {
				t.Errorf("unbound: %s", l)
			}
		}
		if len(cores) > 8 {
			break // as many ranks again would tell nothing new
		}
	}
	if after, err := sys.AllowedCPUs(); err != nil || !slices.Equal(after, before) {
		t.Errorf("the launcher may run on %v, %v before; %v", after, before, err)
	}
}

func TestBindToWhat(t *testing.T) {
	job, _, _ := newJob(t, 1, "env")
	job.Bind = "cores"
	if err := job.Run(t.Context()); !errors.Is(err, ErrArgument) || !strings.Contains(err.Error(),
		`"cores": want none, core, socket or numa`) {
		t.Error(err)
	}
}

// allowedOf reads where a process may run.
func allowedOf(status string) string {
	for line := range strings.Lines(status) {
		if list, ok := strings.CutPrefix(line, "Cpus_allowed_list:"); ok {
			return strings.TrimSpace(list)
		}
	}
	return "unknown"
}

func ownStatus() string {
	text, err := os.ReadFile("/proc/self/status")
	check(err)
	return string(text)
}
