package hosts

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/launch"
	"github.com/chorus-comms/chorus/launch/internal/launchtest"
)

// hangs is what the role ssh still says.
const hangs = "CHORUS_LAUNCH_TEST_HANGS"

// farHosts is a Job whose ssh hangs as the role ssh does.
func farHosts(t *testing.T, how string, hosts ...Host) (h *Job, out, errs *launchtest.Buffer) {
	t.Setenv(role, "ssh")
	t.Setenv(hangs, how)
	out, errs = launchtest.NewBuffer(), launchtest.NewBuffer()
	return &Job{
		Hosts: hosts, SSH: launchtest.Self(), Remote: "chorus", Self: launchtest.Self(), Flags: func(Host) []string { return nil }, Meet: true,
		JoinTimeout: time.Hour, LostAfter: time.Hour, Grace: time.Hour, Stdout: out, Stderr: errs,
		signals: make(chan os.Signal, 2),
	}, out, errs
}

// runHosts runs it, for some time at most.
func runHosts(t *testing.T, h *Job) error {
	t.Helper()
	result := make(chan error, 1)
	go func() { result <- h.Run(context.Background()) }()
	select {
	case err := <-result:
		return err
	case <-time.After(20 * time.Second):
		t.Fatal("it hangs")
		return nil
	}
}

// A node's ranks are named where the numbers of all before it are known. One pass serves as many hosts as there may be,
// with as many ranks each. A pass for each of them, or a list of their ranks, would take minutes.
func TestRankNames(t *testing.T) {
	for _, c := range []struct {
		slots []int
		want  []string
	}{
		{[]int{1, 3, 1}, []string{"rank 0", "ranks 1-3", "rank 4"}}, {[]int{2, 0, 2}, []string{"ranks 0-1", "", ""}},
		{[]int{0}, []string{""}}, {nil, []string{}},
	} {
		var hosts []Host
		for _, n := range c.slots {
			hosts = append(hosts, Host{"far", n})
		}
		if got := rankNames(hosts); !slices.Equal(got, c.want) {
			t.Errorf("%v: %q", c.slots, got)
		}
	}
	all := make([]Host, maxListed)
	for i := range all {
		all[i].Slots = launch.MaxRanksPerNode
	}
	if got := rankNames(all)[maxListed-1]; got != "ranks 4294901760-4294967295" {
		t.Error(got)
	}
}

// A launcher that hangs behind its first words is bound as one that never says any: by the heartbeat, or, if it has only
// that, by the time that launchers have to come.
func TestHangingLaunchers(t *testing.T) {
	const limit = 100 * time.Millisecond
	a, b := Host{"far-a", 1}, Host{"far-b", 1}
	for name, c := range map[string]struct {
		how    string
		hosts  []Host
		change func(h *Job)
		want   string
	}{
		"says nothing more": {"silent", []Host{a}, func(h *Job) { h.LostAfter = limit },
			"node 0 (far-a, rank 0) is lost: its launcher has been silent since "},
		"before it has orders": {"silent", []Host{a, b}, func(h *Job) { h.LostAfter = limit },
			"is lost: its launcher has been silent since "},
		"does not begin": {"begins nothing", []Host{a}, func(h *Job) { h.JoinTimeout = limit },
			"node 0 (far-a, rank 0) is lost: its launcher has not come within 100ms"},
		"does not serve": {"begun", []Host{a, b}, func(h *Job) { h.JoinTimeout = limit },
			"node 0 (far-a, rank 0) is lost: its launcher has not come within 100ms"},
		"other version": {"other version", []Host{a}, func(*Job) {},
			"node 0 (far-a, rank 0) is lost: its launcher could not be started: ssh ended: chorus there is of another version"},
	} {
		t.Run(name, func(t *testing.T) {
			h, _, errs := farHosts(t, c.how, c.hosts...)
			c.change(h)
			if f := launchtest.WantFailure(t, runHosts(t, h)); f.Kind != launch.NodeLost {
				t.Errorf("%v", f)
			}
			launchtest.WantText(t, errs.String(), c.want)
			if n := strings.Count(errs.String(), "is lost"); n != 1 {
				t.Errorf("%d hosts are lost:\n%s", n, errs)
			}
		})
	}
}

// The second signal ends a launcher that does nothing about the first.
func TestSecondSignalCuts(t *testing.T) {
	h, out, errs := farHosts(t, "begun", Host{"far", 1})
	go func() {
		out.Await(t, "begun", 1)
		h.signals <- syscall.SIGINT
		h.signals <- syscall.SIGINT
	}()
	h.LostAfter = 2 * time.Second // of silence, too, which a busy machine may keep for a while
	if err := runHosts(t, h); launch.ExitCode(err) != 128+int(syscall.SIGINT) {
		t.Errorf("%v", err)
	}
	launchtest.WantText(t, errs.String(), "node 0 (far) does not end: its connection is cut")
}

// An ssh has ended when its process has, also if another one holds its output, as one does by which ssh shares
// connections.
func TestSSHLeavesAChild(t *testing.T) {
	pid := filepath.Join(t.TempDir(), "pid")
	for name, redirected := range map[string]string{"standard error": ">/dev/null", "both": ""} {
		t.Run(name, func(t *testing.T) {
			h, _, errs := farHosts(t, "", Host{"far", 1})
			h.SSH = []string{"sh", "-c", "setsid sleep 100 " + redirected + " & echo $! >" + pid + "; echo no route >&2; exit 255"}
			f := launchtest.WantFailure(t, runHosts(t, h))
			if f.Kind != launch.NodeLost {
				t.Errorf("%v", f)
			}
			launchtest.WantText(t, errs.String(), "its launcher could not be started: ssh ended with exit status 255: no route\n")
			killFromFile(t, pid)
		})
	}
}

func killFromFile(t *testing.T, path string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || n < 2 {
		t.Fatal(n, err)
	}
	syscall.Kill(n, syscall.SIGKILL)
}
