package launch

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chorus-comms/chorus/launch/internal/launchtest"
)

func TestEnvironment(t *testing.T) {
	names := []string{
		"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE",
		"ROLE_RANK", "ROLE_WORLD_SIZE", "ROLE_NAME", "MASTER_ADDR", "TORCHELASTIC_RESTART_COUNT",
		"TORCHELASTIC_MAX_RESTARTS", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_USE_AGENT_STORE", "CHORUS_RUN",
	}
	job, out, errs := newJob(t, 3, "env", append(names, "MASTER_PORT", "TORCHELASTIC_ERROR_FILE")...)
	job.RunID, job.Role, job.MaxRestarts = "job7", "trainer", 4
	job.Env = append(job.Env, "RANK=77", "MASTER_ADDR=elsewhere") // from a launcher around this one
	if err := job.Run(t.Context()); err != nil {
		t.Fatal(err, errs)
	}
	for rank := range 3 {
		got := map[string]string{}
		for _, l := range out.Lines(fmt.Sprintf("[%d]: ", rank)) {
			name, value, _ := strings.Cut(l, "=")
			got[name] = value
		}
		if got["MASTER_PORT"] == "" || got["MASTER_PORT"] == "0" || got["TORCHELASTIC_ERROR_FILE"] == "" {
			t.Errorf("rank %d: MASTER_PORT=%q TORCHELASTIC_ERROR_FILE=%q", rank, got["MASTER_PORT"],
				got["TORCHELASTIC_ERROR_FILE"])
		}
		delete(got, "MASTER_PORT")
		delete(got, "TORCHELASTIC_ERROR_FILE")
		r := fmt.Sprint(rank)
		want := map[string]string{
			"RANK": r, "WORLD_SIZE": "3", "LOCAL_RANK": r, "LOCAL_WORLD_SIZE": "3", "GROUP_RANK": "0", "GROUP_WORLD_SIZE": "1",
			"ROLE_RANK": r, "ROLE_WORLD_SIZE": "3", "ROLE_NAME": "trainer", "MASTER_ADDR": "127.0.0.1",
			"TORCHELASTIC_RESTART_COUNT": "0", "TORCHELASTIC_MAX_RESTARTS": "4", "TORCHELASTIC_RUN_ID": "job7",
			"TORCHELASTIC_USE_AGENT_STORE": "True", "CHORUS_RUN": "job7",
		}
		if !maps.Equal(got, want) {
			t.Errorf("rank %d: got %v\nwant %v", rank, got, want)
		}
	}
}

func TestFailures(t *testing.T) {
	for _, test := range []struct {
		how  string
		code int
		text []string
	}{
		{"exit", 42, []string{"rank 1 (local rank 1, pid ", "exited with status 42", "  | first\n", "  | last words\n",
			"stopped ranks 0, 2"}},
		{"signal", 128 + int(syscall.SIGKILL), []string{"rank 1", "was killed by SIGKILL", "stopped ranks 0, 2"}},
		{"panic", 2, []string{"  | panic: the reason\n", "  | ...\n"}},
		{"error-file", 1, []string{"its error: ValueError: bad shape"}},
	} {
		t.Run(test.how, func(t *testing.T) {
			job, _, errs := newJob(t, 3, "fail", "1", test.how)
			err := job.Run(t.Context())
			f := launchtest.WantFailure(t, err)
			host, _ := os.Hostname()
			if f.Rank != 1 || f.LocalRank != 1 || f.Host != host || f.Pid == 0 || f.After <= 0 {
				t.Errorf("failure %+v", f)
			}
			if got := ExitCode(err); got != test.code {
				t.Errorf("exit code %d, want %d", got, test.code)
			}
			launchtest.WantText(t, errs.String(), test.text...)
		})
	}
}

func TestTailIsBounded(t *testing.T) {
	job, _, _ := newJob(t, 1, "fail", "0", "chatter")
	f := launchtest.WantFailure(t, job.Run(t.Context()))
	if len(f.Stderr) != lastLines || !strings.HasPrefix(f.Stderr[lastLines-1], "line 99 ") ||
		len(f.Stderr[0]) > 500+len("...") {
		t.Errorf("%d lines, the last %.20q, the first of %d bytes", len(f.Stderr), f.Stderr[len(f.Stderr)-1],
			len(f.Stderr[0]))
	}
}

func TestStubbornRanksAreKilled(t *testing.T) {
	job, _, errs := newJob(t, 3, "stubborn", "2", t.TempDir())
	job.Grace = 50 * time.Millisecond
	if err := job.Run(t.Context()); ExitCode(err) != 3 {
		t.Errorf("got %v", err)
	}
	launchtest.WantText(t, errs.String(), "rank 2 ", "exited with status 3", "stopping ranks 0-1", "killed ranks 0-1")
}

func TestProgramsThatCannotStart(t *testing.T) {
	plain := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(plain, []byte("no program"), 0o700); err != nil {
		t.Fatal(err)
	}
	for program, code := range map[string]int{"no-such-program": 127, "/no/such/program": 127, os.TempDir(): 126,
		plain: 126} {
		job, _, errs := newJob(t, 2, "")
		job.Command = []string{program}
		err := job.Run(t.Context())
		if ExitCode(err) != code || !strings.Contains(err.Error(), program) {
			t.Errorf("%s: exit code %d, want %d: %v\n%s", program, ExitCode(err), code, err, errs)
		}
	}
}

func TestBadJobs(t *testing.T) {
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	for want, change := range map[string]func(*Job){
		"no program":               func(j *Job) { j.Command = nil },
		"0 ranks":                  func(j *Job) { j.RanksPerNode = 0 },
		"-1 restarts":              func(j *Job) { j.MaxRestarts = -1 },
		"65536 is not a port":      func(j *Job) { j.MasterPort = 65536 },
		"no local rank 2":          func(j *Job) { j.Console = []int{2} },
		"run id":                   func(j *Job) { j.RunID = "../x" },
		"need a log directory":     func(j *Job) { j.Tee = StreamMap{All: Both} },
		"rendezvous endpoint":      func(j *Job) { j.Nodes = 2 },
		"node rank 2":              func(j *Job) { j.Nodes, j.NodeRank, j.Endpoint = 2, 2, "localhost:1" },
		"not \"localhost\"":        func(j *Job) { j.Nodes, j.Endpoint = 2, "localhost" },
		"cannot serve the job's":   func(j *Job) { j.MasterPort = busy.Addr().(*net.TCPAddr).Port },
		"cannot start the guard: ": func(j *Job) { j.Guard = []string{"/no/such/guard"} },
	} {
		job, out, _ := newJob(t, 2, "env", "RANK")
		change(job)
		err := job.Run(t.Context())
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
		if ExitCode(err) != 1 || out.String() != "" {
			t.Errorf("%s: exit code %d, output %q", want, ExitCode(err), out)
		}
	}
}

func TestSignals(t *testing.T) {
	for _, test := range []struct {
		signal syscall.Signal
		seen   syscall.Signal
	}{
		{syscall.SIGINT, syscall.SIGINT},
		{syscall.SIGTERM, syscall.SIGTERM},
		{syscall.SIGHUP, syscall.SIGHUP},
		{syscall.SIGPIPE, syscall.SIGTERM},
	} {
		t.Run(test.signal.String(), func(t *testing.T) {
			job, out, errs := newJob(t, 2, "echo")
			signals := make(chan os.Signal)
			job.Signals = signals
			result := make(chan error, 1)
			go func() { result <- job.Run(t.Context()) }()
			out.Await(t, "ready", 2)
			signals <- syscall.SIGUSR1
			signals <- syscall.SIGUSR2
			out.Await(t, fmt.Sprintln("got", syscall.SIGUSR1), 2)
			out.Await(t, fmt.Sprintln("got", syscall.SIGUSR2), 2)
			signals <- test.signal
			if err := <-result; ExitCode(err) != 128+int(test.signal) {
				t.Errorf("got %v", err)
			}
			out.Await(t, fmt.Sprintln("ended by", test.seen), 2)
			launchtest.WantText(t, errs.String(), "received "+unix.SignalName(test.signal), "stopped ranks 0-1")
		})
	}
}

// A signal that arrives while the launcher makes ready ends the job as any other does.
func TestSignalBeforeTheRanks(t *testing.T) {
	for i := range 20 {
		job, _, errs := newJob(t, 2, "echo")
		signals := make(chan os.Signal, 1)
		signals <- syscall.SIGTERM
		job.Signals = signals
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		err := job.Run(ctx)
		if ctx.Err() != nil || ExitCode(err) != 128+15 {
			t.Fatalf("run %d: got %v", i, err)
		}
		cancel()
		launchtest.WantText(t, errs.String(), "received SIGTERM")
	}
}

func TestSecondSignalKills(t *testing.T) {
	dir := t.TempDir()
	job, _, errs := newJob(t, 2, "stubborn", "none", dir)
	signals := make(chan os.Signal)
	job.Signals, job.Grace = signals, time.Hour
	result := make(chan error, 1)
	go func() { result <- job.Run(t.Context()) }()
	awaitFiles(dir, "2")
	signals <- syscall.SIGTERM
	signals <- syscall.SIGTERM
	if err := <-result; ExitCode(err) != 128+15 {
		t.Errorf("got %v", err)
	}
	launchtest.WantText(t, errs.String(), "killed ranks 0-1")
}

// timeout(1) sends its signal twice within milliseconds, which asks for no haste. The kernel makes one of two that are
// closer to each other than their delivery, so here there are many.
func TestSignalSentTwice(t *testing.T) {
	save := filepath.Join(t.TempDir(), "save")
	launcher := exec.Command(os.Args[0], save)
	launcher.Env = append(os.Environ(), role+"=attached")
	out := launchtest.NewBuffer()
	launcher.Stdout, launcher.Stderr = out, out
	if err := launcher.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { launcher.Process.Kill(); launcher.Wait() })
	out.Await(t, "ready", 1)
	for begin := time.Now(); time.Since(begin) < 50*time.Millisecond; {
		launcher.Process.Signal(syscall.SIGINT)
	}
	out.Await(t, "saving", 1)
	if err := os.WriteFile(save, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	launcher.Wait()
	if code := launcher.ProcessState.ExitCode(); code != 128+int(syscall.SIGINT) {
		t.Errorf("status %d", code)
	}
	launchtest.WantText(t, out.String(), "[0]: saved\n", "stopped rank 0\n")
}

func TestContextEndsTheJob(t *testing.T) {
	job, out, _ := newJob(t, 2, "echo")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	result := make(chan error, 1)
	go func() { result <- job.Run(ctx) }()
	out.Await(t, "ready", 2)
	cancel()
	if f := launchtest.WantFailure(t, <-result); f.Kind != Interrupted || f.Signal != syscall.SIGTERM {
		t.Errorf("got %v", f)
	}
}

func TestRestarts(t *testing.T) {
	job, out, errs := newJob(t, 2, "flaky", "2")
	job.MaxRestarts = 2
	if err := job.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	launchtest.WantText(t, errs.String(), "rank 0 (local rank 0", "restart 1 of 2", "restart 2 of 2")
	ports := map[string]bool{}
	for _, l := range out.Lines("[0]: attempt ") {
		ports[l] = true
	}
	if len(ports) != 3 {
		t.Errorf("want three attempts with a port each:\n%s", out)
	}

	job, _, errs = newJob(t, 2, "flaky", "2")
	job.MaxRestarts = 1
	if f := launchtest.WantFailure(t, job.Run(t.Context())); f.Attempt != 1 || f.Code() != 5 {
		t.Errorf("got %v", f)
	}
	launchtest.WantText(t, errs.String(), "restart 1 of 1")
}

// TestFixedPortIsReusedByTheNextAttempt also shows that no rank needs to bind it.
func TestFixedPortIsReusedByTheNextAttempt(t *testing.T) {
	job, out, _ := newJob(t, 2, "flaky", "2")
	_, port, _ := strings.Cut(freeEndpoint(t), ":")
	fmt.Sscan(port, &job.MasterPort)
	job.MaxRestarts = 2
	if err := job.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(out.String(), "attempt 2 at port "+port); n != 2 {
		t.Errorf("port %s:\n%s", port, out)
	}
}

func TestNoOutputIsLost(t *testing.T) {
	job, out, errs := newJob(t, 4, "flood")
	job.LogDir, job.RunID = t.TempDir(), "flood"
	if err := job.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	for rank := range 4 {
		for name, b := range map[string]*launchtest.Buffer{"stdout.log": out, "stderr.log": errs} {
			var total int
			lines := b.Lines(fmt.Sprintf("[%d]: ", rank))
			for _, l := range lines {
				total += strings.Count(l, "x")
			}
			if total != 1<<20 || lines[len(lines)-1] != "the end" {
				t.Errorf("rank %d, %s: %d bytes in %d lines", rank, name, total, len(lines))
			}
			data, err := os.ReadFile(filepath.Join(job.LogDir, "flood", "attempt_0", fmt.Sprint(rank), name))
			if want := strings.Repeat("x", 1<<20) + "\nthe end"; err != nil || string(data) != want {
				t.Errorf("rank %d, %s: log of %d bytes, %v", rank, name, len(data), err)
			}
		}
	}
}

func TestRedirectTeeAndConsole(t *testing.T) {
	job, out, _ := newJob(t, 4, "env", "RANK")
	job.LogDir, job.RunID = t.TempDir(), "id"
	job.Redirect = StreamMap{Rank: map[int]Streams{0: Both}}
	job.Tee = StreamMap{Rank: map[int]Streams{1: Stdout}}
	job.Console = []int{0, 1, 2}
	if err := job.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	shown := strings.Split(strings.TrimSpace(out.String()), "\n")
	slices.Sort(shown)
	if want := []string{"[1]: RANK=1", "[2]: RANK=2"}; !slices.Equal(shown, want) {
		t.Errorf("shown %q, want %q", shown, want)
	}
	var logs []string
	filepath.WalkDir(job.LogDir, func(path string, d os.DirEntry, err error) error {
		if !d.IsDir() {
			rel, _ := filepath.Rel(job.LogDir, path)
			logs = append(logs, rel)
		}
		return err
	})
	want := []string{"id/attempt_0/0/stderr.log", "id/attempt_0/0/stdout.log", "id/attempt_0/1/stdout.log"}
	if !slices.Equal(logs, want) {
		t.Errorf("log files %q, want %q", logs, want)
	}
}

func TestStandardInputGoesToOneRank(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	io.WriteString(w, "hello\n")
	w.Close()
	defer r.Close()
	job, out, _ := newJob(t, 3, "cat")
	job.Stdin = r
	if err := job.Run(t.Context()); err != nil || out.String() != "[0]: hello\n" {
		t.Errorf("got %q, %v", out, err)
	}
}
