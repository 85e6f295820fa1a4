package launch

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/chorus-comms/chorus/launch/internal/launchtest"
	"github.com/chorus-comms/chorus/observe/record"
)

// The test binary is also the program of the ranks, the launcher that is killed, and the guard: role names which.
const role = "CHORUS_LAUNCH_TEST_ROLE"

func TestMain(m *testing.M) {
	if name := os.Getenv(role); name != "" {
		f, ok := roles[name]
		if !ok {
			fmt.Fprintln(os.Stderr, "no role", name)
			os.Exit(99)
		}
		f(os.Args[1:])
		os.Exit(0)
	}
	os.Setenv("GORACE", "atexit_sleep_ms=0") // under the race detector every process would end a second later
	goleak.VerifyTestMain(m)
}

var roles = map[string]func(args []string){
	// env prints the variables that args name.
	"env": func(args []string) {
		for _, name := range args {
			fmt.Printf("%s=%s\n", name, os.Getenv(name))
		}
	},
	// whereabouts prints where it may run, and what it starts.
	"whereabouts": func([]string) {
		child, err := exec.Command("cat", "/proc/self/status").Output()
		check(err)
		fmt.Printf("allowed %s, child %s, GOMAXPROCS %d, OMP_NUM_THREADS %s\n", allowedOf(ownStatus()),
			allowedOf(string(child)), runtime.GOMAXPROCS(0),
			os.Getenv("OMP_NUM_THREADS"))
	},
	// show prints the file that a variable names.
	"show": func(args []string) {
		path := os.Getenv(args[0])
		info, err := os.Stat(path)
		check(err)
		text, err := os.ReadFile(path)
		check(err)
		fmt.Printf("path=%s\nmode=%v\ntext=%s\n", path, info.Mode(), strings.TrimSpace(string(text)))
	},
	// fail runs one of failures on the rank args[0], while the others wait to be stopped. With a directory args[2] all
	// ranks have begun before.
	"fail": func(args []string) {
		if len(args) > 2 {
			check(os.WriteFile(filepath.Join(args[2], os.Getenv("RANK")), nil, 0o600))
			awaitFiles(args[2], os.Getenv("WORLD_SIZE"))
		}
		if os.Getenv("RANK") == args[0] {
			failures[args[1]]()
		}
		forever()
	},
	// stopped stops the rank args[0] by a signal; the others end when that is so, with status 0.
	"stopped": func(args []string) {
		mark := filepath.Join(args[1], "pid")
		if os.Getenv("RANK") == args[0] {
			if len(args) > 2 {
				signal.Ignore(syscall.SIGTERM)
			}
			check(os.WriteFile(mark+".new", []byte(strconv.Itoa(os.Getpid())), 0o600))
			check(os.Rename(mark+".new", mark))
			syscall.Kill(os.Getpid(), syscall.SIGSTOP)
			forever()
		}
		for end := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
			pid, _ := os.ReadFile(mark)
			state, _ := os.ReadFile("/proc/" + string(pid) + "/stat")
			if _, rest, _ := strings.Cut(string(state), ") "); strings.HasPrefix(rest, "T") {
				return
			}
			if time.Now().After(end) {
				check(errors.New("it never was stopped"))
			}
		}
	},
	// last is the last rank to end: it waits for the file args[1].
	"last": func(args []string) {
		for os.Getenv("RANK") == args[0] {
			if _, err := os.Stat(args[1]); err == nil {
				return
			}
			time.Sleep(time.Millisecond)
		}
	},
	// stubborn ignores SIGTERM, says so, and waits; the rank args[0] exits with status 3 when all others are deaf.
	"stubborn": func(args []string) {
		signal.Ignore(syscall.SIGTERM)
		mark := filepath.Join(args[1], os.Getenv("RANK"))
		check(os.WriteFile(mark, nil, 0o600))
		if os.Getenv("RANK") == args[0] {
			awaitFiles(args[1], os.Getenv("WORLD_SIZE"))
			os.Exit(3)
		}
		forever()
	},
	// echo prints the signals it gets, and exits with status 0 at one that is not SIGUSR1 or SIGUSR2.
	"echo": func([]string) {
		c := make(chan os.Signal, 8)
		signal.Notify(c)
		fmt.Println("ready")
		for s := range c {
			switch s {
			case syscall.SIGURG, syscall.SIGCONT: // the Go runtime's own; comes with every stop
			case syscall.SIGUSR1, syscall.SIGUSR2:
				fmt.Println("got", s)
			default:
				fmt.Println("ended by", s)
				return
			}
		}
	},
	// parent starts a child that outlives it and shares the open fifo args[0]; then it exits, or waits if args[1] is wait.
	"parent": func(args []string) {
		fifo, err := os.OpenFile(args[0], os.O_WRONLY, 0)
		check(err)
		child := exec.Command("sleep", "1000")
		child.ExtraFiles = []*os.File{fifo}
		check(child.Start())
		fmt.Fprintln(fifo, "started")
		if args[1] == "wait" {
			forever()
		}
	},
	// daemon starts a child in a session of its own that outlives it and shares the open fifo args[0]; if args[1] is bare,
	// without any environment, and if it's killed, it waits.
	"daemon": func(args []string) {
		fifo, err := os.OpenFile(args[0], os.O_WRONLY, 0)
		check(err)
		child := exec.Command("/bin/sleep", "1000")
		child.ExtraFiles = []*os.File{fifo}
		child.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if args[1] == "bare" {
			child.Env = []string{"x=y"}
		}
		check(child.Start())
		fmt.Fprintln(fifo, "started")
		if args[1] == "killed" {
			forever()
		}
	},
	// record opens a flight recorder, and keeps the fifo args[0] open.
	"record": func(args []string) {
		fifo, err := os.OpenFile(args[0], os.O_WRONLY, 0)
		check(err)
		rank, err := strconv.Atoi(os.Getenv("RANK"))
		check(err)
		record.Open(record.Settings{Entries: 8, Dir: os.Getenv(dumpVariable)}, "job", "world", rank, 2)
		fmt.Fprintln(fifo, "started")
		forever()
	},
	// hold keeps the fifo args[0] open.
	"hold": func(args []string) {
		fifo, err := os.OpenFile(args[0], os.O_WRONLY, 0)
		check(err)
		fmt.Fprintln(fifo, "started")
		forever()
	},
	// launcher runs two ranks that play the role args[0] with the rest of args; parents get a guard.
	"launcher": func(args []string) {
		job := &Job{
			Command: append(launchtest.Self(), args[1:]...), RanksPerNode: 2,
			Env:    append(os.Environ(), role+"="+args[0]),
			Stdout: os.Stdout, Stderr: os.Stderr,
		}
		switch args[0] {
		case "record", "env":
			job.Records = JobsDir()
			fallthrough
		case "parent", "daemon":
			job.Guard, job.Adopt = launchtest.Self(), true
		}
		check(os.Setenv(role, "guard")) // for the guard, which gets this process's environment
		err := job.Run(context.Background())
		if failed := (*Failure)(nil); err != nil && !errors.As(err, &failed) {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(ExitCode(err))
	},
	// attached runs a rank that plays saving, and gets the signals of this process.
	"attached": func(args []string) {
		job := &Job{Command: append(launchtest.Self(), args...), RanksPerNode: 1, Env: append(os.Environ(), role+"=saving")}
		job.Attach(os.Stdout, os.Stderr)
		os.Exit(ExitCode(job.Run(context.Background())))
	},
	// saving says at SIGINT that it saves, and that it has when there is the file args[0].
	"saving": func(args []string) {
		c := make(chan os.Signal, 1)
		signal.Notify(c, syscall.SIGINT)
		fmt.Println("ready")
		<-c
		fmt.Println("saving")
		for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
			if _, err := os.Stat(args[0]); err == nil {
				fmt.Println("saved")
				return
			}
		}
	},
	"guard": func([]string) { check(Guard(os.Stdin)) },
	// failsoon leaves a file in the directory args[1]; the rank args[0] fails when it finds the file now there.
	"failsoon": func(args []string) {
		check(os.WriteFile(filepath.Join(args[1], os.Getenv("RANK")), nil, 0o600))
		for os.Getenv("RANK") == args[0] {
			if _, err := os.Stat(filepath.Join(args[1], "now")); err == nil {
				os.Exit(7)
			}
			time.Sleep(time.Millisecond)
		}
		forever()
	},
	// patientnode is node with a heartbeat of a minute.
	"patientnode": func(args []string) { beNode(args, time.Minute) },
	// secondnode is node with a heartbeat of a second.
	"secondnode": func(args []string) { beNode(args, time.Second) },
	// node is node args[0] of two, which meet at args[1].
	"node": func(args []string) { beNode(args, 0) },
	// elastic is a launcher of a job with args[0] to args[1] nodes, which meet at args[2], an endpoint or the address of a
	// store. Its ranks count in the directory args[3].
	"elastic": func(args []string) {
		job := &Job{
			Command: append(launchtest.Self(), args[3]), RanksPerNode: 1, RunID: "elastic", NodeRank: AnyNodeRank,
			MinNodes: int(args[0][0] - '0'), Nodes: int(args[1][0] - '0'),
			LastCall: 100 * time.Millisecond, LostAfter: 20 * time.Second, Monitor: 5 * time.Millisecond,
			JoinTimeout: 20 * time.Second, Env: append(os.Environ(), role+"=count"),
		}
		if strings.Contains(args[2], "://") {
			job.Store, job.LostAfter = args[2], 2*time.Second // there only heartbeats show a loss
		} else {
			job.Endpoint = args[2]
		}
		job.Attach(os.Stdout, os.Stderr)
		err := job.Run(context.Background())
		if failed := (*Failure)(nil); err != nil && !errors.As(err, &failed) {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(ExitCode(err))
	},
	// count counts on from the number that rank 0 has saved in the directory args[0], until there is a file end. With a
	// file fragile, other ranks fail when rank 0 is dead.
	"count": func(args []string) {
		state := filepath.Join(args[0], "state")
		text, _ := os.ReadFile(state)
		count, _ := strconv.Atoi(string(text))
		fmt.Printf("rank %s of %s, restart %s of %s, run %s, from %d\n", os.Getenv("RANK"), os.Getenv("WORLD_SIZE"),
			os.Getenv("TORCHELASTIC_RESTART_COUNT"), os.Getenv("TORCHELASTIC_MAX_RESTARTS"),
			os.Getenv("TORCHELASTIC_RUN_ID"), count)
		first := filepath.Join(args[0], "pid")
		if os.Getenv("RANK") == "0" {
			check(os.WriteFile(first+".new", []byte(strconv.Itoa(os.Getpid())), 0o600))
			check(os.Rename(first+".new", first))
		}
		_, err := os.Stat(filepath.Join(args[0], "fragile"))
		fragile := err == nil && os.Getenv("RANK") != "0"
		for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
			if _, err := os.Stat(filepath.Join(args[0], "end")); err == nil {
				return
			}
			text, _ := os.ReadFile(first)
			if pid, _ := strconv.Atoi(string(text)); fragile && pid > 0 && syscall.Kill(pid, 0) == syscall.ESRCH {
				os.Exit(9)
			}
			if count++; os.Getenv("RANK") == "0" {
				check(os.WriteFile(state+".new", []byte(strconv.Itoa(count)), 0o600))
				check(os.Rename(state+".new", state))
			}
		}
		os.Exit(98)
	},
	// flood writes a mebibyte without a line end, then a last line without one, on both streams, and exits at once.
	"flood": func([]string) {
		line := append(bytes.Repeat([]byte("x"), 1<<20), '\n')
		for _, f := range []*os.File{os.Stdout, os.Stderr} {
			f.Write(line)
			fmt.Fprint(f, "the end")
		}
	},
	// flaky fails in every attempt before args[0].
	"flaky": func(args []string) {
		fmt.Printf("attempt %s at port %s\n", os.Getenv("TORCHELASTIC_RESTART_COUNT"), os.Getenv("MASTER_PORT"))
		if os.Getenv("TORCHELASTIC_RESTART_COUNT") < args[0] {
			if os.Getenv("RANK") == "0" {
				os.Exit(5)
			}
			forever()
		}
	},
	"cat": func([]string) {
		in := bufio.NewScanner(os.Stdin)
		for in.Scan() {
			fmt.Println(in.Text())
		}
	},
}

func beNode(args []string, lostAfter time.Duration) {
	job := &Job{
		Command: launchtest.Self(), RanksPerNode: 1, Nodes: 2, NodeRank: int(args[0][0] - '0'),
		Endpoint: args[1], LostAfter: lostAfter,
		Env:    append(os.Environ(), role+"=echo"),
		Stdout: os.Stdout, Stderr: os.Stderr,
	}
	os.Exit(ExitCode(job.Run(context.Background())))
}

// lastLines is how many lines of standard error a failure quotes.
const lastLines = 20

var failures = map[string]func(){
	"exit":   func() { fmt.Fprintln(os.Stderr, "first\nlast words"); os.Exit(42) },
	"signal": func() { syscall.Kill(os.Getpid(), syscall.SIGKILL); forever() },
	"error-file": func() {
		check(os.WriteFile(os.Getenv("TORCHELASTIC_ERROR_FILE"),
			[]byte(`{"message": {"message": "ValueError: bad shape", "extraInfo": {"timestamp": "1"}}}`), 0o600))
		os.Exit(1)
	},
	"panic": func() {
		deep(2 * lastLines)
	},
	"chatter": func() {
		for i := range 100 {
			fmt.Fprintln(os.Stderr, "line", i, strings.Repeat("y", 1000))
		}
		os.Exit(1)
	},
}

// deep panics below enough frames to push the reason out of the last lines.
func deep(frames int) int {
	if frames == 0 {
		panic("the reason")
	}
	return deep(frames-1) + 1
}

// forever ends with a signal, or with an error before the test's own time is over.
func forever() {
	time.Sleep(time.Minute)
	os.Exit(98)
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(97)
	}
}

// awaitFiles returns when dir holds n files, which the ranks make.
func awaitFiles(dir, n string) {
	for end := time.Now().Add(20 * time.Second); ; {
		if time.Now().After(end) {
			check(fmt.Errorf("%s never held %s files", dir, n))
		}
		entries, err := os.ReadDir(dir)
		check(err)
		if fmt.Sprint(len(entries)) == n {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// newJob is a job whose ranks play a role of the test binary.
func newJob(t *testing.T, ranks int, name string, args ...string) (job *Job, out, errs *launchtest.Buffer) {
	out, errs = launchtest.NewBuffer(), launchtest.NewBuffer()
	return &Job{
		Command:      append(launchtest.Self(), args...),
		RanksPerNode: ranks,
		Env:          append(os.Environ(), role+"="+name),
		Stdout:       out,
		Stderr:       errs,
		JoinTimeout:  20 * time.Second,
	}, out, errs
}

// freeEndpoint returns an address without a listener.
func freeEndpoint(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
