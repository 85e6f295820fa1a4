package bootstrap

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// vars makes an environment of lines NAME=value.
func vars(text string) func(string) string {
	m := map[string]string{}
	for line := range strings.SplitSeq(text, "\n") {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			m[name] = value
		}
	}
	return func(name string) string { return m[name] }
}

const torchrunVars = `
	RANK=5
	WORLD_SIZE=8
	LOCAL_RANK=1
	LOCAL_WORLD_SIZE=4
	GROUP_RANK=1
	GROUP_WORLD_SIZE=2
	ROLE_RANK=5
	MASTER_ADDR=node0
	MASTER_PORT=29400
	TORCHELASTIC_RESTART_COUNT=2
	TORCHELASTIC_RUN_ID=job7
	TORCHELASTIC_USE_AGENT_STORE=True
`

const openMPIVars = `
	OMPI_COMM_WORLD_RANK=3
	OMPI_COMM_WORLD_SIZE=4
	OMPI_COMM_WORLD_LOCAL_RANK=3
	OMPI_COMM_WORLD_LOCAL_SIZE=4
	OMPI_COMM_WORLD_NODE_RANK=3
	OMPI_MCA_ess_base_jobid=1277231105
	OMPI_MCA_orte_hnp_uri=1277231104.0;tcp://192.0.2.2:56101
	PMIX_NAMESPACE=1277231105
	PMIX_RANK=3
`

const slurmVars = `
	SLURM_JOB_ID=77
	SLURM_STEP_ID=0
	SLURM_PROCID=2
	SLURM_NTASKS=4
	SLURM_LOCALID=0
	SLURM_NODEID=1
	SLURM_NNODES=2
	SLURM_JOB_NODELIST=gpu[07-08]
	SLURM_TASKS_PER_NODE=2(x2)
`

func slurmInfo() Info {
	return Info{Rank: 2, Size: 4, LocalRank: 0, LocalSize: 2, NodeRank: 1, Nodes: 2, Launcher: Slurm, MasterAddr: "gpu07",
		MasterPort: 16077, RunID: "77.0", shared: true}
}

var torchrunInfo = Info{Rank: 5, Size: 8, LocalRank: 1, LocalSize: 4, NodeRank: 1, Nodes: 2, Launcher: TorchRun,
	MasterAddr: "node0", MasterPort: 29400, AgentStore: true, RunID: "job7", RestartCount: 2}

var openMPIInfo = Info{Rank: 3, Size: 4, LocalRank: 3, LocalSize: 4, NodeRank: -1, Launcher: OpenMPI,
	RunID: "1277231105@1277231104.0;tcp://192.0.2.2:56101"}

// with returns a changed copy of an Info.
func with(i Info, change func(*Info)) Info {
	change(&i)
	return i
}

// With srun -m arbitrary rank 0 is on the first host of the user's file, which needn't be the first of the step.
func TestSlurmArbitrary(t *testing.T) {
	const arbitrary = slurmVars + "SLURM_DISTRIBUTION=arbitrary\n"
	at := func(host string) Info { return with(slurmInfo(), func(i *Info) { i.MasterAddr = host }) }
	nowhere := with(slurmInfo(), func(i *Info) { i.MasterAddr, i.MasterPort, i.shared = "", 0, false })
	for name, c := range map[string]struct {
		file, more string
		want       Info
	}{
		"hosts on lines": {"# ranks\n\ngpu08\ngpu07\n", "", at("gpu08")},
		"a list":         {"gpu08,gpu07", "", at("gpu08")},
		"a range":        {"gpu[08,07]", "", at("gpu08")},
		"a number":       {"gpu08*2\ngpu07*2\n", "", at("gpu08")},
		"another file":   {"node1\nnode2\n", "", nowhere},
		"empty":          {"# none\n", "", nowhere},
		"an address": {"node1\n", "MASTER_ADDR=h\nMASTER_PORT=99", with(slurmInfo(),
			func(i *Info) { i.MasterAddr, i.MasterPort, i.shared = "h", 99, false })},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "hosts")
			if err := os.WriteFile(path, []byte(c.file), 0o600); err != nil {
				t.Fatal(err)
			}
			got, err := Detect(vars(arbitrary + "SLURM_HOSTFILE=" + path + "\n" + c.more))
			c.want.rankVar = got.rankVar
			if err != nil || got != c.want {
				t.Errorf("%+v, %v, want %+v", got, err, c.want)
			}
		})
	}
	if got, err := Detect(vars(arbitrary)); err != nil || got.MasterAddr != "" {
		t.Errorf("without a file: %+v, %v", got, err)
	}
}

func TestDetect(t *testing.T) {
	for name, test := range map[string]struct {
		env  string
		want Info
	}{
		"torchcomm": {`TORCHCOMM_RANK=1
			TORCHCOMM_SIZE=3
			MASTER_ADDR=::1
			MASTER_PORT=5` + openMPIVars + torchrunVars,
			Info{Rank: 1, Size: 3, LocalRank: 1, LocalSize: 4, NodeRank: -1, Launcher: TorchComm, MasterAddr: "node0",
				MasterPort: 29400, AgentStore: true, RunID: "job7", RestartCount: 2}},
		"torchrun": {torchrunVars, torchrunInfo},
		"torchrun without agent store": {torchrunVars + "TORCHELASTIC_USE_AGENT_STORE=False",
			with(torchrunInfo, func(i *Info) { i.AgentStore = false })},
		"torchrun below mpirun": {torchrunVars + openMPIVars, torchrunInfo},
		"torchrun below srun":   {torchrunVars + slurmVars, torchrunInfo},
		"chorus run": {torchrunVars + "CHORUS_RUN=mine", with(torchrunInfo,
			func(i *Info) { i.Launcher, i.RunID = ChorusRun, "mine" })},
		"chorus run with a relay": {torchrunVars + "CHORUS_RUN=mine\nCHORUS_STORE_ADDR=[fd00::1]:4711",
			with(torchrunInfo, func(i *Info) {
				i.Launcher, i.RunID, i.MasterAddr, i.MasterPort, i.direct = ChorusRun, "mine", "fd00::1", 4711, true
			})},
		"what another launcher leaves of a relay": {torchrunVars + "CHORUS_STORE_ADDR=h:1", torchrunInfo},
		"chorus run below mpirun": {openMPIVars + torchrunVars + "CHORUS_RUN=mine",
			with(torchrunInfo, func(i *Info) { i.Launcher, i.RunID = ChorusRun, "mine" })},
		"rank and world size by hand": {"RANK=0\nWORLD_SIZE=2\nMASTER_ADDR=[fd00::1]",
			Info{Size: 2, LocalRank: -1, NodeRank: -1, Launcher: TorchRun, MasterAddr: "fd00::1", MasterPort: 29500}},
		"Open MPI":                          {openMPIVars, openMPIInfo},
		"Open MPI before RANK":              {openMPIVars + "RANK=0\nWORLD_SIZE=1", openMPIInfo},
		"an empty variable counts as unset": {openMPIVars + "RANK=\nTORCHCOMM_RANK=", openMPIInfo},
		"Open MPI with an address": {openMPIVars + "MASTER_ADDR=h\nMASTER_PORT=99",
			with(openMPIInfo, func(i *Info) { i.MasterAddr, i.MasterPort = "h", 99 })},
		"torchrun chosen by hand": {openMPIVars + "RANK=0\nWORLD_SIZE=1\nTORCHCOMM_BOOTSTRAP_RANKSIZE_QUERY_METHOD=torchrun",
			Info{Size: 1, LocalRank: -1, NodeRank: -1, Launcher: TorchRun}},
		"MPI chosen by hand": {openMPIVars + torchrunVars +
			"TORCHCOMM_BOOTSTRAP_RANKSIZE_QUERY_METHOD=MPI\nMASTER_ADDR=\nMASTER_PORT=", openMPIInfo},
		"Hydra": {"PMI_RANK=1\nPMI_SIZE=2\nPMI_FD=8\nMPI_LOCALRANKID=1\nMPI_LOCALNRANKS=2",
			Info{Rank: 1, Size: 2, LocalRank: 1, LocalSize: 2, NodeRank: -1, Launcher: PMI}},
		"PMI on two hosts of Slurm": {"PMI_RANK=2\nPMI_SIZE=4" + slurmVars,
			with(slurmInfo(), func(i *Info) { i.Launcher = PMI })},
		"PMIx below srun": {"PMIX_RANK=2\nPMIX_NAMESPACE=slurm.pmix.77.0" + slurmVars,
			with(slurmInfo(), func(i *Info) { i.Launcher = PMIx })},
		"a size of one is enough":       {"WORLD_SIZE=1", Info{}},
		"half of what nobody asked for": {"WORLD_SIZE=4\nTORCHCOMM_BOOTSTRAP_RANKSIZE_QUERY_METHOD=slurm", Info{}},
		"an index without a size":       {"JOB_COMPLETION_INDEX=2\nWORLD_SIZE=", Info{}},
		"PALS": {"PALS_RANKID=3\nPALS_SIZE=4\nPALS_LOCAL_RANKID=1\nPALS_LOCAL_SIZE=2\nPALS_NODEID=1\nPALS_APID=ab-cd\nMASTER_ADDR=x\nMASTER_PORT=1",
			Info{Rank: 3, Size: 4, LocalRank: 1, LocalSize: 2, NodeRank: 1, Launcher: PALS, RunID: "ab-cd", MasterAddr: "x",
				MasterPort: 1}},
		"PALS with the size of PMI": {"PALS_RANKID=0\nPMI_SIZE=4", Info{Size: 4, LocalRank: -1, NodeRank: -1,
			Launcher: PALS}},
		"Slurm": {slurmVars, slurmInfo()},
		"a job of Slurm that was started again": {slurmVars + "SLURM_RESTART_COUNT=2\nPMI_RANK=2\nPMI_SIZE=4",
			with(slurmInfo(), func(i *Info) { i.Launcher, i.RestartCount = PMI, 2 })},
		"Slurm with unequal nodes": {slurmVars + "SLURM_STEP_TASKS_PER_NODE=1,3",
			with(slurmInfo(), func(i *Info) { i.LocalSize = 3 })},
		"Slurm with an address": {slurmVars + "MASTER_ADDR=h\nMASTER_PORT=99",
			with(slurmInfo(), func(i *Info) { i.MasterAddr, i.MasterPort, i.shared = "h", 99, false })},
		"Slurm on one host": {slurmVars + "SLURM_NNODES=1\nSLURM_NODEID=0\nSLURM_RESTART_COUNT=1",
			Info{Rank: 2, Size: 4, LocalRank: 0, LocalSize: 4, NodeRank: 0, Nodes: 1, Launcher: Slurm, RunID: "77.0",
				RestartCount: 1}},
		"a Slurm step on fewer hosts": {slurmVars +
			"SLURM_STEP_NODELIST=gpu08\nSLURM_STEP_NUM_NODES=1\nSLURM_STEP_NUM_TASKS=3",
			Info{Rank: 2, Size: 3, LocalRank: 0, LocalSize: 3, NodeRank: 1, Nodes: 1, Launcher: Slurm, RunID: "77.0"}},
		"a batch script is no rank": {slurmVars + "SLURM_STEP_ID=", Info{}},
		"Kubernetes": {"JOB_COMPLETION_INDEX=2\nWORLD_SIZE=4\nHOSTNAME=train-2\nJOB_SERVICE=ranks",
			Info{Rank: 2, Size: 4, LocalRank: 0, LocalSize: 1, NodeRank: 2, Nodes: 4, Launcher: Kubernetes, RunID: "train",
				MasterAddr: "train-0.ranks", MasterPort: 29500}},
		"Kubernetes with an address": {"JOB_COMPLETION_INDEX=2\nWORLD_SIZE=4\nHOSTNAME=train-2\nMASTER_ADDR=m\nMASTER_PORT=7",
			Info{Rank: 2, Size: 4, LocalRank: 0, LocalSize: 1, NodeRank: 2, Nodes: 4, Launcher: Kubernetes, RunID: "train",
				MasterAddr: "m", MasterPort: 7}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Detect(vars(test.env))
			if test.want == (Info{}) {
				if !errors.Is(err, ErrNoLauncher) {
					t.Fatalf("got %+v, %v, want no launcher", got, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(test.want, got, cmpopts.IgnoreUnexported(Info{})); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestDetectErrors(t *testing.T) {
	for name, test := range map[string]struct {
		env  string
		want []string // parts of the message
	}{
		"nothing":          {"", []string{"RANK/WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "JOB_COMPLETION_INDEX", "TORCHCOMM_RANK"}},
		"half":             {"RANK=3", []string{"RANK=3 is set, but not WORLD_SIZE"}},
		"other half":       {"WORLD_SIZE=4", []string{"WORLD_SIZE=4 is set, but not RANK: set both, or neither"}},
		"half of Open MPI": {"OMPI_COMM_WORLD_SIZE=4", []string{"openmpi: OMPI_COMM_WORLD_SIZE=4 is set, but not OMPI_COMM_WORLD_RANK"}},
		"half of Hydra":    {"PMI_RANK=1", []string{"pmi: PMI_RANK=1 is set, but not PMI_SIZE"}},
		"half of PMIx":     {"PMIX_RANK=2\nWORLD_SIZE=", []string{"pmix: PMIX_RANK=2 is set, but not a size"}},
		"half of PALS":     {"PALS_SIZE=4", []string{"pals: PALS_SIZE=4 is set, but not PALS_RANKID"}},
		"half by hand":     {"TORCHCOMM_RANK=3", []string{"TORCHCOMM_SIZE"}},
		"no number":        {"RANK=three\nWORLD_SIZE=4", []string{`RANK="three"`, "integer"}},
		"local":            {"RANK=0\nWORLD_SIZE=4\nLOCAL_RANK=x", []string{`LOCAL_RANK="x"`}},
		"too large":        {"OMPI_COMM_WORLD_RANK=4\nOMPI_COMM_WORLD_SIZE=4", []string{"OMPI_COMM_WORLD_RANK=4", "0 to 3"}},
		"negative":         {"PMI_RANK=-1\nPMI_SIZE=4", []string{"PMI_RANK=-1"}},
		"empty world":      {"RANK=0\nWORLD_SIZE=0", []string{"world of 0"}},
		"port":             {"RANK=0\nWORLD_SIZE=2\nMASTER_ADDR=a\nMASTER_PORT=70000", []string{`MASTER_PORT="70000"`}},
		"port text":        {"RANK=0\nWORLD_SIZE=2\nMASTER_PORT=http", []string{`MASTER_PORT="http"`}},
		"method":           {"TORCHCOMM_BOOTSTRAP_RANKSIZE_QUERY_METHOD=magic", []string{`"magic"`, "torchrun"}},
		"hosts":            {slurmVars + "SLURM_JOB_NODELIST=n[1", []string{`SLURM_JOB_NODELIST="n[1"`, "bracket"}},
		"restart count":    {torchrunVars + "TORCHELASTIC_RESTART_COUNT=1.5", []string{`TORCHELASTIC_RESTART_COUNT="1.5"`}},
		"not the one that was asked for": {openMPIVars + "TORCHCOMM_BOOTSTRAP_RANKSIZE_QUERY_METHOD=slurm",
			[]string{"SLURM_PROCID"}},
		"a list of tasks that is none": {slurmVars + "SLURM_TASKS_PER_NODE=2(x", []string{"SLURM_TASKS_PER_NODE", "2(x"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Detect(vars(test.env))
			if err == nil {
				t.Fatalf("accepted as %+v", got)
			}
			for _, part := range test.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q does not mention %q", err, part)
				}
			}
		})
	}
}

func TestParseHostlist(t *testing.T) {
	for list, want := range map[string]string{
		"one":                        "one",
		"a,b-1,c.example.org":        "a b-1 c.example.org",
		"n[1-3]":                     "n1 n2 n3",
		"n[01-03,7],login":           "n01 n02 n03 n7 login",
		"n[098-101]":                 "n098 n099 n100 n101",
		"rack[1-2]n[1,3]":            "rack1n1 rack1n3 rack2n1 rack2n3",
		"n[1-2]-ib,m5":               "n1-ib n2-ib m5",
		"[1-2]":                      "1 2",
		"":                           "",
		"n[1":                        "",
		"n1]":                        "",
		"n[1-]":                      "",
		"n[2-1]":                     "",
		"n[a-b]":                     "",
		"n[[1]]":                     "",
		"n[]":                        "",
		"a,,b":                       "",
		"n[0-9999999]":               "",
		"n[1-99999999999999999999]":  "",
		"n[+1-2]":                    "",
		"a b":                        "",
		"n[0-999][0-999][0-999]":     "",
		"x[1-2],y[1-2][3-4],z[10-9]": "",
	} {
		got, err := ParseHostlist(list)
		if want == "" {
			if err == nil {
				t.Errorf("%q was accepted as %d hosts", list, len(got))
			}
		} else if strings.Join(got, " ") != want {
			t.Errorf("%q: got %q, %v, want %q", list, got, err, want)
		}
	}
}

func TestTasksOn(t *testing.T) {
	for text, want := range map[string]string{
		"3":                      "3 0 0 0 0",
		"3,1(x2)":                "3 1 1 0 0",
		"2(x3),1,4":              "2 2 2 1 4",
		"0,5":                    "0 5 0 0 0",
		"":                       "bad",
		"x":                      "bad",
		"2(x":                    "bad",
		"2(x)":                   "bad",
		"2(x0)":                  "bad",
		"2(x1)2":                 "bad",
		"-1":                     "bad",
		"1,,2":                   "bad",
		"1(x99999999999999999),": "bad",
	} {
		got := make([]string, 5)
		for node := range got {
			if n, err := tasksOn(text, node); err != nil {
				got = []string{"bad"}
				break
			} else {
				got[node] = strconv.Itoa(n)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q: %v, want %s", text, got, want)
		}
	}
}

func FuzzTasksOn(f *testing.F) {
	f.Add("3,1(x2)", 1)
	f.Add("2(x999999999),2(x999999999),1", 1<<31)
	f.Fuzz(func(t *testing.T, text string, node int) {
		n, err := tasksOn(text, node)
		if n < 0 || err != nil && n != 0 || node < 0 && n != 0 {
			t.Errorf("%q, node %d: %d, %v", text, node, n, err)
		}
	})
}

// TestSlurmPorts: jobs of an array, and steps of a job, meet at ports of their own.
func TestSlurmPorts(t *testing.T) {
	seen := map[int]string{}
	for job := range 2000 {
		for step := range 3 {
			name := fmt.Sprintf("%d.%d", 7000+job, step)
			port := slurmPort(strconv.Itoa(7000+job), strconv.Itoa(step))
			if other := seen[port]; other != "" || port < firstPort || port >= firstPort+ports {
				t.Fatalf("%s and %s meet at port %d", name, other, port)
			}
			seen[port] = name
		}
	}
	if port := slurmPort("x", "0"); port != 0 {
		t.Errorf("port %d", port)
	}
}

func FuzzParseHostlist(f *testing.F) {
	for _, seed := range []string{"a", "n[1-3]", "n[01-03,7],login", "rack[1-2]n[1,3]", "n[1",
		"n[0-9][0-9][0-9][0-9][0-9][0-9]", "]["} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, list string) {
		hosts, err := ParseHostlist(list)
		if (err == nil) != (len(hosts) > 0) || len(hosts) > maxHosts {
			t.Fatalf("%d hosts and error %v", len(hosts), err)
		}
		for _, h := range hosts {
			if h == "" || strings.ContainsAny(h, "[], ") {
				t.Fatalf("host %q", h)
			}
		}
		if err == nil { // hosts are lists of themselves
			again, err := ParseHostlist(strings.Join(hosts, ","))
			if err != nil || !cmp.Equal(again, hosts) {
				t.Fatalf("%q became %q, %v", hosts, again, err)
			}
		}
	})
}
