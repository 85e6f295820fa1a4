package chaos

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/store"
)

// task is what a worker is asked to do: a virtual round, or one rank of a real one.
type task struct {
	Mode    Mode        `json:"mode"`
	Seed    uint64      `json:"seed"`
	Faults  []FaultKind `json:"faults,omitempty"`
	Fabrics []string    `json:"fabrics,omitempty"`
	Rank    int         `json:"rank"`
	Name    string      `json:"name,omitempty"`   // of the round's part of the store
	Before  bool        `json:"before,omitempty"` // the earlier life of a round of Stale
	Store   string      `json:"store,omitempty"`  // where its ranks meet

	Launcher *place `json:"launcher,omitempty"` // be the launcher of this rank
	Launched bool   `json:"launched,omitempty"` // be the rank of a launcher
	Loaded   bool   `json:"loaded,omitempty"`   // busy processes run beside the round
	Busy     bool   `json:"busy,omitempty"`     // keep a core busy until there are no more tasks
}

// answer is a line of a worker: when the fault happened, or what came of the task.
type answer struct {
	Fired   int64     `json:"fired,omitempty"`
	Reports []*Report `json:"reports,omitempty"`
	Stuck   string    `json:"stuck,omitempty"`

	Launcher string `json:"launcher,omitempty"` // the error of a launcher that should have ended well
}

// taskVariable is where the rank of a launcher finds its task.
const taskVariable = "CHORUS_CHAOS_TASK"

// rankEnv is the environment of a launcher's ranks.
func rankEnv(t task) []string {
	t.Launcher, t.Launched = nil, true
	text, _ := json.Marshal(t)
	return append(os.Environ(), taskVariable+"="+string(text))
}

// Work carries out the tasks that come in, one a line, until there are no more. It's what the processes do that a
// campaign starts.
func Work(in io.Reader, out io.Writer) error {
	if text := os.Getenv(taskVariable); text != "" {
		in = strings.NewReader(text)
	}
	w := worker{out: json.NewEncoder(out)}
	defer w.close()
	lines := json.NewDecoder(bufio.NewReader(in))
	var between func()
	for {
		var t task
		if err := lines.Decode(&t); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("chaos: reading a task: %w", err)
		}
		if t.Busy {
			if err := w.say(answer{}); err != nil {
				return err
			}
			busy(lines)
			return nil
		}
		p := Make(t.Mode, t.Seed, t.Faults, t.Fabrics)
		if t.Loaded && p.Hints["fabric.heartbeat"] != "" {
			p.Hints["fabric.heartbeat"] = loadedHeartbeat.String()
		}
		if t.Before {
			p = p.before()
		}
		var a answer
		switch {
		case t.Launched && p.Fault.Kind == LeftOut:
			number, err := strconv.Atoi(os.Getenv("RANK"))
			if err != nil {
				return fmt.Errorf("chaos: RANK: %w", err)
			}
			return leftOut(&p, number, out)
		case t.Launched:
			return launched(&p, t.Rank, out)
		case t.Launcher != nil && p.Fault.Kind == LeftOut:
			a = w.launcherOfAll(&p, t)
		case t.Launcher != nil:
			rep, err := w.launcher(&p, t)
			if err != nil {
				return err
			}
			a = answer{Reports: []*Report{&rep}}
		case t.Mode == Virtual:
			if between == nil {
				between = alone()
			}
			between()
			o := Virtually(&p)
			a = answer{Reports: o.Reports, Stuck: o.Stuck}
		default:
			rep, err := w.real(&p, t)
			if err != nil {
				return err
			}
			a = answer{Reports: []*Report{&rep}}
		}
		if err := w.say(a); err != nil {
			return err
		}
	}
}

// A worker is a process's end of the conversation.
type worker struct {
	mu    sync.Mutex
	out   *json.Encoder
	store *store.TCPStore
	at    string // the store's address
}

func (w *worker) say(a answer) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.out.Encode(a)
}

func (w *worker) close() {
	if w.store != nil {
		w.store.Close()
	}
}

// looking is how long a worker looks for the store.
const looking = 20 * time.Second

// real carries out one rank of a real program.
func (w *worker) real(p *Program, t task) (Report, error) {
	if w.store == nil || w.at != t.Store {
		w.close()
		ctx, cancel := context.WithTimeout(context.Background(), looking)
		defer cancel()
		st, err := store.DialTCP(ctx, t.Store, store.TCPOptions{})
		if err != nil {
			return Report{}, err
		}
		w.store, w.at = st, t.Store
	}
	in := &injector{p: p, rank: t.Rank, rendezvous: rendezvous{w.store, t.Name}}
	in.strike = func(kind FaultKind) {
		w.say(answer{Fired: time.Now().UnixNano()})
		if kind == Kill {
			syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
		syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		if kind != Pause {
			select {} // the signal may reach the other threads a moment later
		}
	}
	in.cut = func(peer int) { in.links().Cut(peer, errPulled) }
	// Of one name in all rounds, as the worlds of the lives of a job are.
	opts := []comm.NewOption{comm.WithStore(store.NewPrefix(t.Name, w.store))}
	if p.wrapped() {
		injectors.Store(t.Name, in)
		defer injectors.Delete(t.Name)
		opts = append(opts, comm.WithFabric(fabricName), comm.WithHints(map[string]string{"fabric.inner": p.Fabric,
			"fabric.injector": t.Name}))
	} else {
		opts = append(opts, comm.WithFabric(p.Fabric))
	}
	defer in.end()
	return run(p, t.Rank, in, func(ctx context.Context, more ...comm.NewOption) (*comm.Comm, error) {
		if err := in.hunger(-1); err != nil {
			return nil, err
		}
		defer in.sate()
		return comm.New(ctx, append(opts, more...)...)
	}), nil
}

// wrapped reports whether a real program's fault needs a fabric that breaks on purpose.
func (p *Program) wrapped() bool {
	return p.Fault.onMessages() || p.Fault.Kind == Cut || p.Fault.Kind == Partition
}

// hunger leaves the rank's process a few descriptors only while it does step k, if that's the fault.
func (in *injector) hunger(k int) (err error) {
	if f := in.p.Fault; f.Kind == Exhausted && in.p.Mode == Real && in.culprit() && k == f.Step {
		in.fire()
		in.restore, err = starve(f.Left)
	}
	return err
}

// sate ends that.
func (in *injector) sate() {
	if in.restore != nil {
		in.restore()
		in.restore = nil
	}
}

// starve leaves the process only a few descriptors, with which all shared memory and all links come.
func starve(left int) (restore func(), err error) {
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return nil, err
	}
	var before syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
		return nil, err
	}
	// One of the open ones is that of the directory.
	low := before
	low.Cur = uint64(len(open) - 1 + left)
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &low); err != nil {
		return nil, err
	}
	return func() { syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before) }, nil
}
